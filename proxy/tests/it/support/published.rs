use serde_json::{Value, json};
use svcproxy::cli::render::render_to_string;

pub const PODS: [(&str, &str); 3] =
    [("192.167.2.231", "kube03"), ("192.167.2.206", "kube03"), ("192.167.1.123", "kube02")];

pub fn service(name: &str, ip: &str, mut spec: Value) -> Value {
    spec["clusterIP"] = json!(ip);
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "default" }, "spec": spec,
    })
}

pub fn slice(service: &str, hosts: &[(&str, &str)], protocol: &str) -> Value {
    let endpoints: Vec<Value> =
        hosts.iter().map(|(host, node)| json!({ "addresses": [host], "nodeName": node })).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
        "metadata": { "name": format!("{service}-1"), "namespace": "default",
                      "labels": { "kubernetes.io/service-name": service } },
        "ports": [{ "port": 80, "protocol": protocol }],
    })
}

pub fn node(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
    })
}

/// Three nginx pods behind a cluster IP, a node port and a load balancer, on the node kube01.
pub fn nginx_cluster() -> Vec<Value> {
    let ports = |node_port: u16| json!([{ "port": 80, "nodePort": node_port }]);
    let mut balanced =
        service("my-nginx-loadbalancer", "10.96.98.173", json!({ "type": "LoadBalancer", "ports": ports(30781) }));
    balanced["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "172.35.0.200" }] } });
    vec![
        service("my-nginx-cluster", "10.103.1.234", json!({ "ports": [{ "port": 80 }] })),
        slice("my-nginx-cluster", &PODS, "TCP"),
        balanced,
        slice("my-nginx-loadbalancer", &PODS, "TCP"),
        service("my-nginx-nodeport", "10.97.229.148", json!({ "type": "NodePort", "ports": ports(30915) })),
        slice("my-nginx-nodeport", &PODS, "TCP"),
        node("kube01", "172.35.0.100"),
    ]
}

/// Renders IPv4 unless the flags say otherwise.
pub fn rendered(mode: &str, objects: &[Value], node: &str, more: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    std::fs::write(directory.path().join("objects.json"), list.to_string()).unwrap();
    let mut flags = vec![
        format!("--mode={mode}"),
        format!("--manifests={}", directory.path().display()),
        format!("--hostname-override={node}"),
    ];
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    if !more.iter().any(|flag| flag.starts_with("--ip-family")) {
        flags.push("--ip-family=ipv4".to_owned());
    }
    render_to_string(flags).unwrap()
}
