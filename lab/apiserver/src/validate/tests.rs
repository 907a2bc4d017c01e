use serde_json::{Value, json};

use super::check;
use crate::objects::Object;

fn service(change: Value) -> Object {
    let mut object = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    json_patch::merge(&mut object, &change);
    Object::Service(Box::new(serde_json::from_value(object).unwrap()))
}

fn slice(change: Value) -> Object {
    let mut object = json!({
        "metadata": {"name": "web-1"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"port": 80}],
    });
    json_patch::merge(&mut object, &change);
    Object::EndpointSlice(Box::new(serde_json::from_value(object).unwrap()))
}

fn fields(object: &Object, before: Option<&Object>) -> Vec<String> {
    check(object, before)
        .into_iter()
        .map(|cause| format!("{} {}", cause.reason.trim_start_matches("FieldValue"), cause.field))
        .collect()
}

#[test]
fn an_invalid_service_names_the_field() {
    for (change, expected) in [
        (json!({}), vec![]),
        (json!({"metadata": {"name": "1web"}}), vec!["Invalid metadata.name"]),
        (json!({"metadata": {"name": "Web"}}), vec!["Invalid metadata.name"]),
        (json!({"metadata": {"name": null}}), vec!["Required metadata.name"]),
        (json!({"metadata": {"labels": {"a b": "x"}}}), vec!["Invalid metadata.labels"]),
        (json!({"metadata": {"labels": {"a": "-x"}}}), vec!["Invalid metadata.labels"]),
        (json!({"spec": {"ports": []}}), vec!["Required spec.ports"]),
        (json!({"spec": {"ports": [], "clusterIP": "None"}}), vec![]),
        (
            json!({"spec": {"ports": [{"port": 0}]}}),
            vec!["Invalid spec.ports[0].port", "Invalid spec.ports[0].targetPort"],
        ),
        (json!({"spec": {"ports": [{"port": 70000, "targetPort": 80}]}}), vec!["Invalid spec.ports[0].port"]),
        (json!({"spec": {"ports": [{"port": 80, "protocol": "ICMP"}]}}), vec!["NotSupported spec.ports[0].protocol"]),
        (json!({"spec": {"ports": [{"port": 80, "targetPort": "a--b"}]}}), vec!["Invalid spec.ports[0].targetPort"]),
        (json!({"spec": {"ports": [{"port": 80, "nodePort": 30000}]}}), vec!["Forbidden spec.ports[0].nodePort"]),
        (
            json!({"spec": {"ports": [{"port": 80}, {"port": 80}]}}),
            vec!["Required spec.ports[0].name", "Required spec.ports[1].name", "Duplicate spec.ports[1]"],
        ),
        (
            json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]}}),
            vec!["Duplicate spec.ports[1].name"],
        ),
        (json!({"spec": {"type": "Magic"}}), vec!["NotSupported spec.type"]),
        (json!({"spec": {"type": "ExternalName"}}), vec!["Required spec.externalName"]),
        (json!({"spec": {"clusterIP": "10.96.0.300"}}), vec!["Invalid spec.clusterIPs[0]"]),
        (json!({"spec": {"externalIPs": ["127.0.0.1"]}}), vec!["Invalid spec.externalIPs[0]"]),
        (json!({"spec": {"sessionAffinity": "Cookie"}}), vec!["NotSupported spec.sessionAffinity"]),
        (
            json!({"spec": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}}),
            vec!["Invalid spec.sessionAffinityConfig.clientIP.timeoutSeconds"],
        ),
        (json!({"spec": {"externalTrafficPolicy": "Local"}}), vec!["Invalid spec.externalTrafficPolicy"]),
        (json!({"spec": {"healthCheckNodePort": 30000}}), vec!["Invalid spec.healthCheckNodePort"]),
        (
            json!({"spec": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/40"]}}),
            vec!["Invalid spec.LoadBalancerSourceRanges[0]"],
        ),
        (
            json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"], "loadBalancerClass": "a"}}),
            vec!["Forbidden spec.LoadBalancerSourceRanges", "Forbidden spec.loadBalancerClass"],
        ),
        (json!({"spec": {"ipFamilies": ["IPv4", "IPv4"]}}), vec!["Duplicate spec.ipFamilies[1]"]),
        (
            json!({"spec": {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "SingleStack"}}),
            vec!["Invalid spec.ipFamilyPolicy"],
        ),
        (
            json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}}),
            vec!["Forbidden status.loadBalancer.ingress"],
        ),
        (
            json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "x", "ipMode": "y"}]}}}),
            vec!["Invalid status.loadBalancer.ingress[0].ip", "NotSupported status.loadBalancer.ingress[0].ipMode"],
        ),
        (json!({"spec": {"trafficDistribution": "Far"}}), vec!["NotSupported spec.trafficDistribution"]),
    ] {
        assert_eq!(fields(&service(change.clone()), None), expected, "{change}");
    }
}

#[test]
fn a_changed_cluster_ip_is_rejected() {
    let with = |ip: &str| service(json!({"spec": {"clusterIP": ip}}));
    assert_eq!(fields(&with("10.96.0.2"), Some(&with("10.96.0.1"))), ["Invalid spec.clusterIPs[0]"]);
    assert!(fields(&with(""), Some(&with("10.96.0.1"))).is_empty());
    assert!(fields(&with("10.96.0.1"), Some(&with("10.96.0.1"))).is_empty());
}

#[test]
fn an_invalid_slice_names_the_field() {
    for (change, expected) in [
        (json!({}), vec![]),
        (json!({"addressType": "IPX"}), vec!["NotSupported addressType"]),
        (json!({"addressType": "IPv6"}), vec!["Invalid endpoints[0].addresses"]),
        (json!({"endpoints": [{"addresses": []}]}), vec!["Required endpoints[0].addresses"]),
        (json!({"endpoints": [{"addresses": ["127.0.0.1"]}]}), vec!["Invalid endpoints[0].addresses[0]"]),
        (json!({"ports": [{"port": 80}, {"port": 81}]}), vec!["Duplicate ports[1].name"]),
        (json!({"ports": [{"port": 0}]}), vec![]),
        (json!({"ports": [{"port": 80, "protocol": "X"}]}), vec!["NotSupported ports[0].protocol"]),
    ] {
        assert_eq!(fields(&slice(change.clone()), None), expected, "{change}");
    }
    let six = slice(json!({"addressType": "IPv6", "endpoints": []}));
    assert_eq!(fields(&six, Some(&slice(json!({})))), ["Invalid addressType"]);
}

#[test]
fn a_changed_pod_spec_is_rejected() {
    let pod = |image: &str, port: u16| {
        let spec = json!({"containers": [{"name": "c", "image": image, "ports": [{"containerPort": port}]}]});
        Object::Pod(Box::new(serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()))
    };
    assert!(fields(&pod("b", 80), Some(&pod("a", 80))).is_empty());
    assert_eq!(fields(&pod("a", 81), Some(&pod("a", 80))), ["Forbidden spec"]);
}
