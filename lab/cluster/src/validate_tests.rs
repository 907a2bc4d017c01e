use svclab_spec::{ClientSpec, NodeSpec, Protocol, ServerPort};

use super::*;

fn sound() -> ClusterSpec {
    let node = |name: &str, last: u8| NodeSpec {
        name: name.to_owned(),
        zone: None,
        addresses: vec![IpAddr::from([192, 168, 0, last])],
        extra_addresses: vec![],
        pod_cidrs: vec![format!("10.244.{last}.0/24").parse().unwrap()],
    };
    let http = ServerPort { protocol: Protocol::Tcp, port: 80 };
    let pod = |name: &str, node: &str, address: [u8; 4]| PodSpec {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        node: node.to_owned(),
        addresses: vec![address.into()],
        host_network: false,
        ports: vec![http],
    };
    ClusterSpec {
        cni: Cni::Bridge,
        node_network: vec!["192.168.0.0/24".parse().unwrap()],
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        nodes: vec![node("a", 1), node("b", 2)],
        pods: vec![pod("web", "a", [10, 244, 1, 2]), pod("db", "b", [10, 244, 2, 2])],
        clients: vec![ClientSpec { name: "out".to_owned(), addresses: vec![IpAddr::from([192, 168, 0, 100])] }],
        ..ClusterSpec::default()
    }
}

#[test]
fn a_valid_specification_passes() {
    cluster(&sound()).unwrap();
    let overlapping = vec!["10.244.7.0/24".parse().unwrap()];
    cluster(&ClusterSpec { service_cidrs: overlapping, ..sound() }).unwrap();
}

#[test]
fn an_invalid_specification_names_the_item() {
    type Break = fn(&mut ClusterSpec);
    let cases: [(Break, &str); 14] = [
        (|s| s.nodes[1].name = "a".into(), "node a: the name is used twice"),
        (
            |s| s.nodes[1].addresses = s.nodes[0].addresses.clone(),
            "node b: address 192.168.0.1 already belongs to node a",
        ),
        (
            |s| s.nodes[0].addresses = vec!["10.9.0.1".parse().unwrap()],
            "node a: address 10.9.0.1 is outside the node network",
        ),
        (|s| s.nodes[0].addresses.clear(), "node a: has no address"),
        (
            |s| s.nodes[0].addresses.push("192.168.0.9".parse().unwrap()),
            "node a: has a second IPv4 address, 192.168.0.9",
        ),
        (
            |s| s.nodes[1].pod_cidrs = vec!["10.244.1.128/25".parse().unwrap()],
            "node b: pod range 10.244.1.128/25 overlaps 10.244.1.0/24 of node a",
        ),
        (
            |s| s.nodes[1].pod_cidrs = vec!["10.200.0.0/24".parse().unwrap()],
            "node b: pod range 10.200.0.0/24 is outside the cluster's pod ranges",
        ),
        (
            |s| s.service_cidrs = vec!["192.168.0.0/26".parse().unwrap()],
            "the node network: 192.168.0.0/24 overlaps 192.168.0.0/26 of the service ranges",
        ),
        (|s| s.pods[0].node = "c".into(), "pod default/web: there is no node c"),
        (
            |s| s.pods[0].addresses = vec!["10.244.2.9".parse().unwrap()],
            "pod default/web: address 10.244.2.9 is outside the pod ranges of node a",
        ),
        (
            |s| s.pods[0].addresses = vec!["10.244.1.1".parse().unwrap()],
            "pod default/web: address 10.244.1.1 of range 10.244.1.0/24 is reserved for the node",
        ),
        (
            |s| s.pods[0].host_network = true,
            "pod default/web: is on the host network, but 10.244.1.2 is not an address of node a",
        ),
        (
            |s| s.pods[0].ports.push(ServerPort { protocol: Protocol::Tcp, port: 80 }),
            "pod default/web: Tcp port 80 is already used on pod default/web",
        ),
        (
            |s| s.clients[0].addresses = s.nodes[0].addresses.clone(),
            "client out: address 192.168.0.1 already belongs to node a",
        ),
    ];
    for (fault, message) in cases {
        let mut spec = sound();
        fault(&mut spec);
        assert_eq!(cluster(&spec).unwrap_err().to_string(), message);
    }
}

#[test]
fn host_network_pods_of_a_node_share_its_ports() {
    let mut spec = sound();
    for pod in &mut spec.pods {
        pod.node = "a".into();
        pod.host_network = true;
        pod.addresses = spec.nodes[0].addresses.clone();
    }
    let message = cluster(&spec).unwrap_err().to_string();
    assert_eq!(message, "pod default/db: Tcp port 80 is already used on node a");
}
