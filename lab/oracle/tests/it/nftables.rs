//! Differences of nftables mode, as `docs/limitations.md` lists them.

use serde_json::json;
use svclab_oracle::{Mode, NodePortAddress};

use crate::test_cluster::{TestCluster, net};

fn cluster(protocol: &str) -> TestCluster {
    let spec = format!(
        "{{type: NodePort, clusterIP: 10.96.0.1, externalIPs: [198.51.100.7], ports: [{{port: 80, protocol: {protocol}, nodePort: 30080}}]}}"
    );
    TestCluster::new()
        .service("web", &spec)
        .slice("web", &format!("[{{port: 8080, protocol: {protocol}}}]"), &["x@node-a", "y@node-b"])
        .with(|world| world.proxy.mode = Mode::Nftables)
}

#[test]
fn other_ports_of_cluster_ips_reject() {
    cluster("TCP").expect(
        "
        pod/caller-a         | 10.96.0.1:80     | x*1/2>client, y*1/2>client
        pod/caller-a         | 10.96.0.1:81     | reject    | other-port-of-cluster-ip
        node/node-a          | 10.96.0.1:80/UDP | reject    | other-port-of-cluster-ip
        client/laptop@node-a | 10.96.0.1:81     | reject
        # An external address is not the cluster's own.
        pod/caller-a         | 198.51.100.7:81  | untouched
        # Without ServiceCIDRs an unused address is not known as one.
        pod/caller-a         | 10.96.0.2:80     | untouched
        ",
    );
}

#[test]
fn unused_addresses_of_service_cidrs_are_dropped() {
    let mut cluster = cluster("TCP").labelled(
        "other",
        json!({"service.kubernetes.io/service-proxy-name": "another"}),
        "{clusterIP: 10.96.0.9, ports: [{port: 80}]}",
        json!([]),
    );
    let object = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}});
    cluster.objects.service_cidrs = vec![serde_json::from_value(object).unwrap()];
    cluster.expect(
        "
        pod/caller-a         | 10.96.0.1:80             | x*1/2>client, y*1/2>client
        pod/caller-a         | 10.96.0.1:81             | reject    | other-port-of-cluster-ip
        pod/caller-a         | 10.96.0.2:80             | drop      | unused-cluster-ip
        node/node-b          | 10.96.255.255:53/UDP     | drop      | unused-cluster-ip
        client/laptop@node-a | [fd00:10:96::2]:80       | drop      | unused-cluster-ip
        pod/caller-a         | 10.97.0.1:80             | untouched
        # A cluster IP of a service that another proxy handles.
        pod/caller-a         | 10.96.0.9:80             | undefined
        ",
    );
    cluster.with(|world| world.proxy.mode = Mode::Iptables).expect("pod/caller-a | 10.96.0.2:80 | untouched");
}

#[test]
fn node_ports_answer_on_primary_addresses_and_relays_on_loopback_ones() {
    cluster("TCP").expect(
        "
        client/laptop@node-a | 172.18.0.2:30080  | x*1/2>node-a, y*1/2>node-a
        pod/caller-a         | 10.244.1.1:30080  | untouched
        loopback/node-a      | 127.0.0.1:30080   | untouched
        ",
    );
    let loopback = |protocol: &str| {
        cluster(protocol).with(|world| {
            let ranges = ["172.18.0.0/24", "127.0.0.0/8"].map(net).map(NodePortAddress::Range);
            world.proxy.node_port_addresses = ranges.into();
        })
    };
    loopback("TCP").expect(
        "
        client/laptop@node-a | 172.18.0.2:30080  | x*1/2>node-a, y*1/2>node-a
        loopback/node-a      | 127.0.0.1:30080   | x*1/2>node-a, y*1/2>node-a | localhost-listeners
        loopback/node-a      | 127.0.0.2:30080   | untouched
        client/laptop@node-a | 127.0.0.1:30080   | drop                       | martian
        ",
    );
    for protocol in ["UDP", "SCTP"] {
        let row = format!("loopback/node-a | 127.0.0.1:30080/{protocol} | reject | not-relayed");
        loopback(protocol).expect(&row);
    }
}
