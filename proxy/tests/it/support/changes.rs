use proptest::prelude::*;
use serde_json::{Value, json};
use svcproxy::model::Change;
use svcproxy::testing::{key, node, object, slice};

/// A Service created `seconds` after the first.
pub fn service(seconds: Option<u8>, index: u8, spec: Value, ingress: Value) -> Change {
    annotated_service(seconds, index, &json!({}), spec, ingress)
}

fn annotated_service(seconds: Option<u8>, index: u8, annotations: &Value, spec: Value, ingress: Value) -> Change {
    let name = format!("svc-{index}");
    let created = seconds.map(|seconds| format!("2026-01-01T00:00:{seconds:02}Z"));
    let metadata = json!({ "name": name, "creationTimestamp": created, "annotations": annotations });
    let value = json!({ "metadata": metadata, "spec": spec, "status": { "loadBalancer": { "ingress": ingress } } });
    Change::Service(key(&name), Some(object(value)))
}

pub fn any_service() -> impl Strategy<Value = Change> {
    let policy = || prop::sample::select(vec!["Cluster", "Local"]);
    let kind = prop::sample::select(vec!["ClusterIP", "NodePort", "LoadBalancer"]);
    let affinity = prop::sample::select(vec![("None", "none"), ("ClientIP", "none"), ("ClientIP", "all")]);
    let flags = (any::<bool>(), any::<bool>());
    // Services sometimes claim another Service's cluster IP, node ports or address.
    let whose = || prop_oneof![3 => Just(None), 1 => (0u8..4).prop_map(Some)];
    let claims = (prop::option::of(0u8..3), whose(), whose(), whose());
    (0u8..4, kind, policy(), policy(), affinity, flags, claims).prop_map(
        |(
            index,
            kind,
            internal,
            external,
            (affinity, shared),
            (ranges, two),
            (created, cluster_ip, ports, address),
        )| {
            let (of_ports, of_cluster_ip) = (ports.unwrap_or(index), cluster_ip.unwrap_or(index));
            let node_port =
                |offset: u16| if kind == "ClusterIP" { 0 } else { 30_000 + u16::from(of_ports) * 10 + offset };
            let mut ports = vec![json!({ "name": "a", "port": 80, "protocol": "TCP", "nodePort": node_port(0) })];
            if two {
                ports.push(json!({ "name": "b", "port": 53, "protocol": "UDP", "nodePort": node_port(1) }));
            }
            let ingress =
                if kind == "LoadBalancer" { json!([{ "ip": format!("198.51.100.{index}") }]) } else { json!([]) };
            let mut external_ips: Vec<String> =
                address.map(|whose| format!("10.96.0.{}", whose + 1)).into_iter().collect();
            external_ips.extend(two.then(|| "203.0.113.9".to_owned()));
            let spec = json!({
                "type": kind, "clusterIP": format!("10.96.0.{}", of_cluster_ip + 1), "ports": ports,
                "internalTrafficPolicy": internal, "externalTrafficPolicy": external, "sessionAffinity": affinity,
                "externalIPs": external_ips,
                "loadBalancerSourceRanges": if ranges { json!(["192.0.2.0/24"]) } else { json!([]) },
                "healthCheckNodePort": if kind == "LoadBalancer" { 32_000 + i32::from(of_ports) } else { 0 },
            });
            annotated_service(created, index, &json!({ "svcproxy/affinity-across-ports": shared }), spec, ingress)
        },
    )
}

pub fn any_slice() -> impl Strategy<Value = Change> {
    let endpoint = (1u8..6, any::<bool>(), any::<bool>(), any::<bool>(), 0u8..3);
    // Two slices of a Service may have the same endpoints with other ports.
    let ports = prop_oneof![
        3 => Just(json!([{ "name": "a", "port": 8080 }, { "name": "b", "port": 5353, "protocol": "UDP" }])),
        1 => Just(json!([{ "name": "a", "port": 8080 }])),
        1 => Just(json!([{ "name": "a", "port": 8081 }, { "name": "b", "port": 5353, "protocol": "UDP" }])),
    ];
    (0u8..4, 0u8..2, ports, prop::collection::vec(endpoint, 0..4)).prop_map(|(owner, part, ports, endpoints)| {
        let endpoints: Vec<Value> = endpoints
            .into_iter()
            .map(|(host, ready, terminating, here, zone)| {
                json!({
                    "addresses": [format!("10.244.0.{host}")],
                    "conditions": { "ready": ready && !terminating, "serving": ready, "terminating": terminating },
                    "nodeName": if here { "node-a" } else { "node-b" },
                    "hints": if zone == 0 { json!(null) } else { json!({ "forZones": [{ "name": format!("z{zone}") }] }) },
                })
            })
            .collect();
        let name = format!("svc-{owner}-{part}");
        match slice(&format!("svc-{owner}"), json!(endpoints), ports) {
            Change::EndpointSlice(_, object) => Change::EndpointSlice(key(&name), object),
            other => other,
        }
    })
}

pub fn any_node() -> impl Strategy<Value = Change> {
    prop::option::of(1u8..3).prop_map(|zone| {
        let labels = zone.map_or(json!({}), |z| json!({ "topology.kubernetes.io/zone": format!("z{z}") }));
        node("node-a", json!({ "metadata": { "labels": labels } }))
    })
}

/// Any change, mostly of slices; one in five is a deletion.
pub fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => any_service(),
        8 => any_slice(),
        1 => any_node(),
        2 => (0u8..4).prop_map(|i| Change::Service(key(&format!("svc-{i}")), None)),
        2 => (0u8..4, 0u8..2).prop_map(|(i, p)| Change::EndpointSlice(key(&format!("svc-{i}-{p}")), None)),
    ]
}
