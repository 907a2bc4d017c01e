//! Clears fields that only the old type of a Service had, unless the client changed them: a patch of `type` alone must
//! not fail because of fields that the server itself set.

use serde_json::{Map, Value};

fn text<'a>(spec: &'a Value, field: &str) -> &'a str {
    spec[field].as_str().unwrap_or_default()
}

fn is_external(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn is_checked(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn has_policy(spec: &Value) -> bool {
    let external_ips = spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty());
    is_external(spec) || (text(spec, "type") != "ExternalName" && external_ips)
}

fn is_balanced(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer"
}

fn has_cluster_ip(spec: &Value) -> bool {
    text(spec, "type") != "ExternalName"
}

type FieldRule = fn(&Value) -> bool;

const FIELDS: [(&str, FieldRule); 9] = [
    ("clusterIP", has_cluster_ip),
    ("clusterIPs", has_cluster_ip),
    ("ipFamilies", has_cluster_ip),
    ("ipFamilyPolicy", has_cluster_ip),
    ("internalTrafficPolicy", has_cluster_ip),
    ("healthCheckNodePort", is_checked),
    ("allocateLoadBalancerNodePorts", is_balanced),
    ("loadBalancerClass", is_balanced),
    ("externalTrafficPolicy", has_policy),
];

/// Removes fields that only the old type allows and that the update does not change.
pub(super) fn drop_stale(old: &Value, new: &mut Value) {
    let old = &old["spec"];
    let Some(spec) = new.get("spec").cloned() else { return };
    let stale: Vec<&str> = FIELDS
        .iter()
        .filter(|(field, has)| has(old) && !has(&spec) && old.get(field) == spec.get(field))
        .map(|(field, _)| *field)
        .collect();
    let node_ports = |spec: &Value| -> Vec<Value> {
        spec["ports"].as_array().into_iter().flatten().map(|port| port["nodePort"].clone()).collect()
    };
    let clears_node_ports = is_external(old) && !is_external(&spec) && node_ports(old) == node_ports(&spec);
    let Some(Value::Object(fields)) = new.get_mut("spec") else { return };
    fields.retain(|field, _| !stale.contains(&field.as_str()));
    release_second_family(old, fields);
    if clears_node_ports && let Some(Value::Array(ports)) = fields.get_mut("ports") {
        ports.iter_mut().filter_map(Value::as_object_mut).for_each(without_node_port);
    }
}

/// Removes the second family if the update does not change the lists.
fn release_second_family(old: &Value, new: &mut Map<String, Value>) {
    let single = new.get("ipFamilyPolicy").and_then(Value::as_str) == Some("SingleStack");
    if !single || text(old, "ipFamilyPolicy") == "SingleStack" {
        return;
    }
    let lists = ["clusterIPs", "ipFamilies"];
    if lists.iter().all(|list| new.get(*list) == old.get(list)) {
        for list in lists {
            if let Some(Value::Array(values)) = new.get_mut(list) {
                values.truncate(1);
            }
        }
    }
}

fn without_node_port(port: &mut Map<String, Value>) {
    port.remove("nodePort");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_type_change_clears_unchanged_fields_of_the_old_type() {
        let old = json!({"spec": {
            "type": "LoadBalancer", "clusterIP": "10.0.0.1", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001,
            "allocateLoadBalancerNodePorts": true, "ports": [{"port": 80, "nodePort": 30000}],
        }});
        let change = |type_: &str| {
            let mut new = old.clone();
            new["spec"]["type"] = json!(type_);
            drop_stale(&old, &mut new);
            new["spec"].clone()
        };
        assert_eq!(change("ClusterIP"), json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 80}]}));
        assert_eq!(
            change("NodePort"),
            json!({"type": "NodePort", "clusterIP": "10.0.0.1", "externalTrafficPolicy": "Local",
                   "ports": [{"port": 80, "nodePort": 30000}]})
        );
        assert_eq!(change("ExternalName"), json!({"type": "ExternalName", "ports": [{"port": 80}]}));
        let mut asked = old.clone();
        asked["spec"]["type"] = json!("ClusterIP");
        asked["spec"]["ports"][0]["nodePort"] = json!(30005);
        drop_stale(&old, &mut asked);
        assert_eq!(asked["spec"]["ports"][0]["nodePort"], 30005, "a new wish is refused later, not dropped");
    }

    #[test]
    fn a_single_stack_policy_releases_the_second_family() {
        let both = json!({"spec": {
            "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"], "clusterIPs": ["10.0.0.1", "fd00::1"],
        }});
        let mut single = both.clone();
        single["spec"]["ipFamilyPolicy"] = json!("SingleStack");
        drop_stale(&both, &mut single);
        assert_eq!(
            (&single["spec"]["ipFamilies"], &single["spec"]["clusterIPs"]),
            (&json!(["IPv4"]), &json!(["10.0.0.1"]))
        );
        let mut asked = both.clone();
        asked["spec"] = json!({
            "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"], "clusterIPs": ["10.0.0.2", "fd00::1"],
        });
        drop_stale(&both, &mut asked);
        assert_eq!(asked["spec"]["clusterIPs"][0], "10.0.0.2", "a new wish is refused later, not dropped");
    }
}
