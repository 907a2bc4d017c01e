//! Node N has 192.168.0.N, its pods have 10.244.N.P; IPv6 is analogous.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use svclab_cluster::Cluster;
use svclab_cluster::process::ExecOutput;
use svclab_cluster::traffic::probe::{ClusterHost, Probe, ProbeAnswer, ProbeOutcome};
use svclab_spec::{ClientSpec, ClusterSpec, Cni, LoadBalancerSpec, NodeSpec, PodSpec, Protocol, ServerPort};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    V4,
    V6,
    Dual,
}

impl Families {
    pub const ALL: [Families; 3] = [Families::V4, Families::V6, Families::Dual];

    pub fn of<T>(self, v4: &str, v6: &str) -> Vec<T>
    where
        T: std::str::FromStr<Err: std::fmt::Debug>,
    {
        let texts = match self {
            Families::V4 => vec![v4],
            Families::V6 => vec![v6],
            Families::Dual => vec![v4, v6],
        };
        texts.into_iter().map(|text| text.parse().unwrap()).collect()
    }
}

pub const PORTS: [ServerPort; 2] =
    [ServerPort { protocol: Protocol::Tcp, port: 8080 }, ServerPort { protocol: Protocol::Udp, port: 8080 }];

/// Nodes `a`, `b`, … with pods in turn (`p0` on `a`, `p1` on `b`, …), a client and a load balancer.
pub fn spec(cni: Cni, families: Families, nodes: u8, pods: u8) -> ClusterSpec {
    let name = |n: u8| char::from(b'a' + n - 1).to_string();
    let node = |n: u8| NodeSpec {
        name: name(n),
        zone: None,
        addresses: families.of(&format!("192.168.0.{n}"), &format!("fd00:1::{n}")),
        extra_addresses: vec![],
        pod_cidrs: families.of(&format!("10.244.{n}.0/24"), &format!("fd00:244:0:{n}::/64")),
    };
    let pod = |p: u8| pod(&format!("p{p}"), &name(p % nodes + 1), p % nodes + 1, 10 + p, families);
    ClusterSpec {
        cni,
        node_network: families.of("192.168.0.0/24", "fd00:1::/64"),
        service_cidrs: families.of("10.96.0.0/16", "fd00:96::/112"),
        cluster_cidrs: families.of("10.244.0.0/16", "fd00:244::/48"),
        nodes: (1..=nodes).map(node).collect(),
        pods: (0..pods).map(pod).collect(),
        clients: vec![ClientSpec { name: "out".to_owned(), addresses: families.of("192.168.0.100", "fd00:1::100") }],
        load_balancer: Some(LoadBalancerSpec { addresses: families.of("192.168.0.200", "fd00:1::200") }),
        ..ClusterSpec::default()
    }
}

pub fn pod(name: &str, node: &str, n: u8, last: u8, families: Families) -> PodSpec {
    PodSpec {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        node: node.to_owned(),
        addresses: families.of(&format!("10.244.{n}.{last}"), &format!("fd00:244:0:{n}::{last}")),
        host_network: false,
        ports: PORTS.to_vec(),
    }
}

pub fn node(name: &str) -> ClusterHost {
    ClusterHost::Node(name.to_owned())
}

pub fn in_pod(name: &str) -> ClusterHost {
    ClusterHost::Pod { namespace: "default".to_owned(), name: name.to_owned() }
}

pub fn out() -> ClusterHost {
    ClusterHost::Client("out".to_owned())
}

pub fn probe(from: ClusterHost, protocol: Protocol, to: SocketAddr) -> Probe {
    let timeout = Duration::from_secs(1);
    Probe { from, to, protocol, source_address: None, source_port: None, bytes: 0, dscp: 0, timeout }
}

pub async fn ask(cluster: &Cluster, from: ClusterHost, to: &str) -> ProbeAnswer {
    let probe = probe(from, Protocol::Tcp, to.parse().unwrap());
    cluster.probe(&probe).await.unwrap().answer
}

pub fn replied(outcome: &ProbeOutcome) -> (&str, IpAddr) {
    match &outcome.answer {
        ProbeAnswer::Replied { server, peer, .. } => (server, peer.ip()),
        other => panic!("{other:?}"),
    }
}

pub async fn run(cluster: &Cluster, place: ClusterHost, line: &str) -> ExecOutput {
    let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let output = cluster.exec(&place, &argv, Duration::from_secs(20)).await.unwrap();
    assert!(output.success(), "{place}: {line}: {output:?}");
    output
}
