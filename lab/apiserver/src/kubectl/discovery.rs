//! What clients ask first: versions, groups, resource types.

use serde_json::{Value, json};

use crate::resources::{RESOURCES, Resource, groups};

/// The Kubernetes release whose API this is a part of.
const RELEASE: (u32, u32) = (1, 36);

/// `/version`.
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

/// `/`.
pub(crate) fn root() -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    paths.extend(groups().flat_map(|group| [format!("/apis/{group}"), format!("/apis/{group}/v1")]));
    paths.extend(["/healthz", "/livez", "/readyz", "/version"].map(str::to_owned));
    json!({ "paths": paths })
}

/// `/api`.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
pub(crate) fn group_list() -> Value {
    let groups: Vec<Value> = groups().map(group_entry).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
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

/// `/api/v1` and `/apis/GROUP/v1`.
pub(crate) fn resource_list(group: &str) -> Value {
    let of_group = || RESOURCES.iter().filter(|resource| resource.group == group);
    let resources: Vec<Value> = of_group()
        .flat_map(|resource| [Some(entry(resource)), status_entry(resource), scale_entry(resource)])
        .flatten()
        .collect();
    let version = of_group().next().map(Resource::api_version);
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
}

fn entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.kind.to_string(),
        "namespaced": resource.kind.namespaced(),
        "kind": resource.kind.name(),
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    });
    if !resource.short.is_empty() {
        entry["shortNames"] = json!(resource.short);
    }
    if resource.in_all {
        entry["categories"] = json!(["all"]);
    }
    entry
}

fn status_entry(resource: &Resource) -> Option<Value> {
    resource.status.then(|| {
        json!({
            "name": format!("{}/status", resource.plural),
            "singularName": "",
            "namespaced": resource.kind.namespaced(),
            "kind": resource.kind.name(),
            "verbs": ["get", "patch", "update"],
        })
    })
}

fn scale_entry(resource: &Resource) -> Option<Value> {
    resource.scales().then(|| {
        json!({
            "name": format!("{}/scale", resource.plural),
            "singularName": "",
            "namespaced": true,
            "group": "autoscaling",
            "version": "v1",
            "kind": "Scale",
            "verbs": ["get", "patch", "update"],
        })
    })
}
