use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::support::clusters::{Families, ask, node, out, pod, probe, replied, run, spec};
use crate::support::{SandboxCase, case};
use svclab_cluster::Cluster;
use svclab_cluster::traffic::probe::ProbeAnswer;
use svclab_spec::{Cni, LoadBalancerVip, PodSpec, Protocol, ServerPort, VipMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PATIENCE: Duration = Duration::from_secs(60);

pub const CASES: &[SandboxCase] = &[
    case!(Inside a_vip_reaches_only_healthy_nodes),
    case!(Inside packets_to_a_vip_do_not_loop),
    case!(Inside a_proxy_vip_connects_from_its_own_address),
    case!(Inside invalid_vips_are_rejected),
];

/// The port of the tests' health checks.
const HEALTH: u16 = 30000;

fn vip(address: &str, mode: VipMode) -> LoadBalancerVip {
    LoadBalancerVip {
        address: address.parse().unwrap(),
        mode,
        ports: vec![(Protocol::Tcp, 80, 30080), (Protocol::Udp, 80, 30080)],
        health_check_port: HEALTH,
    }
}

/// Starts a health-check server; the returned number is its status code, which tests change.
async fn health_server(cluster: &Cluster, name: &str, address: IpAddr) -> Arc<AtomicU16> {
    let status = Arc::new(AtomicU16::new(200));
    let listener = cluster.listen(&node(name), SocketAddr::new(address, HEALTH)).await.unwrap();
    let shared = Arc::clone(&status);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let status = shared.load(Ordering::Relaxed);
            let answer = format!("HTTP/1.0 {status} X\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    status
}

async fn healthy_nodes(cluster: &Cluster) -> Vec<Arc<AtomicU16>> {
    let mut statuses = Vec::new();
    for node in cluster.spec().nodes {
        statuses.push(health_server(cluster, &node.name, node.addresses[0]).await);
    }
    statuses
}

async fn translate(cluster: &Cluster, name: &str, vip: &str, to: &str) {
    let tool = if vip.contains(':') { "ip6tables" } else { "iptables" };
    for protocol in ["tcp", "udp"] {
        let rule =
            format!("{tool} -t nat -A PREROUTING -d {vip} -p {protocol} --dport 80 -j DNAT --to-destination {to}");
        run(cluster, node(name), &rule).await;
    }
}

async fn a_vip_reaches_only_healthy_nodes() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::Dual, 2, 2)).await.unwrap();
    for (address, client, pods, nodes) in [
        ("203.0.113.10", "192.168.0.100", ["10.244.1.10:8080", "10.244.2.11:8080"], ["192.168.0.1", "192.168.0.2"]),
        (
            "fd00:203::10",
            "fd00:1::100",
            ["[fd00:244:0:1::10]:8080", "[fd00:244:0:2::11]:8080"],
            ["fd00:1::1", "fd00:1::2"],
        ),
    ] {
        let a = health_server(&cluster, "a", nodes[0].parse().unwrap()).await;
        let b = health_server(&cluster, "b", nodes[1].parse().unwrap()).await;
        translate(&cluster, "a", address, pods[0]).await;
        translate(&cluster, "b", address, pods[1]).await;
        let published = vip(address, VipMode::Vip);
        let ip = published.address;
        cluster.set_vips(vec![published]).await.unwrap();

        let to = SocketAddr::new(ip, 80);
        for (statuses, healthy) in [
            ([200, 200], vec!["a", "b"]),
            ([503, 200], vec!["b"]),
            ([200, 503], vec!["a"]),
            ([503, 503], vec![]),
            ([200, 200], vec!["a", "b"]),
        ] {
            a.store(statuses[0], Ordering::Relaxed);
            b.store(statuses[1], Ordering::Relaxed);
            let healthy: Vec<String> = healthy.into_iter().map(str::to_owned).collect();
            cluster.wait_lb_healthy(ip, &healthy, PATIENCE).await.unwrap();
            assert_eq!(cluster.lb_healthy(ip).unwrap(), healthy);
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let mut one = probe(out(), protocol, to);
                if healthy.is_empty() {
                    one.timeout = Duration::from_millis(300);
                    assert_eq!(cluster.probe(&one).await.unwrap().answer, ProbeAnswer::TimedOut);
                    continue;
                }
                let outcomes = cluster.probe_many(vec![one; 64], 16).await.unwrap();
                let mut servers = BTreeSet::new();
                for outcome in &outcomes {
                    let (server, peer) = replied(outcome);
                    assert_eq!(peer, client.parse::<IpAddr>().unwrap());
                    servers.insert(if server == "default/p0" { "a" } else { "b" });
                }
                // 64 connections miss a node once in 2^63 runs.
                assert_eq!(servers.into_iter().collect::<Vec<_>>(), healthy, "{to} {protocol:?}");
            }
        }
        cluster.set_vips(vec![]).await.unwrap();
        assert!(matches!(ask(&cluster, out(), &to.to_string()).await, ProbeAnswer::Unreachable(_)));
        assert!(cluster.lb_healthy(ip).is_err());
    }
}

async fn packets_to_a_vip_do_not_loop() {
    let cluster = Cluster::build(&spec(Cni::PointToPoint, Families::V4, 2, 2)).await.unwrap();
    healthy_nodes(&cluster).await;
    cluster.set_vips(vec![vip("203.0.113.10", VipMode::Vip)]).await.unwrap();
    let ip = "203.0.113.10".parse().unwrap();
    cluster.check_lb_health(ip).await;
    assert_eq!(cluster.lb_healthy(ip).unwrap(), ["a", "b"]);
    assert_eq!(ask(&cluster, out(), "203.0.113.10:80").await, ProbeAnswer::TimedOut);
}

async fn a_proxy_vip_connects_from_its_own_address() {
    let mut spec = spec(Cni::Bridge, Families::V4, 2, 0);
    for (i, name) in ["a", "b"].into_iter().enumerate() {
        let port = |protocol| ServerPort { protocol, port: 30080 };
        spec.pods.push(PodSpec {
            host_network: true,
            addresses: spec.nodes[i].addresses.clone(),
            ports: vec![port(Protocol::Tcp), port(Protocol::Udp)],
            ..pod(&format!("host-{name}"), name, 0, 0, Families::V4)
        });
    }
    let cluster = Cluster::build(&spec).await.unwrap();
    let statuses = healthy_nodes(&cluster).await;
    let balancer: IpAddr = "192.168.0.200".parse().unwrap();
    let mut ports = BTreeSet::new();
    for address in ["203.0.113.10", "192.168.0.200"] {
        let published = vip(address, VipMode::Proxy);
        let to = SocketAddr::new(published.address, 80);
        cluster.set_vips(vec![published]).await.unwrap();
        cluster.check_lb_health(to.ip()).await;
        for from in [out(), node("a")] {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let one = probe(from.clone(), protocol, to);
                let mut servers = Vec::new();
                for outcome in cluster.probe_many(vec![one; 100], 1).await.unwrap() {
                    let ProbeAnswer::Replied { server, peer, .. } = outcome.answer else { panic!("{outcome:?}") };
                    assert_eq!(peer.ip(), balancer);
                    ports.insert(peer.port());
                    servers.push(server);
                }
                servers.sort();
                let half = ["default/host-a"; 50].into_iter().chain(["default/host-b"; 50]);
                assert!(servers.iter().eq(half), "{to} from {from} {protocol:?}");
            }
        }
    }
    // Of 400 random ports for datagrams two would be equal in 19 of 20 runs.
    assert_eq!(ports.len(), 800, "no two connections share a source port");
    statuses.iter().for_each(|status| status.store(503, Ordering::Relaxed));
    cluster.set_vips(vec![vip("203.0.113.10", VipMode::Proxy)]).await.unwrap();
    cluster.check_lb_health("203.0.113.10".parse().unwrap()).await;
    let broken = ask(&cluster, out(), "203.0.113.10:80").await;
    assert!(matches!(broken, ProbeAnswer::Broken(_)), "no node is healthy: {broken:?}");
    cluster.set_vips(vec![]).await.unwrap();
    assert_eq!(ask(&cluster, out(), "192.168.0.200:80").await, ProbeAnswer::Refused);
}

async fn invalid_vips_are_rejected() {
    let mut without = spec(Cni::Bridge, Families::V4, 1, 0);
    let cluster = Cluster::build(&without).await.unwrap();
    let one = vip("203.0.113.10", VipMode::Vip);
    let error = |result: Result<(), svclab_cluster::ClusterError>| result.unwrap_err().to_string();
    assert_eq!(
        error(cluster.set_vips(vec![one.clone(), one.clone()]).await),
        "load-balancer address 203.0.113.10: is published twice: services that share it must agree on ipMode and healthCheckNodePort"
    );
    assert_eq!(
        error(cluster.set_vips(vec![vip("fd00::1", VipMode::Vip)]).await),
        "load-balancer address fd00::1: the load balancer has no address of that family"
    );
    without.load_balancer = None;
    let cluster = Cluster::build(&without).await.unwrap();
    let none = error(cluster.set_vips(vec![one]).await);
    assert_eq!(none, "there is no load balancer in this cluster");
}
