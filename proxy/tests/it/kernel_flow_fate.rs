//! Established connections whose endpoint is lost, in the kernel.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::support::{Proxy, inside, shell, wait_for, write_file};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// Both ends of a connection.
struct Connection {
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    fn open(to: &str, listener: &TcpListener) -> Connection {
        let client = TcpStream::connect(to).unwrap();
        let (server, _) = listener.accept().unwrap();
        for end in [&client, &server] {
            end.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        let mut connection = Connection { client, server };
        assert!(connection.works());
        connection
    }

    fn works(&mut self) -> bool {
        passes(&mut self.client, &mut self.server) && passes(&mut self.server, &mut self.client)
    }
}

fn passes(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    from.write_all(b"x").is_ok() && to.read(&mut [0]).is_ok_and(|read| read == 1)
}

/// Whether the end learns of a reset after it has sent something.
fn is_reset(end: &mut TcpStream) -> bool {
    let refused = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    let sent = end.write_all(b"x");
    let error = sent.and_then(|()| end.read(&mut [0]).map(drop)).err();
    error.is_some_and(|error| refused.contains(&error.kind()))
}

fn cluster(version: u32, fate: &str, endpoints: &[&str]) -> String {
    let service = |name: &str, number: u8, annotations: Value| {
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "annotations": annotations },
                "spec": { "type": "NodePort", "clusterIPs": [format!("10.96.0.{number}"), format!("fd00:96::{number}")],
                          "clusterIP": format!("10.96.0.{number}"),
                          "ports": [{ "port": 80, "nodePort": 30080 + u16::from(number) }] } })
    };
    let slice = |service: &str, family: &str, endpoints: &[&str]| {
        let is_v4 = family == "IPv4";
        let of_family = endpoints.iter().filter(|endpoint| endpoint.contains('.') == is_v4);
        let endpoints: Vec<Value> = of_family.map(|endpoint| json!({ "addresses": [endpoint] })).collect();
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
                "metadata": { "name": format!("{service}-{}", family.to_lowercase()),
                              "labels": { "kubernetes.io/service-name": service } },
                "endpoints": endpoints, "ports": [{ "port": 8080 }] })
    };
    let all = ["10.244.1.3", "fd00:244::3"];
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-a" },
                       "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" },
                                                 { "type": "InternalIP", "address": "2001:db8::1" }] } });
    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": version.to_string() }, "items": [
        node,
        service("web", 1, json!({ "svcproxy/flow-fate": fate })), service("other", 2, json!({})),
        slice("web", "IPv4", endpoints), slice("web", "IPv6", endpoints), slice("other", "IPv4", &all), slice("other", "IPv6", &all),
    ] })
    .to_string()
}

#[test]
fn connections_of_a_lost_endpoint_are_reset_and_no_others() {
    if inside!() {
        reset_in_mode("nftables", "nft list ruleset");
    }
}

/// In iptables mode the loss shows in conntrack, where no entry is left.
#[test]
fn connections_of_a_lost_endpoint_are_reset_and_no_others_in_iptables_mode() {
    if inside!() {
        reset_in_mode("iptables", "conntrack -L -f ipv4; conntrack -L -f ipv6; iptables-save; ip6tables-save");
    }
}

fn has_drained(mode: &str, family: &str, address: &str) -> bool {
    match mode {
        "nftables" => shell(&format!("nft list set {family} kube-proxy lost-flows")).contains(address),
        _ => {
            let family = if family == "ip" { "ipv4" } else { "ipv6" };
            let entries = shell(&format!("conntrack -L -f {family} -p tcp --orig-dst {address} 2>/dev/null"));
            !entries.contains("ESTABLISHED")
        }
    }
}

fn reset_in_mode(mode: &str, state: &str) {
    shell("ip addr add 192.0.2.1/24 dev lo && ip addr add 2001:db8::1/64 dev lo nodad");
    shell("ip addr add 10.244.1.3/32 dev lo && ip addr add fd00:244::3/128 dev lo nodad");
    shell("ip route add 10.96.0.0/16 dev lo src 192.0.2.1; ip -6 route add fd00:96::/64 dev lo src 2001:db8::1");
    let manifests = tempfile::tempdir_in("/run").unwrap();
    let directory = manifests.path();
    let all = ["10.244.1.3", "fd00:244::3"];
    write_file(directory, "cluster.json", &cluster(1, "reset", &all));
    let flags =
        ["--manifests", directory.to_str().unwrap(), "--hostname-override=node-a", &format!("--proxy-mode={mode}")];
    let mut proxy = Proxy::start(&flags);
    proxy.synced(Some("1"));
    let families = [
        ("10.244.1.3:8080", ["10.96.0.1:80", "192.0.2.1:30081"], "10.96.0.2:80"),
        ("[fd00:244::3]:8080", ["[fd00:96::1]:80", "[2001:db8::1]:30081"], "[fd00:96::2]:80"),
    ];
    let mut kept = Vec::new();
    let mut lost = Vec::new();
    let mut listeners = Vec::new();
    for (endpoint, frontends, other) in families {
        let listener = TcpListener::bind(endpoint.parse::<SocketAddr>().unwrap()).unwrap();
        for frontend in frontends {
            lost.push((Connection::open(frontend, &listener), true));
            lost.push((Connection::open(frontend, &listener), false));
        }
        kept.push(Connection::open(other, &listener));
        kept.push(Connection::open(endpoint, &listener));
        listeners.push((listener, frontends));
    }
    write_file(directory, "cluster.json", &cluster(2, "reset", &[]));
    proxy.synced(Some("2"));
    for (connection, by_client) in &mut lost {
        let end = if *by_client { &mut connection.client } else { &mut connection.server };
        let name = end.peer_addr();
        assert!(is_reset(end), "{name:?} by_client: {by_client}\n{}", shell(state));
    }
    assert!(kept.iter_mut().all(Connection::works), "{}", shell(state));
    // Each other end is reset at its own next packet.
    for (connection, by_client) in &mut lost {
        assert!(is_reset(if *by_client { &mut connection.server } else { &mut connection.client }));
    }
    write_file(directory, "cluster.json", &cluster(3, "drain=5s", &all));
    proxy.synced(Some("3"));
    let mut drained: Vec<Connection> = listeners
        .iter()
        .flat_map(|(listener, frontends)| frontends.iter().map(|frontend| Connection::open(frontend, listener)))
        .collect();
    // A restart finds nothing to change, and connections stay.
    proxy.kill();
    let mut proxy = Proxy::start(&flags);
    proxy.synced(Some("3"));
    assert!(drained.iter_mut().all(Connection::works));
    write_file(directory, "cluster.json", &cluster(4, "drain=5s", &[]));
    proxy.synced(Some("4"));
    assert!(drained.iter_mut().all(Connection::works), "the drain lasts five seconds");
    wait_for("the end of the drain", || has_drained(mode, "ip", "10.96.0.1").then_some(()));
    wait_for("that of IPv6", || has_drained(mode, "ip6", "fd00:96::1").then_some(()));
    assert!(drained.iter_mut().all(|connection| is_reset(&mut connection.client)));
    assert!(kept.iter_mut().all(Connection::works));
    proxy.kill();
}
