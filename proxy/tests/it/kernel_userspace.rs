//! Userspace mode: rules of both writers, and real connections.

use std::net::{Ipv4Addr, SocketAddr};

use crate::support::{
    Proxy, WRITERS, ask, changes_of_every_kind, cluster_cidrs, dump, http_get, inside, serve, shell, svcproxy,
    without_guard, write_file,
};
use serde_json::json;
use svcproxy::config::{Config, DetectLocal, Mode, NodeAddresses, NodePortAddresses};
use svcproxy::kernel::writer::IptablesWriter;
use svcproxy::mode::assemble;
use svcproxy::model::Family;
use svcproxy::relay;

#[test]
fn a_second_synchronisation_sends_nothing() {
    if !inside!() {
        return;
    }
    let changes = changes_of_every_kind(&[2, 3, 4, 5, 6, 7, 8]);
    let base = Config { mode: Mode::Userspace, ..Config::for_node("node-a") };
    let configs = [
        Config { detect_local: cluster_cidrs(), ..base.clone() },
        Config { detect_local: DetectLocal::BridgeInterface("cni0".into()), tcp_be_liberal: true, ..base.clone() },
        Config { localhost_node_ports: false, ..base.clone() },
        Config {
            node_port_addresses: NodePortAddresses::Ranges(vec![
                "192.0.2.0/24".parse().unwrap(),
                "fd00:c::/64".parse().unwrap(),
            ]),
            ..base
        },
    ];
    for (variant, writer) in WRITERS {
        for family in Family::ALL {
            for config in &configs {
                let sync = || {
                    let tables = IptablesWriter::open(family, variant, writer).unwrap().writer;
                    let mut proxy = assemble::userspace(config, family, tables, relay::FakeRelays::default());
                    let local = ["192.0.2.1", "fd00:c::1"].map(|text| text.parse().unwrap());
                    proxy.set_addresses(&NodeAddresses { local: local.to_vec(), ..NodeAddresses::default() });
                    proxy.apply(&changes);
                    let report = proxy.sync().unwrap();
                    (report, proxy.mode().relays().listening.clone())
                };
                let (first, ports) = sync();
                assert!(first.full && !first.is_empty(), "{variant:?} {family} {config:?}");
                let (second, same) = sync();
                assert!(second.full && second.is_empty(), "{variant:?} {family} {config:?}: {second:?}");
                assert_eq!(ports, same);
            }
        }
    }
}

fn objects(version: u32, hosts: &[&str]) -> String {
    let endpoints: Vec<_> = hosts.iter().map(|host| json!({ "addresses": [host], "nodeName": "node-a" })).collect();
    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": version.to_string() }, "items": [
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "default" },
          "spec": { "type": "NodePort", "clusterIP": "10.96.0.1", "ports": [{ "port": 80, "nodePort": 30080 }] } },
        { "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
          "metadata": { "name": "web-1", "namespace": "default", "labels": { "kubernetes.io/service-name": "web" } },
          "endpoints": endpoints, "ports": [{ "port": 8080 }] },
    ] })
    .to_string()
}

fn write(directory: &std::path::Path, text: &str) {
    write_file(directory, "cluster.json", text);
}

#[test]
fn connections_are_relayed_and_a_restart_takes_the_same_ports() {
    if !inside!() {
        return;
    }
    shell("ip addr add 10.244.1.2/32 dev lo && ip addr add 10.244.1.3/32 dev lo && ip addr add 192.0.2.1/24 dev lo");
    shell("ip route add default via 192.0.2.9 dev lo");
    serve("10.244.1.3:8080", |stream| stream.peer_addr().unwrap().ip().to_string());
    let manifests = tempfile::tempdir_in("/run").unwrap();
    // The first endpoint refuses connections.
    write(manifests.path(), &objects(1, &["10.244.1.2", "10.244.1.3"]));
    let directory = manifests.path().to_str().unwrap();
    let flags = [
        "--manifests",
        directory,
        "--hostname-override=node-a",
        "--proxy-mode=userspace",
        "--proxy-port-range=4000-4009",
        "--iptables-min-sync-period=10ms",
    ];
    let mut proxy = Proxy::start(&flags);
    proxy.synced(Some("1"));
    let cluster_ip: SocketAddr = "10.96.0.1:80".parse().unwrap();
    let node_ports: [SocketAddr; 2] = ["192.0.2.1:30080".parse().unwrap(), "127.0.0.1:30080".parse().unwrap()];
    for address in [cluster_ip, node_ports[0], node_ports[1], cluster_ip] {
        assert_eq!(ask(address).unwrap(), "10.244.1.3", "{address}: the relay's address on this device");
    }
    let rules = dump("nft");
    let port: u16 = rules.split_once("--to-ports ").unwrap().1.split_whitespace().next().unwrap().parse().unwrap();
    assert!((4000..=4009).contains(&port));
    let direct = ask((Ipv4Addr::LOCALHOST, port)).unwrap_err();
    assert_eq!(direct.kind(), std::io::ErrorKind::ConnectionRefused, "no connection gets there past the rules");
    let metrics = http_get("127.0.0.1:10249", "/metrics").unwrap();
    let has = |line: &str| assert!(metrics.lines().any(|known| known.starts_with(line)), "{line}\n{metrics}");
    has("svcproxy_userspace_listeners{ip_family=\"IPv4\"} 1");
    has("svcproxy_userspace_connections_total{ip_family=\"IPv4\",protocol=\"tcp\"} 4");
    has("svcproxy_userspace_retries_total{ip_family=\"IPv4\",reason=\"refused\"} ");
    proxy.kill();
    assert_eq!(ask(cluster_ip).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    let mut proxy = Proxy::start(&flags);
    proxy.synced(Some("1"));
    assert_eq!(dump("nft"), rules);
    assert_eq!(ask(cluster_ip).unwrap(), "10.244.1.3");
    // Another mode deletes these rules once its own exist, and vice versa.
    proxy.kill();
    let iptables: Vec<&str> = flags.iter().map(|flag| flag.replace("userspace", "iptables").leak() as &str).collect();
    let mut other = Proxy::start(&iptables);
    other.synced(Some("1"));
    assert!(!dump("nft").contains("KUBE-PORTALS") && !dump("nft").contains("KUBE-NODEPORT-"), "{}", dump("nft"));
    other.kill();
    let mut proxy = Proxy::start(&flags);
    proxy.synced(Some("1"));
    assert_eq!(without_guard(&dump("nft")), without_guard(&rules));
    write(manifests.path(), &objects(2, &[]));
    proxy.synced(Some("2"));
    assert!(dump("nft").contains("default/web has no endpoints"));
    proxy.kill();
    assert!(svcproxy(&["--cleanup"]).status.success());
    let left = dump("nft");
    assert!(!without_guard(&left).iter().any(|line| line.contains("KUBE-")), "{left}");
}
