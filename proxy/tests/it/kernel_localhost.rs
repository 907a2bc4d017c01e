use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use crate::support::{Proxy, ask, http_get, inside, serve, shell, svcproxy, wait_for, write_file};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

fn refuses(address: IpAddr, port: u16) -> bool {
    ask((address, port)).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Returns a dual-stack cluster with TCP and UDP node ports.
fn cluster(version: u32, node_port: u16, endpoints: bool) -> String {
    let slice = |family: &str, address: &str| {
        let endpoints: Vec<Value> = endpoints.then(|| json!({ "addresses": [address] })).into_iter().collect();
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
            "metadata": { "name": format!("web-{}", family.to_lowercase()), "namespace": "default",
                          "labels": { "kubernetes.io/service-name": "web" } },
            "endpoints": endpoints,
            "ports": [{ "name": "t", "port": 8080 }, { "name": "u", "port": 8080, "protocol": "UDP" }] })
    };
    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": version.to_string() }, "items": [
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "default" },
          "spec": { "type": "NodePort", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00:96::1"],
                    "ports": [{ "name": "t", "port": 80, "nodePort": node_port },
                              { "name": "u", "port": 80, "nodePort": 30053, "protocol": "UDP" }] } },
        slice("IPv4", "10.244.1.3"), slice("IPv6", "fd00:244::3"),
    ] })
    .to_string()
}

fn write(directory: &std::path::Path, text: &str) {
    write_file(directory, "cluster.json", text);
}

fn metric(line: &str) -> Option<u64> {
    let metrics = http_get("127.0.0.1:10249", "/metrics").unwrap();
    let value = metrics.lines().find_map(|known| known.strip_prefix(line)?.strip_prefix(' '))?;
    Some(value.parse().unwrap())
}

/// Whether a datagram is refused, which the next call reports.
fn datagram_refused(to: SocketAddr) -> bool {
    let from = UdpSocket::bind((if to.is_ipv4() { "127.0.0.1" } else { "::1" }, 0)).unwrap();
    from.connect(to).unwrap();
    from.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    from.send(b"x").unwrap();
    from.recv(&mut [0; 8]).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

#[test]
fn node_ports_are_relayed_on_loopback_addresses() {
    if !inside!() {
        return;
    }
    shell(
        "ip addr add 192.0.2.1/24 dev lo && ip addr add 10.244.1.3/32 dev lo && ip addr add fd00:244::3/128 dev lo nodad",
    );
    shell("ip route add default via 192.0.2.9 dev lo");
    for address in ["10.244.1.3:8080", "[fd00:244::3]:8080"] {
        serve(address, |stream| stream.local_addr().unwrap().ip().to_string());
    }
    let manifests = tempfile::tempdir_in("/run").unwrap();
    write(manifests.path(), &cluster(1, 30080, true));
    let flags = |addresses: &str| {
        vec![
            "--manifests".to_owned(),
            manifests.path().to_str().unwrap().to_owned(),
            "--hostname-override=node-a".to_owned(),
            "--proxy-mode=nftables".to_owned(),
            format!("--nodeport-addresses={addresses}"),
        ]
    };
    let start = |addresses: &str| {
        let flags = flags(addresses);
        Proxy::start(&flags.iter().map(String::as_str).collect::<Vec<_>>())
    };
    // Another program listens on one of the TCP ports for a while, and on the UDP port.
    let taken = TcpListener::bind((V6, 30080)).unwrap();
    let datagrams = UdpSocket::bind((V4, 30053)).unwrap();
    let mut proxy = start("primary,localhost");
    proxy.synced(Some("1"));
    assert_eq!(ask((V4, 30080)).unwrap(), "10.244.1.3");
    assert!(refuses("127.0.0.2".parse().unwrap(), 30080), "the relay has one address");
    assert_eq!(ask("192.0.2.1:30080").unwrap(), "10.244.1.3", "by rules");
    assert_eq!(shell("cat /proc/sys/net/ipv4/conf/all/route_localnet").trim(), "0");
    let listeners = "kubeproxy_nftables_localhost_nodeport_listeners";
    let of = |family: &str| metric(&format!("{listeners}{{ip_family=\"{family}\"}}"));
    assert_eq!((of("IPv4"), of("IPv6")), (Some(1), Some(0)));
    let failures = "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total{ip_family=\"IPv6\"}";
    assert!(metric(failures).unwrap() >= 1);
    drop(taken);
    wait_for("the port that was taken", || ask((V6, 30080)).ok().filter(|answer| answer == "fd00:244::3"));

    // Datagrams are refused and counted, although another program listens.
    let rejected = |family: &str| {
        metric(&format!(
            "kubeproxy_nftables_localhost_nodeport_rejected_packets_total{{ip_family=\"{family}\",protocol=\"UDP\"}}"
        ))
    };
    assert_eq!(rejected("IPv4"), Some(0));
    for to in [(V4, 30053), (V6, 30053), ("127.0.0.9".parse().unwrap(), 30053)] {
        assert!(datagram_refused(to.into()), "{to:?}");
    }
    assert_eq!((rejected("IPv4"), rejected("IPv6")), (Some(2), Some(1)));
    datagrams.set_nonblocking(true).unwrap();
    assert_eq!(datagrams.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);

    write(manifests.path(), &cluster(2, 30080, false));
    proxy.synced(Some("2"));
    assert!(refuses(V4, 30080) && refuses(V6, 30080));
    write(manifests.path(), &cluster(3, 30081, true));
    proxy.synced(Some("3"));
    assert_eq!(
        (ask((V4, 30081)).unwrap(), ask((V6, 30081)).unwrap()),
        ("10.244.1.3".to_owned(), "fd00:244::3".to_owned())
    );
    assert!(refuses(V4, 30080) && refuses(V6, 30080));

    let listing = shell("nft list table ip kube-proxy");
    assert!(listing.contains("map localhost-nodeports"), "{listing}");
    std::fs::write("/run/listing.nft", format!("delete table ip kube-proxy\n{listing}")).unwrap();
    shell("nft -f /run/listing.nft");

    // A signal ends the listeners; another start opens them again, except without a matching range.
    kill(Pid::from_raw(proxy.0.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert!(proxy.0.wait().unwrap().success());
    assert!(refuses(V4, 30081) && refuses(V6, 30081));
    let mut proxy = start("127.0.0.1/32");
    proxy.synced(Some("3"));
    assert_eq!(ask((V4, 30081)).unwrap(), "10.244.1.3");
    assert!(refuses(V6, 30081), "no range of this family's");
    proxy.kill();
    let mut proxy = start("primary");
    proxy.synced(Some("3"));
    assert!(refuses(V4, 30081) && refuses(V6, 30081));
    assert_eq!(of("IPv4"), None);
    // Unused chains stay for a second.
    wait_for("the chains to go", || {
        (!shell("nft list table ip kube-proxy").contains("reject-localhost")).then_some(())
    });
    proxy.kill();
    assert!(svcproxy(&["--cleanup"]).status.success());
}

#[test]
fn render_prints_the_targets_of_relays() {
    let manifests = tempfile::tempdir().unwrap();
    write(manifests.path(), &cluster(1, 30080, true));
    let flags = |addresses: &str| {
        let directory = manifests.path().to_str().unwrap();
        let output = svcproxy(&[
            "render",
            "--manifests",
            directory,
            "--hostname-override=node-a",
            "--proxy-mode=nftables",
            &format!("--nodeport-addresses={addresses}"),
            "--ip-family=ipv6",
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = flags("localhost");
    assert!(text.contains("# relay tcp [::1]:30080 default/web:t to [fd00:244::3]:8080\n"), "{text}");
    assert!(text.contains("udp . 30053 : goto reject-localhost-udp"), "{text}");
    assert!(text.contains("ip6 daddr ::1 meta l4proto . th dport vmap @localhost-nodeports"), "{text}");
    let text = flags("primary");
    assert!(!text.contains("# relay") && !text.contains("reject-localhost"), "{text}");
}
