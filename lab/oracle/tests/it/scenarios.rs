//! The oracle agrees with files under `scenarios/`, named like the tests. In userspace mode `client` stands for the
//! relaying node.

use serde_json::json;
use svclab_oracle::{DetectLocalMode, Mode, NodePortAddress};

use crate::test_cluster::{PORT, TestCluster, ip, net};

fn everywhere(cluster: &TestCluster, table: &str) {
    in_modes(cluster, &Mode::ALL, table);
}

fn in_modes(cluster: &TestCluster, modes: &[Mode], table: &str) {
    for mode in modes {
        cluster.clone().with(|world| world.proxy.mode = *mode).expect_if_relayed(table);
    }
}

#[test]
fn clusterip() {
    let all = "web-1*1/3>SEEN, web-2*1/3>SEEN, web-3*1/3>SEEN";
    let row = |source: &str, seen: &str| format!("{source} | 10.96.0.1:80 | {}\n", all.replace("SEEN", seen));
    let table = row("pod/caller-a", "client") + &row("node/node-b", "node-b") + &row("client/laptop@node-a", "node-a");
    everywhere(&TestCluster::web("", &["web-1@node-a", "web-2@node-b", "web-3@node-b"]), &table);
    let less = TestCluster::web("", &["web-1@node-a", "web-2@node-b unready", "web-3@node-b"]);
    everywhere(&less, "pod/caller-a | 10.96.0.1:80 | web-1*1/2>client, web-3*1/2>client");
}

#[test]
fn nodeport() {
    everywhere(
        &TestCluster::web("", &["web-1@node-a", "web-2@node-b"]),
        "
        client/laptop@node-a | 172.18.0.2:30080 | web-1*1/2>node-a, web-2*1/2>node-a
        client/laptop@node-c | 172.18.0.4:30080 | web-1*1/2>node-c, web-2*1/2>node-c
        pod/caller-c         | 172.18.0.4:30080 | web-1*1/2>node-c, web-2*1/2>node-c
        node/node-c          | 172.18.0.3:30080 | web-1*1/2>node-b, web-2*1/2>node-b
        ",
    );
}

#[test]
fn external_ip_and_loadbalancer() {
    let table = "
        client/laptop@node-b | 198.51.100.7:80 | web-1*1/2>node-b, web-2*1/2>node-b
        pod/caller-a         | 198.51.100.7:80 | web-1*1/2>node-a, web-2*1/2>node-a
        node/node-a          | 198.51.100.7:80 | web-1*1/2>node-a, web-2*1/2>node-a
        client/laptop@node-b | 203.0.113.1:80  | web-1*1/2>node-b, web-2*1/2>node-b
        pod/caller-a         | 203.0.113.1:80  | web-1*1/2>node-a, web-2*1/2>node-a
    ";
    everywhere(&TestCluster::web("", &["web-1@node-a", "web-2@node-b"]), table);
    let nobody = TestCluster::web("", &["web-1@node-a unready", "web-2@node-b unready"]);
    everywhere(&nobody, "client/laptop@node-b | 198.51.100.7:80 | reject");
}

#[test]
fn local_policy_and_short_circuit() {
    let local = "externalTrafficPolicy: Local";
    everywhere(
        &TestCluster::web(local, &["web-1@node-a", "web-2@node-b"]),
        "
        client/laptop@node-a | 203.0.113.1:80   | web-1*1/1>client
        client/laptop@node-b | 172.18.0.3:30080 | web-2*1/1>client
        client/laptop@node-a | 198.51.100.7:80  | web-1*1/1>client
        client/laptop@node-c | 172.18.0.4:30080 | drop
        client/laptop@node-c | 198.51.100.7:80  | drop
        ",
    );
    everywhere(
        &TestCluster::web(local, &["web-1@node-a"]),
        "
        pod/caller-b | 203.0.113.1:80   | web-1*1/1>client
        pod/caller-b | 198.51.100.7:80  | web-1*1/1>client
        pod/caller-b | 172.18.0.3:30080 | web-1*1/1>client
        node/node-b  | 203.0.113.1:80   | web-1*1/1>node-b
        ",
    );
}

#[test]
fn internal_policy() {
    let cluster = TestCluster::web("internalTrafficPolicy: Local", &["agent-a1@node-a", "agent-a2@node-a"]);
    everywhere(
        &cluster,
        "
        pod/caller-a | 10.96.0.1:80 | agent-a1*1/2>client, agent-a2*1/2>client
        pod/caller-b | 10.96.0.1:80 | drop
        ",
    );
}

#[test]
fn source_ranges_and_shared_vip() {
    let ranges = "loadBalancerSourceRanges: [172.18.0.100/32, 172.18.0.2/32]";
    everywhere(
        &TestCluster::web(ranges, &["web-1@node-a"]),
        "
        client/laptop@node-b   | 203.0.113.1:80   | web-1*1/1>node-b
        client/stranger@node-b | 203.0.113.1:80   | drop
        client/stranger@node-b | 172.18.0.3:30080 | web-1*1/1>node-b
        node/node-a            | 203.0.113.1:80   | web-1*1/1>node-a
        pod/caller-b           | 203.0.113.1:80   | drop
        pod/caller-b           | 10.96.0.1:80     | web-1*1/1>client
        ",
    );
    let spec = |number: u8, last: u8, port: u16| {
        format!(
            "{{type: LoadBalancer, clusterIP: 10.96.0.{number}, loadBalancerSourceRanges: [172.18.0.{last}/32], ports: [{{port: {port}}}]}}"
        )
    };
    let shared = TestCluster::new()
        .balanced("web", &spec(1, 100, 80), json!([{"ip": "203.0.113.7"}]))
        .slice("web", PORT, &["web@node-a"])
        .balanced("mail", &spec(2, 101, 25), json!([{"ip": "203.0.113.7"}]))
        .slice("mail", PORT, &["mail@node-b"]);
    everywhere(
        &shared,
        "
        client/laptop@node-a   | 203.0.113.7:80 | web*1/1>node-a
        client/laptop@node-a   | 203.0.113.7:25 | drop
        client/stranger@node-b | 203.0.113.7:25 | mail*1/1>node-b
        client/stranger@node-b | 203.0.113.7:80 | drop
        ",
    );
}

#[test]
fn hairpin() {
    everywhere(
        &TestCluster::web("", &["web@node-a"]),
        "
        pod/web | 10.96.0.1:80     | web*1/1>node-a
        pod/web | 172.18.0.2:30080 | web*1/1>node-a
        pod/web | 172.18.0.3:30080 | web*1/1>node-b
        pod/web | 198.51.100.7:80  | web*1/1>node-a
        pod/web | 203.0.113.1:80   | web*1/1>node-a
        ",
    );
}

#[test]
fn no_endpoints() {
    everywhere(
        &TestCluster::web("", &[]),
        "
        pod/caller-a         | 10.96.0.1:80     | reject
        node/node-b          | 10.96.0.1:80     | reject
        client/laptop@node-a | 172.18.0.2:30080 | reject
        client/laptop@node-a | 198.51.100.7:80  | reject
        ",
    );
}

#[test]
fn node_ports_addresses_and_localhost() {
    let cluster =
        TestCluster::web("", &["web-1@node-a"]).with(|world| world.nodes[0].addresses.push(ip("172.18.0.50")));
    for entry in [NodePortAddress::Range(net("172.18.0.2/31")), NodePortAddress::Primary] {
        everywhere(
            &cluster.clone().with(|world| world.proxy.node_port_addresses = vec![entry]),
            "
            client/laptop@node-a | 172.18.0.2:30080  | web-1*1/1>node-a
            client/laptop@node-a | 172.18.0.50:30080 | untouched
            ",
        );
    }
    let row = "node/node-a | 127.0.0.1:30080 | web-1*1/1>node-a";
    in_modes(&cluster, &[Mode::Iptables, Mode::Userspace], row);
    in_modes(&cluster, &[Mode::Ipvs], "node/node-a | 127.0.0.1:30080 | untouched");
    let off = cluster.with(|world| world.proxy.localhost_node_ports = false);
    everywhere(&off, "node/node-a | 127.0.0.1:30080 | untouched");
}

#[test]
fn masquerade_all_and_detect_local() {
    let cluster = TestCluster::web("", &["web-1@node-a", "web-2@node-b"]);
    everywhere(
        &cluster.clone().with(|world| world.proxy.masquerade_all = true),
        "pod/caller-a | 10.96.0.1:80 | web-1*1/2>node-a, web-2*1/2>node-a",
    );
    for detect in [DetectLocalMode::NodeCidr, DetectLocalMode::BridgeInterface("cni0".to_owned())] {
        everywhere(
            &cluster.clone().with(|world| world.proxy.detect_local = detect),
            "
            pod/caller-a         | 10.96.0.1:80 | web-1*1/2>client, web-2*1/2>client
            client/laptop@node-a | 10.96.0.1:80 | web-1*1/2>node-a, web-2*1/2>node-a
            ",
        );
    }
}

#[test]
fn terminating() {
    let local = "externalTrafficPolicy: Local";
    let at = |endpoints: &[&str], row: &str| everywhere(&TestCluster::web(local, endpoints), row);
    let one = ["web-1@node-a terminating serving", "web-2@node-b"];
    at(&one, "pod/caller-a | 10.96.0.1:80 | web-2*1/1>client");
    at(&one, "client/laptop@node-a | 172.18.0.2:30080 | web-1*1/1>client");
    let both = ["web-1@node-a terminating serving", "web-2@node-b terminating serving"];
    at(&both, "pod/caller-a | 10.96.0.1:80 | web-1*1/2>client, web-2*1/2>client");
    at(&["web-1@node-a terminating", "web-2@node-b terminating"], "pod/caller-a | 10.96.0.1:80 | reject");
}
