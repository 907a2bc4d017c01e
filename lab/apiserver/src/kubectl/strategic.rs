//! Strategic merge patches, which merge some lists by a key. [`list_rule`] repeats `patchStrategy` and `patchMergeKey`
//! of the served types.

use serde_json::{Map, Value};

use crate::objects::ObjectKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListRule {
    /// The patch replaces the list.
    Atomic,
    /// Items with the same value of this field are merged.
    Keyed(&'static str),
    /// The patch adds values.
    Set,
}

/// Returns the rule of a list; `path` has no indices.
fn list_rule(kind: ObjectKind, path: &str) -> ListRule {
    match (kind, path) {
        (_, "metadata.finalizers") | (ObjectKind::Node, "spec.podCIDRs") => ListRule::Set,
        (_, "metadata.ownerReferences") => ListRule::Keyed("uid"),
        (ObjectKind::Service, "spec.ports") => ListRule::Keyed("port"),
        (ObjectKind::Service | ObjectKind::Node | ObjectKind::Pod | ObjectKind::Namespace, "status.conditions") => {
            ListRule::Keyed("type")
        }
        (ObjectKind::Node, "status.addresses") => ListRule::Keyed("type"),
        (ObjectKind::Pod, "status.podIPs" | "status.hostIPs" | "spec.hostAliases") => ListRule::Keyed("ip"),
        (ObjectKind::Pod, "spec.volumes" | "spec.imagePullSecrets") => ListRule::Keyed("name"),
        (ObjectKind::Pod, "spec.topologySpreadConstraints") => ListRule::Keyed("topologyKey"),
        (ObjectKind::Deployment | ObjectKind::ReplicaSet, "status.conditions") => ListRule::Keyed("type"),
        (ObjectKind::Deployment | ObjectKind::ReplicaSet, path) => {
            path.strip_prefix("spec.template.").map_or(ListRule::Atomic, |path| list_rule(ObjectKind::Pod, path))
        }
        (ObjectKind::Pod, path) => container_rule(path),
        _ => ListRule::Atomic,
    }
}

fn container_rule(path: &str) -> ListRule {
    let mut parts = path.splitn(3, '.');
    if parts.next() != Some("spec") {
        return ListRule::Atomic;
    }
    if !matches!(parts.next(), Some("containers" | "initContainers" | "ephemeralContainers")) {
        return ListRule::Atomic;
    }
    match parts.next() {
        None | Some("env") => ListRule::Keyed("name"),
        Some("ports") => ListRule::Keyed("containerPort"),
        Some("volumeMounts") => ListRule::Keyed("mountPath"),
        Some("volumeDevices") => ListRule::Keyed("devicePath"),
        Some(_) => ListRule::Atomic,
    }
}

pub(crate) fn apply(kind: ObjectKind, object: &mut Value, patch: &Value) -> Result<(), String> {
    merge(kind, object, patch, "")
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn merge(kind: ObjectKind, target: &mut Value, patch: &Value, path: &str) -> Result<(), String> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match patch.get("$patch").map(|directive| directive.as_str().unwrap_or_default()) {
        Some("replace") => {
            let mut whole = patch.clone();
            whole.remove("$patch");
            *target = Value::Object(whole);
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        None | Some("merge") => {}
        Some(other) => return Err(format!("{path}: $patch: {other:?}: expected replace, merge or delete")),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return Ok(()) };
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let path = child(path, name);
        match value {
            Value::Null => {
                fields.remove(name);
            }
            Value::Array(items) => {
                let list = fields.entry(name.clone()).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(kind, list, items, &path)?;
            }
            value => merge(kind, fields.entry(name.clone()).or_insert(Value::Null), value, &path)?,
        }
    }
    directives(kind, fields, patch, path)
}

fn directives(
    kind: ObjectKind,
    fields: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    path: &str,
) -> Result<(), String> {
    for (name, value) in patch.iter().filter(|(name, _)| name.starts_with('$')) {
        let named = value.as_array().map(Vec::as_slice).unwrap_or_default();
        match name.split_once('/') {
            Some(("$deleteFromPrimitiveList", list)) => {
                if let Some(Value::Array(items)) = fields.get_mut(list) {
                    items.retain(|item| !named.contains(item));
                }
            }
            Some(("$setElementOrder", list)) => {
                if let Some(Value::Array(items)) = fields.get_mut(list) {
                    let rule = list_rule(kind, &child(path, list));
                    items.sort_by_key(|item| {
                        named.iter().position(|order| same(rule, order, item)).unwrap_or(usize::MAX)
                    });
                }
            }
            None if name == "$retainKeys" => {
                fields.retain(|field, _| named.iter().any(|name| name == field));
            }
            None if name == "$patch" => {}
            _ => return Err(format!("{}: there is no such directive", child(path, name))),
        }
    }
    Ok(())
}

fn same(rule: ListRule, left: &Value, right: &Value) -> bool {
    match rule {
        ListRule::Keyed(key) => left.get(key).is_some() && left.get(key) == right.get(key),
        ListRule::Atomic | ListRule::Set => left == right,
    }
}

fn merge_list(kind: ObjectKind, target: &mut Value, items: &[Value], path: &str) -> Result<(), String> {
    let rule = list_rule(kind, path);
    let replaces = |item: &Value| item.get("$patch").is_some_and(|directive| directive == "replace");
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(list) = target else { return Ok(()) };
    if rule == ListRule::Atomic || items.iter().any(replaces) {
        *list = items.iter().filter(|item| !replaces(item)).cloned().collect();
        return Ok(());
    }
    for item in items {
        if let ListRule::Keyed(key) = rule
            && item.get(key).is_none()
        {
            return Err(format!("{path}: {item}: expected the merge key {key:?} in every item"));
        }
        let present = list.iter().position(|present| same(rule, item, present));
        let deletes = item.get("$patch").is_some_and(|directive| directive == "delete");
        match present {
            Some(index) if deletes => {
                list.remove(index);
            }
            None if deletes => {}
            Some(index) => {
                if let Some(present) = list.get_mut(index) {
                    merge(kind, present, item, path)?;
                }
            }
            None => {
                let mut fresh = Value::Null;
                merge(kind, &mut fresh, item, path)?;
                list.push(fresh);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(ports: Value) -> Value {
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"ports": ports, "type": "ClusterIP"}})
    }

    #[test]
    fn each_directive_changes_the_list() {
        let (http, dns) = (json!({"port": 80, "name": "http"}), json!({"port": 53, "name": "dns"}));
        let both = json!([http, dns]);
        for (patch, ports) in [
            (
                json!({"spec": {"ports": [{"port": 80, "nodePort": 30000}]}}),
                json!([{"port": 80, "name": "http", "nodePort": 30000}, dns]),
            ),
            (json!({"spec": {"ports": [{"port": 443}]}}), json!([http, dns, {"port": 443}])),
            (json!({"spec": {"ports": [{"port": 80, "$patch": "delete"}]}}), json!([dns])),
            (json!({"spec": {"ports": [{"$patch": "replace"}, {"port": 1}]}}), json!([{"port": 1}])),
            (json!({"spec": {"ports": null}}), Value::Null),
            (
                json!({"spec": {"$setElementOrder/ports": [{"port": 443}, {"port": 53}, {"port": 80}], "ports": [{"port": 443}]}}),
                json!([{"port": 443}, dns, http]),
            ),
            (
                json!({"spec": {"$retainKeys": ["ports"], "ports": [{"port": 53, "name": null}]}}),
                json!([http, {"port": 53}]),
            ),
        ] {
            let mut object = service(both.clone());
            apply(ObjectKind::Service, &mut object, &patch).unwrap();
            assert_eq!(object["spec"].get("ports").cloned().unwrap_or_default(), ports, "{patch}");
        }
    }

    #[test]
    fn a_null_removes_a_map_entry() {
        let mut object = service(json!([]));
        apply(ObjectKind::Service, &mut object, &json!({"metadata": {"labels": {"a": null, "c": "3"}}})).unwrap();
        assert_eq!(object["metadata"]["labels"], json!({"b": "2", "c": "3"}));
    }

    #[test]
    fn containers_and_ports_merge_by_their_keys() {
        let mut pod = json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1}], "args": ["x"]}]}});
        let patch = json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 2}], "args": ["y"]}]}});
        apply(ObjectKind::Pod, &mut pod, &patch).unwrap();
        let ports = json!([{"containerPort": 1}, {"containerPort": 2}]);
        assert_eq!(pod["spec"]["containers"], json!([{"name": "a", "ports": ports, "args": ["y"]}]));
    }

    #[test]
    fn a_set_adds_and_deletes_values() {
        let mut node = json!({"spec": {"podCIDRs": ["a"]}});
        apply(ObjectKind::Node, &mut node, &json!({"spec": {"podCIDRs": ["b", "a"]}})).unwrap();
        assert_eq!(node["spec"]["podCIDRs"], json!(["a", "b"]));
        apply(ObjectKind::Node, &mut node, &json!({"spec": {"$deleteFromPrimitiveList/podCIDRs": ["a"]}})).unwrap();
        assert_eq!(node["spec"]["podCIDRs"], json!(["b"]));
    }

    #[test]
    fn a_missing_merge_key_or_unknown_directive_is_an_error() {
        let mut object = service(json!([]));
        assert!(apply(ObjectKind::Service, &mut object, &json!({"spec": {"ports": [{"name": "x"}]}})).is_err());
        assert!(apply(ObjectKind::Service, &mut object, &json!({"spec": {"$patch": "burn"}})).is_err());
        assert!(apply(ObjectKind::Service, &mut object, &json!({"spec": {"$frob/ports": []}})).is_err());
    }
}
