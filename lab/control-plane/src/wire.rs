//! Converts the store's records to what a client may write.

use serde_json::{Map, Value, json};
use svclab_apiserver::objects::{ObjectKey, ObjectKind, Record};

/// Metadata that only the server sets.
const SERVER_SIDE: [&str; 8] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
];
/// The image of containers without one; pods are network namespaces, so nothing pulls it.
const IMAGE: &str = "svclab.invalid/echo";

/// Returns a collection's path. Cluster-scoped kinds ignore `namespace`.
pub(crate) fn collection(kind: ObjectKind, namespace: Option<&str>) -> String {
    let api = match kind.api_version() {
        "v1" => "/api/v1".to_owned(),
        version => format!("/apis/{version}"),
    };
    match namespace.filter(|_| kind.namespaced()) {
        Some(namespace) => format!("{api}/namespaces/{namespace}/{kind}s"),
        None => format!("{api}/{kind}s"),
    }
}

pub(crate) fn path(kind: ObjectKind, key: &ObjectKey) -> String {
    format!("{}/{}", collection(kind, Some(&key.namespace)), key.name)
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct WireObject {
    /// The object except its status.
    pub(crate) main: Value,
    pub(crate) status: Option<Value>,
    pub(crate) deleted: bool,
    /// Whether the manifest sets `creationTimestamp`.
    pub(crate) dated: bool,
}

pub(crate) fn of(record: &Record) -> WireObject {
    let mut main = record.value();
    main["apiVersion"] = json!(record.kind.api_version());
    main["kind"] = json!(record.kind.name());
    let deleted = main["metadata"].get("deletionTimestamp").is_some_and(|at| !at.is_null());
    if let Some(metadata) = main["metadata"].as_object_mut() {
        SERVER_SIDE.iter().for_each(|field| drop(metadata.remove(*field)));
    }
    let status = main.as_object_mut().and_then(|fields| fields.remove("status"));
    let status = match record.kind {
        ObjectKind::Pod => {
            containers(&mut main);
            status.map(one_address_per_family)
        }
        ObjectKind::Service => status,
        ObjectKind::Node => status.map(dated),
        // Controllers write the status of other kinds.
        _ => None,
    };
    WireObject { main, status, deleted, dated: record.dated }
}

/// Adds a container with an image, which kube-apiserver requires.
fn containers(pod: &mut Value) {
    let spec = &mut pod["spec"];
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        spec["containers"] = json!([{ "name": "main" }]);
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if container.get("image").is_none_or(Value::is_null) {
            container["image"] = json!(IMAGE);
        }
    }
}

/// Removes further addresses: a pod with host network has all addresses of its node, but kube-apiserver accepts one per
/// family.
fn one_address_per_family(mut status: Value) -> Value {
    for list in ["podIPs", "hostIPs"] {
        let Some(addresses) = status[list].as_array() else { continue };
        let is_ipv6 = |address: &&Value| address["ip"].as_str().is_some_and(|ip| ip.contains(':'));
        let mut first: Vec<&Value> = Vec::new();
        for address in addresses {
            if !first.iter().any(|other| is_ipv6(other) == is_ipv6(&address)) {
                first.push(address);
            }
        }
        status[list] = first.into_iter().cloned().collect();
    }
    status
}

/// Removes null times, which kube-apiserver would read as the year 1.
fn dated(mut status: Value) -> Value {
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    status
}

/// Returns the merge patch (RFC 7386) from `old` to `new`; `None` if they are equal.
pub(crate) fn patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(before) => patch.extend(self::patch(before, value).map(|change| (name.clone(), change))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_contains_only_differences() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1, 2]});
        let new = json!({"a": 1, "b": {"c": 4}, "e": [1], "f": {}});
        assert_eq!(patch(&old, &new), Some(json!({"b": {"c": 4, "d": null}, "e": [1], "f": {}})));
        assert_eq!(patch(&old, &old), None);
    }

    #[test]
    fn a_status_keeps_one_address_per_family() {
        let addresses = json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}, {"ip": "fd00::1"}, {"ip": "fd00::2"}]);
        let status = one_address_per_family(json!({ "podIPs": addresses }));
        assert_eq!(status, json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}));
    }
}
