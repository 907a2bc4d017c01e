//! Interfaces that are down, isolated bridge ports, forwarding per interface, routes with tunnels, IPsec.

use svclab_sim::host::{
    HostBuilder, HostInterface, InterfaceSysctls, IpsecDirection, IpsecPolicy, LinkState, Route, Sysctls,
};
use svclab_sim::network::{Flow, Network};
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::render;
use svclab_sim::rules::Rules;

use crate::support::{at, id, ip, net};
use svclab_sim::host::Host;

const SERVICE: &str =
    "*nat\n-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.128.0.10:8080\nCOMMIT\n";

/// A node with an uplink and a bridge, a pod on each of two ports, and a client on the uplink.
struct Node {
    interfaces: [HostInterface; 4],
    sysctls: Sysctls,
}

impl Node {
    fn new() -> Node {
        let port = |name: &str| HostInterface::new(name).port_of("cni0", false);
        let eth0 = HostInterface::new("eth0").address(ip("192.0.2.1"), 24).address(ip("fd00:2::1"), 64);
        let cni0 = HostInterface::new("cni0").address(ip("10.128.0.1"), 24).address(ip("fd00:1::1"), 64);
        Node { interfaces: [eth0, cni0, port("vp1"), port("vp2")], sysctls: Sysctls::node() }
    }

    fn with(name: &str, change: impl FnOnce(HostInterface) -> HostInterface) -> Node {
        let mut node = Node::new();
        let at = node.interfaces.iter().position(|one| one.name == name).unwrap();
        node.interfaces[at] = change(node.interfaces[at].clone());
        node
    }

    fn build(&self, more: impl FnOnce(HostBuilder) -> HostBuilder) -> Network {
        let host = self.interfaces.iter().cloned().fold(Host::builder("node"), HostBuilder::interface);
        let host = host.sysctls(self.sysctls).rules(Rules::read(Family::V4, SERVICE).unwrap());
        let mut network = Network::new();
        let node = network.add(more(host).build().unwrap());
        let far = |name: &str, own: &[(&str, u8)], gateways: [&str; 2]| {
            let eth0 =
                own.iter().fold(HostInterface::new("eth0"), |eth0, (own, length)| eth0.address(ip(own), *length));
            Host::builder(name)
                .interface(eth0)
                .route(Route::via(net("0.0.0.0/0"), ip(gateways[0]), "eth0"))
                .route(Route::via(net("::/0"), ip(gateways[1]), "eth0"))
                .listen(Protocol::TCP, 8080)
        };
        let pod = |name: &str, v4: &str, v6: &str| far(name, &[(v4, 24), (v6, 64)], ["10.128.0.1", "fd00:1::1"]);
        let client = far("client", &[("192.0.2.7", 24), ("fd00:2::7", 64)], ["192.0.2.1", "fd00:2::1"]);
        let [p1, p2, client] = [pod("p1", "10.128.0.10", "fd00:1::10"), pod("p2", "10.128.0.11", "fd00:1::11"), client]
            .map(|host| network.add(host.build().unwrap()));
        network.link(&[(node, "vp1"), (p1, "eth0")]).unwrap();
        network.link(&[(node, "vp2"), (p2, "eth0")]).unwrap();
        network.link(&[(node, "eth0"), (client, "eth0")]).unwrap();
        network
    }

    fn call(&self, from: &str, to: &str) -> String {
        call(&self.build(|host| host), from, to)
    }
}

fn call(network: &Network, from: &str, to: &str) -> String {
    match network.outcomes(&Flow::tcp(id(network, from), at(to))) {
        Ok(found) => render::verdict(network, found.certain().unwrap()),
        Err(error) => error.to_string(),
    }
}

const CALLED: &str = "10.96.0.1:80";

#[test]
fn an_interface_that_is_down_loses_packets() {
    let state = |name: &str, state| Node::with(name, |interface| interface.state(state));
    assert_eq!(Node::new().call("p2", CALLED), "p1 answers at 10.128.0.10:8080 and sees 10.128.0.11");
    let port = state("vp1", LinkState::Down);
    assert_eq!(port.call("p2", CALLED), "lost on node: interface vp1 is down");
    assert_eq!(port.call("client", CALLED), "lost on node: interface vp1 is down");
    assert_eq!(port.call("node", "10.128.0.10:8080"), "lost on node: interface vp1 is down");
    assert_eq!(port.call("p1", "10.128.0.1:22"), "lost on node: interface vp1 is down");
    assert!(port.call("p2", "10.128.0.1:22").starts_with("refused by node"), "the other port is up");
    let bridge = state("cni0", LinkState::NoCarrier);
    assert_eq!(bridge.call("client", CALLED), "lost on node: interface cni0 has no carrier");
    assert_eq!(bridge.call("p2", CALLED), "lost on node: interface cni0 has no carrier");
    let blocked = state("vp1", LinkState::Blocked);
    assert_eq!(blocked.call("p2", CALLED), "lost on node: interface vp1 does not forward (spanning tree)");
}

/// Observed on Linux 6.18.
#[test]
fn isolated_ports_exchange_nothing() {
    let mut node = Node::with("vp1", |port| port.isolated(true));
    assert!(node.call("p2", CALLED).starts_with("p1 answers"), "one isolated port is not enough");
    node.interfaces[3].isolated = true;
    assert_eq!(node.call("p2", CALLED), "lost on node: the bridge ports vp2 and vp1 are isolated");
    assert!(node.call("client", CALLED).starts_with("p1 answers"), "the bridge itself is not isolated");
    node.interfaces[2].hairpin = true;
    assert_eq!(node.call("p1", CALLED), "lost on node: the bridge ports vp1 and vp1 are isolated");
}

/// Observed on Linux 6.18: packets that DNAT keeps on the bridge are routed, too, but IPv6 has no such setting.
#[test]
fn forwarding_is_a_setting_of_the_input_interface() {
    let settings = InterfaceSysctls { forwarding: false, ipv6_forwarding: true, ..Sysctls::node().of_interfaces() };
    let node = Node::with("cni0", |interface| interface.sysctls(settings));
    let lost = "lost on node: forwarding is disabled (net.ipv4.conf.cni0.forwarding = 0)";
    assert_eq!(node.call("p2", CALLED), lost);
    let answer = "p1 answers at 10.128.0.10:8080 and sees 192.0.2.7, but the answer is ";
    assert_eq!(node.call("client", CALLED), format!("{answer}{lost}"));
    assert!(node.call("client", "[fd00:1::10]:8080").starts_with("p1 answers"));
    assert!(node.call("p2", "10.128.0.10:8080").starts_with("p1 answers"), "what stays on the bridge is not routed");

    let mut off = Node::new();
    off.sysctls.ipv6_forward = false;
    let lost = "lost on node: forwarding is disabled (net.ipv6.conf.all.forwarding = 0)";
    assert_eq!(off.call("client", "[fd00:1::10]:8080"), lost);
    let forced = InterfaceSysctls { ipv6_forwarding: true, ..off.sysctls.of_interfaces() };
    for interface in &mut off.interfaces {
        interface.sysctls = Some(forced);
    }
    assert!(off.call("client", "[fd00:1::10]:8080").starts_with("p1 answers"));
}

/// `fib_validate_source`: without an IPv4 address, loose mode is as strict as strict mode.
#[test]
fn the_reverse_path_is_checked_only_of_packets_that_have_a_route() {
    let filtered = |filter, addresses: bool, to: &str| {
        let settings = InterfaceSysctls { rp_filter: filter, ..Sysctls::node().of_interfaces() };
        let node = Node::with("eth0", |mut interface| {
            interface.addresses.retain(|own| addresses || own.ip.is_ipv6());
            interface.sysctls(settings)
        });
        let network = node.build(|host| {
            let back = Route::link(net("192.0.2.0/24"), if addresses { "cni0" } else { "eth0" });
            let far = Route::via(net("198.51.100.0/24"), ip("10.128.0.11"), "cni0");
            host.route(Route { metric: 0, ..back }).route(far)
        });
        let flow = Flow::tcp(id(&network, "client"), at(to)).source(ip("198.51.100.9"));
        let found = network.outcomes(&flow).unwrap();
        render::verdict(&network, found.certain().unwrap())
    };
    let strict = "lost on node: the route to the source does not use eth0 (rp_filter = 1)";
    assert_eq!(filtered(1, true, "10.128.0.10:8080"), strict);
    assert!(filtered(2, true, "10.128.0.10:8080").starts_with("p1 answers"));
    assert!(filtered(1, true, "172.16.0.1:80").starts_with("rejected by node"), "no route to the destination");
}

#[test]
fn routes_with_tunnels_and_ipsec_policies_are_not_judged() {
    let tunnel =
        Route { encap: Some("mpls".to_owned()), ..Route::via(net("172.16.0.0/12"), ip("10.128.0.10"), "cni0") };
    let network = Node::new().build(|host| host.route(tunnel));
    for from in ["client", "node"] {
        let said = call(&network, from, "172.16.0.1:80");
        assert!(
            said.contains("node: the route to 172.16.0.0/12 adds a tunnel header (encap mpls), which is not modelled"),
            "{said}"
        );
    }
    let policy = |direction, from: &str, to: &str| IpsecPolicy {
        direction,
        from: net(from),
        to: net(to),
        protocol: None,
        narrower: false,
        bypass: false,
    };
    let with =
        |policies: &[IpsecPolicy]| Node::new().build(|host| policies.iter().cloned().fold(host, HostBuilder::ipsec));
    let out = policy(IpsecDirection::Out, "192.0.2.0/24", "10.128.0.0/24");
    let taken = "node: the IPsec policy from 192.0.2.0/24 to 10.128.0.0/24 (dir out) is not modelled";
    assert!(call(&with(std::slice::from_ref(&out)), "client", CALLED).contains(taken));
    assert!(call(&with(std::slice::from_ref(&out)), "p2", CALLED).starts_with("p1 answers"), "another source");
    let bypass = IpsecPolicy { bypass: true, ..out.clone() };
    assert!(
        call(&with(&[bypass.clone(), out.clone()]), "client", CALLED).starts_with("p1 answers"),
        "the first decides"
    );
    let narrower = IpsecPolicy { narrower: true, ..bypass };
    assert!(call(&with(&[narrower, out]), "client", CALLED).contains(taken), "which may not hold");
    let inside = policy(IpsecDirection::In, "0.0.0.0/0", "192.0.2.1/32");
    assert!(call(&with(std::slice::from_ref(&inside)), "client", "192.0.2.1:22").contains("(dir in) is not modelled"));
    assert!(call(&with(&[inside]), "node", "192.0.2.1:22").starts_with("refused by node"), "loopback has no IPsec");
    let forwarded = policy(IpsecDirection::Forward, "0.0.0.0/0", "10.128.0.0/24");
    assert!(call(&with(&[forwarded]), "client", CALLED).contains("(dir fwd) is not modelled"));
}
