//! Traffic of service ports in nftables mode, counted by the kernel. Datagrams make the counts exact.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::support::{Proxy, http_get, inside, shell, wait_for, write_file};
use serde_json::json;

fn cluster(version: u32, services: &[&str], endpoints: [&str; 2]) -> String {
    let service = |name: &&str| {
        let number = usize::from(*name != "dns") + 1;
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
                "spec": { "type": "NodePort", "clusterIP": format!("10.96.0.{number}"),
                          "clusterIPs": [format!("10.96.0.{number}"), format!("fd00:96::{number}")],
                          "externalIPs": [format!("198.51.100.{number}")],
                          "ports": [{ "name": "u", "port": 53, "nodePort": 30052 + number, "protocol": "UDP" }] } })
    };
    let slice = |name: &&str, family: &str, endpoint: &str| {
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
                "metadata": { "name": format!("{name}-{}", family.to_lowercase()),
                              "labels": { "kubernetes.io/service-name": name } },
                "endpoints": [{ "addresses": [endpoint] }],
                "ports": [{ "name": "u", "port": 5353, "protocol": "UDP" }] })
    };
    let [v4, v6] = endpoints;
    let of = |name: &&str| [service(name), slice(name, "IPv4", v4), slice(name, "IPv6", v6)];
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-a" },
                       "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" },
                                                 { "type": "InternalIP", "address": "2001:db8::1" }] } });
    let items: Vec<_> = std::iter::once(node).chain(services.iter().flat_map(of)).collect();
    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": version.to_string() }, "items": items })
        .to_string()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Traffic {
    connections: u64,
    original: (u64, u64),
    reply: (u64, u64),
}

fn traffic(family: &str, service: &str) -> Option<Traffic> {
    let metrics = http_get("127.0.0.1:10249", "/metrics").unwrap();
    let value = |name: &str, direction: &str| -> Option<u64> {
        let line = format!(
            "svcproxy_service_{name}_total{{{direction}ip_family=\"{family}\",namespace=\"default\",port=\"u\",protocol=\"udp\",service=\"{service}\"}} "
        );
        metrics.lines().find_map(|known| known.strip_prefix(&line)).map(|value| value.parse().unwrap())
    };
    let of = |way: &str| {
        let direction = format!("direction=\"{way}\",");
        Some((value("packets", &direction)?, value("bytes", &direction)?))
    };
    Some(Traffic { connections: value("connections", "")?, original: of("original")?, reply: of("reply")? })
}

/// Sends `requests` datagrams of ten bytes in one flow; the endpoint answers each with `answers` datagrams of one byte.
fn talk(to: &str, endpoint: &UdpSocket, requests: usize, answers: usize) {
    let to: SocketAddr = to.parse().unwrap();
    let client = UdpSocket::bind((if to.is_ipv4() { "0.0.0.0" } else { "::" }, 0)).unwrap();
    client.connect(to).unwrap();
    for socket in [&client, endpoint] {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    for _ in 0..requests {
        assert_eq!(client.send(&[7; 10]).unwrap(), 10);
        let (_, from) = endpoint.recv_from(&mut [0; 20]).unwrap();
        for _ in 0..answers {
            endpoint.send_to(&[1], from).unwrap();
            assert_eq!(client.recv(&mut [0; 20]).unwrap(), 1);
        }
    }
}

/// The counts of such flows: headers take 28 bytes in IPv4 and 48 in IPv6.
fn expected(family: &str, flows: &[(u64, u64)]) -> Traffic {
    let header = if family == "IPv4" { 28 } else { 48 };
    let requests: u64 = flows.iter().map(|(requests, _)| requests).sum();
    let answers: u64 = flows.iter().map(|(requests, answers)| requests * answers).sum();
    Traffic {
        connections: u64::try_from(flows.len()).unwrap(),
        original: (requests, requests * (10 + header)),
        reply: (answers, answers * (1 + header)),
    }
}

const FIRST: [&str; 2] = ["10.244.1.3", "fd00:244::3"];
const SECOND: [&str; 2] = ["10.244.1.4", "fd00:244::4"];

fn listen(endpoints: [&str; 2]) -> [UdpSocket; 2] {
    endpoints.map(|address| UdpSocket::bind(SocketAddr::new(address.parse().unwrap(), 5353)).unwrap())
}

#[test]
fn the_kernel_counts_each_packet_of_a_service_port_once() {
    if !inside!() {
        return;
    }
    shell("ip addr add 192.0.2.1/24 dev lo && ip addr add 2001:db8::1/64 dev lo nodad");
    for [v4, v6] in [FIRST, SECOND] {
        shell(&format!("ip addr add {v4}/32 dev lo && ip addr add {v6}/128 dev lo nodad"));
    }
    shell("ip route add 10.96.0.0/16 dev lo src 192.0.2.1; ip -6 route add fd00:96::/64 dev lo src 2001:db8::1");
    shell("ip route add 198.51.100.0/24 dev lo src 192.0.2.1");
    let manifests = tempfile::tempdir_in("/run").unwrap();
    let write = |version, services: &[&str], endpoints| {
        write_file(manifests.path(), "cluster.json", &cluster(version, services, endpoints));
    };
    write(1, &["dns", "other"], FIRST);
    let flags =
        ["--manifests", manifests.path().to_str().unwrap(), "--hostname-override=node-a", "--proxy-mode=nftables"];
    let start = |counters: &[&str]| Proxy::start(&[&flags[..], counters].concat());
    let mut proxy = start(&["--service-counters=default/d*"]);
    proxy.synced(Some("1"));
    let both = || ["IPv4", "IPv6"].map(|family| traffic(family, "dns"));
    assert_eq!(both(), [Some(Traffic::default()); 2]);
    let first = listen(FIRST);
    let mut flows = [Vec::new(), Vec::new()];
    let mut call = |endpoints: &[UdpSocket; 2]| {
        for (family, to, requests, answers) in [
            (0, "10.96.0.1:53", 3, 2),
            (0, "192.0.2.1:30053", 2, 1),
            (0, "198.51.100.1:53", 4, 0),
            (1, "[fd00:96::1]:53", 1, 5),
            (1, "[2001:db8::1]:30053", 2, 3),
        ] {
            talk(to, &endpoints[family], requests, answers);
            flows[family].push((requests as u64, answers as u64));
        }
        [Some(expected("IPv4", &flows[0])), Some(expected("IPv6", &flows[1]))]
    };
    let counted = call(&first);
    assert_eq!(both(), counted, "{}", shell("nft list ruleset"));
    // Neither the other service's packets nor those to the endpoint itself.
    talk("10.96.0.2:53", &first[0], 1, 1);
    talk("10.244.1.3:5353", &first[0], 1, 1);
    assert_eq!((both(), traffic("IPv4", "other")), (counted, None));
    assert!(
        http_get("127.0.0.1:10249", "/metrics")
            .unwrap()
            .contains("svcproxy_service_counters_left_out{ip_family=\"IPv4\"} 0")
    );

    // New endpoints, and a restart.
    write(2, &["dns", "other"], SECOND);
    proxy.synced(Some("2"));
    let second = listen(SECOND);
    let counted = call(&second);
    assert_eq!(both(), counted);
    proxy.kill();
    let mut proxy = start(&["--service-counters"]);
    proxy.synced(Some("2"));
    assert_eq!((both(), traffic("IPv4", "other")), (counted, Some(Traffic::default())));
    for family in ["ip", "ip6"] {
        let listed = shell(&format!("nft list table {family} kube-proxy"));
        std::fs::write("/run/listed", listed.replace("kube-proxy", "again")).unwrap();
        shell(&format!("nft -f /run/listed && nft delete table {family} again"));
    }

    // Another program deletes the table.
    shell("nft flush ruleset");
    wait_for("the counters to return", || (both() == [Some(Traffic::default()); 2]).then_some(()));

    write(3, &["other"], SECOND);
    proxy.synced(Some("3"));
    wait_for("the service's counters to go", || (both() == [None; 2]).then_some(()));
    assert_eq!(traffic("IPv4", "other"), Some(Traffic::default()));
    proxy.kill();
    let proxy = start(&[]);
    proxy.synced(Some("3"));
    wait_for("nothing to count", || (!shell("nft list ruleset").contains("count")).then_some(()));
}
