//! Invalid objects do not make the oracle panic.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use svclab_oracle::{ClusterModel, DetectLocalMode, Mode, NodePortAddress, PromisedVerdict};

use crate::test_cluster::{TestCluster, net, question};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => "\\PC{0,12}",
        1 => prop::sample::select(vec![
            "", "None", "10.96.0.1", "10.96.0.1/32", "0.0.0.0/0", "::/0", "fd00:96::1", "127.0.0.1", "172.18.0.2", "256.1.1.1",
            "1.2.3", "::ffff:10.96.0.1", "10.244.1.5", "TCP", "UDP", "Local", "ClientIP", "LoadBalancer", "NodePort",
            "ExternalName", "Proxy", "VIP", "IPv4", "web", "node-a", "zone-a",
        ]).prop_map(str::to_owned),
    ]
}

fn number() -> impl Strategy<Value = i32> {
    prop_oneof![Just(80), Just(30080), Just(0), Just(-1), Just(65_536), any::<i32>()]
}

fn maybe<S: Strategy>(of: S) -> impl Strategy<Value = Value>
where
    S::Value: serde::Serialize,
{
    option::weighted(0.7, of).prop_map(|value| json!(value))
}

prop_compose! {
    fn service()(
        kind in maybe(text()), ips in maybe(vec(text(), 0..3)), ip in maybe(text()), external in maybe(vec(text(), 0..3)),
        policies in (maybe(text()), maybe(text()), maybe(text())), ranges in maybe(vec(text(), 0..3)),
        ports in vec((number(), maybe(number()), maybe(text()), maybe(text())), 0..3), timeout in maybe(number()),
        ingress in vec((maybe(text()), maybe(text())), 0..3), label in option::weighted(0.1, text()), health in maybe(number()),
    ) -> Service {
        let ports: Vec<Value> = ports.into_iter().map(|(port, node_port, protocol, name)| {
            json!({"port": port, "nodePort": node_port, "protocol": protocol, "name": name})
        }).collect();
        let ingress: Vec<Value> = ingress.into_iter().map(|(ip, mode)| json!({"ip": ip, "ipMode": mode})).collect();
        let labels = label.map(|value| json!({"service.kubernetes.io/service-proxy-name": value}));
        serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": "web", "labels": labels},
            "spec": {
                "type": kind, "clusterIPs": ips, "clusterIP": ip, "externalIPs": external, "ports": ports,
                "internalTrafficPolicy": policies.0, "externalTrafficPolicy": policies.1, "sessionAffinity": policies.2,
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": timeout}},
                "loadBalancerSourceRanges": ranges, "healthCheckNodePort": health,
            },
            "status": {"loadBalancer": {"ingress": ingress}},
        })).unwrap()
    }
}

prop_compose! {
    fn slice()(
        family in text(), ports in maybe(vec((maybe(number()), maybe(text()), maybe(text())), 0..3)),
        endpoints in vec((vec(text(), 0..3), any::<[Option<bool>; 3]>(), maybe(text()), maybe(vec(text(), 0..3))), 0..4),
    ) -> EndpointSlice {
        let ports = ports.as_array().map(|ports| ports.iter().map(|port| {
            json!({"port": port[0], "name": port[1], "protocol": port[2]})
        }).collect::<Vec<_>>());
        let endpoints: Vec<Value> = endpoints.into_iter().map(|(addresses, [ready, serving, terminating], node, hints)| {
            let hints = hints.as_array().map(|names| names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>());
            json!({
                "addresses": addresses, "nodeName": node, "hints": {"forZones": hints, "forNodes": hints},
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
            })
        }).collect();
        serde_json::from_value(json!({
            "metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": family, "ports": ports, "endpoints": endpoints,
        })).unwrap()
    }
}

const SOURCES: [&str; 8] = [
    "pod/caller-a",
    "pod/nobody",
    "node/node-a",
    "node/nowhere",
    "loopback/node-a",
    "client/laptop@node-a",
    "client/nobody@nowhere",
    "lb@node-b",
];
const DESTINATIONS: [&str; 8] = [
    "10.96.0.1:80",
    "[fd00:96::1]:80",
    "172.18.0.2:30080",
    "127.0.0.1:30080",
    "[::1]:30080",
    "0.0.0.0:0",
    "255.255.255.255:65535/UDP",
    "10.244.1.5:80/SCTP",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn invalid_objects_get_an_answer(
        services in vec(service(), 0..3), slices in vec(slice(), 0..3), mode in prop::sample::select(Mode::ALL.to_vec()),
        detect in prop::sample::select(vec![
            DetectLocalMode::Off, DetectLocalMode::NodeCidr, DetectLocalMode::ClusterCidr(vec![net("0.0.0.0/0")]),
            DetectLocalMode::BridgeInterface(String::new()), DetectLocalMode::InterfaceNamePrefix(String::new()),
        ]),
        entries in vec(prop::sample::select(vec![NodePortAddress::Primary, NodePortAddress::Localhost, NodePortAddress::Range(net("::/0"))]), 0..2),
    ) {
        let mut cluster = TestCluster::new();
        cluster.objects.services = services;
        cluster.objects.slices = slices;
        cluster.world.proxy.mode = mode;
        cluster.world.proxy.detect_local = detect;
        cluster.world.proxy.node_port_addresses = entries;
        let cluster = ClusterModel { objects: cluster.objects, world: cluster.world };
        let written = SOURCES.iter().flat_map(|from| DESTINATIONS.iter().map(move |to| question(from, to)));
        for (number, question) in written.chain(cluster.questions().into_iter().take(50)).enumerate() {
            let promise = cluster.oracle().ask(&question);
            prop_assert!(!promise.because.is_empty(), "{question}");
            if let PromisedVerdict::Deliver(delivery) = &promise.verdict {
                prop_assert!(!delivery.backends.is_empty());
            }
            if number % 16 == 0 {
                prop_assert!(cluster.scenario_yaml("odd", &question).ends_with('\n'));
            }
        }
        for node in ["node-a", "nowhere"] {
            let _ = svclab_oracle::health_checks(&cluster.objects, node);
        }
    }
}
