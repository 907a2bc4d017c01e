use serde_json::{Value, json};

use crate::resources::{RESOURCES, Resource, groups};

const RELEASE: (u32, u32) = (1, 36);

pub(crate) fn version() -> Value {
    let (major, minor) = RELEASE;
    json!({
        "major": major.to_string(),
        "minor": minor.to_string(),
        "gitVersion": format!("v{major}.{minor}.0+svclab"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

pub(crate) fn root() -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    paths.extend(groups().flat_map(|group| [format!("/apis/{group}"), format!("/apis/{group}/v1")]));
    paths.extend(["/healthz", "/livez", "/readyz", "/version"].map(str::to_owned));
    json!({ "paths": paths })
}

pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

pub(crate) fn group_list() -> Value {
    let groups: Vec<Value> = groups().map(group_entry).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

pub(crate) fn group(name: &str) -> Value {
    let mut group = group_entry(name);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    group
}

fn group_entry(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

pub(crate) fn resource_list(group: &str) -> Value {
    let of_group = || RESOURCES.iter().filter(|resource| resource.group == group);
    let resources: Vec<Value> = of_group().flat_map(entries).collect();
    let version = of_group().next().map(Resource::api_version);
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
}

fn entries(resource: &Resource) -> Vec<Value> {
    let verbs: &[&str] = match resource.read_only {
        Some(_) => &["get", "list", "watch"],
        None => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    };
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.kind.to_string(),
        "namespaced": resource.kind.namespaced(),
        "kind": resource.kind.name(),
        "verbs": verbs,
    });
    if !resource.short.is_empty() {
        entry["shortNames"] = json!(resource.short);
    }
    if resource.in_all {
        entry["categories"] = json!(["all"]);
    }
    let sub_resource = |name: &str, kind: &str| {
        json!({
            "name": format!("{}/{name}", resource.plural),
            "singularName": "",
            "namespaced": resource.kind.namespaced(),
            "kind": kind,
            "verbs": ["get", "patch", "update"],
        })
    };
    let mut entries = vec![entry];
    if resource.evicts() {
        let mut eviction = sub_resource("eviction", "Eviction");
        (eviction["group"], eviction["version"], eviction["verbs"]) = (json!("policy"), json!("v1"), json!(["create"]));
        entries.push(eviction);
    }
    if resource.status {
        entries.push(sub_resource("status", resource.kind.name()));
    }
    if resource.scales() {
        let mut scale = sub_resource("scale", "Scale");
        (scale["group"], scale["version"]) = (json!("autoscaling"), json!("v1"));
        entries.push(scale);
    }
    entries
}
