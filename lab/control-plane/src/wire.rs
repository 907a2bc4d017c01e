//! A record of the lab's store as what a client writes: without what a server sets, and with what it insists on.

use serde_json::{Map, Value, json};
use svclab_apiserver::objects::{ObjectKey, ObjectKind, Record};

/// What the server sets.
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
/// The image of containers that name none. Nobody pulls it: pods are the lab's namespaces.
const IMAGE: &str = "svclab.invalid/echo";

/// The path of the objects of a kind, in a namespace if it has some.
pub(crate) fn collection(kind: ObjectKind, namespace: Option<&str>) -> String {
    let (api, plural) = match kind {
        ObjectKind::Node => ("/api/v1", "nodes"),
        ObjectKind::Service => ("/api/v1", "services"),
        ObjectKind::Pod => ("/api/v1", "pods"),
        ObjectKind::Namespace => ("/api/v1", "namespaces"),
        ObjectKind::Event => ("/api/v1", "events"),
        ObjectKind::EndpointSlice => ("/apis/discovery.k8s.io/v1", "endpointslices"),
        ObjectKind::Lease => ("/apis/coordination.k8s.io/v1", "leases"),
        ObjectKind::ServiceCidr => ("/apis/networking.k8s.io/v1", "servicecidrs"),
        ObjectKind::ReplicaSet => ("/apis/apps/v1", "replicasets"),
        ObjectKind::Deployment => ("/apis/apps/v1", "deployments"),
    };
    match namespace.filter(|_| kind.namespaced()) {
        Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
        None => format!("{api}/{plural}"),
    }
}

/// The path of an object.
pub(crate) fn path(kind: ObjectKind, key: &ObjectKey) -> String {
    format!("{}/{}", collection(kind, Some(&key.namespace)), key.name)
}

/// An object as a client writes it, and what the lab says beside that.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct WireObject {
    /// Everything but the status.
    pub(crate) main: Value,
    /// What is written to the status.
    pub(crate) status: Option<Value>,
    /// Whether it has a deletion timestamp.
    pub(crate) deleted: bool,
    /// Whether its manifest says when it was made.
    pub(crate) dated: bool,
}

/// What is written of a record.
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
        // The other kinds' statuses are their controllers'.
        _ => None,
    };
    WireObject { main, status, deleted, dated: record.dated }
}

/// A server takes no pod without containers, and no container without an image.
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

/// A pod of the host network has all addresses of its node; a server takes one of each family.
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

/// Times that a server would take as the year 1 are left out.
fn dated(mut status: Value) -> Value {
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    status
}

/// The merge patch (RFC 7386) that makes `old` what `new` is; `None` where they are alike.
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
    fn a_patch_says_what_is_new_and_what_is_gone() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1, 2]});
        let new = json!({"a": 1, "b": {"c": 4}, "e": [1], "f": {}});
        assert_eq!(patch(&old, &new), Some(json!({"b": {"c": 4, "d": null}, "e": [1], "f": {}})));
        assert_eq!(patch(&old, &old), None);
    }

    #[test]
    fn a_status_has_one_address_of_each_family() {
        let addresses = json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}, {"ip": "fd00::1"}, {"ip": "fd00::2"}]);
        let status = one_address_per_family(json!({ "podIPs": addresses }));
        assert_eq!(status, json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}));
    }
}
