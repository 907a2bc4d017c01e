//! Rules that drop packets of neighbour discovery.

use crate::support::{at, ip, net};
use svclab_sim::host::{Host, HostBuilder, HostInterface, Listener, Route, Sysctls};
use svclab_sim::network::{Flow, Network};
use svclab_sim::nft::Ruleset;
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::render;
use svclab_sim::rules::Rules;

/// A node (fd00::1, fd00:1::1) with a client behind eth0 and two pods on its bridge.
fn network(change: impl FnOnce(HostBuilder) -> HostBuilder) -> Network {
    let all = Listener { protocol: Protocol::TCP, address: None, port: None };
    let node = Host::builder("node")
        .interface(HostInterface::new("eth0").address(ip("fd00::1"), 64))
        .interface(HostInterface::new("cni0").address(ip("fd00:1::1"), 64))
        .interface(HostInterface::new("veth0").port_of("cni0", true))
        .interface(HostInterface::new("veth1").port_of("cni0", true))
        .sysctls(Sysctls::node())
        .listener(all);
    let machine = |name: &str, own: &str, gateway: &str| {
        let eth0 = HostInterface::new("eth0").address(ip(own), 64);
        let host = Host::builder(name).interface(eth0).route(Route::via(net("::/0"), ip(gateway), "eth0"));
        host.listener(all).build().unwrap()
    };
    let mut network = Network::new();
    let node = network.add(change(node).build().unwrap());
    let client = network.add(machine("client", "fd00::2", "fd00::1"));
    let pods = [
        network.add(machine("pod-a", "fd00:1::2", "fd00:1::1")),
        network.add(machine("pod-b", "fd00:1::3", "fd00:1::1")),
    ];
    network.link(&[(node, "eth0"), (client, "eth0")]).unwrap();
    network.link(&[(node, "veth0"), (pods[0], "eth0")]).unwrap();
    network.link(&[(node, "veth1"), (pods[1], "eth0")]).unwrap();
    network
}

fn says(network: &Network, from: &str, to: &str) -> String {
    match network.outcomes(&Flow::tcp(network.find(from).unwrap(), at(to))) {
        Ok(found) => render::verdict(network, found.certain().unwrap()),
        Err(error) => error.to_string().lines().last().unwrap_or_default().trim().to_owned(),
    }
}

fn with_rules(rules: &str) -> impl FnOnce(HostBuilder) -> HostBuilder + use<> {
    let rules = Rules::read_any(Family::V6, rules).unwrap();
    move |host| host.rules(rules)
}

#[test]
fn a_neighbour_that_rules_hide_is_not_reached() {
    let filter = |rules: &str| format!("*filter\n{rules}\nCOMMIT\n");
    let mut report = String::new();
    for rules in [
        "-A INPUT -p ipv6-icmp -j DROP",
        "-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT\n-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 136 -j ACCEPT\n-A INPUT -p ipv6-icmp -j DROP",
        ":INPUT DROP [0:0]\n-A INPUT -p tcp -j ACCEPT",
        "-A INPUT -p ipv6-icmp -m hl ! --hl-eq 255 -j DROP",
        "-A INPUT -m conntrack --ctstate INVALID -j DROP",
        // Either machine may know the other from the other's own search.
        "-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j REJECT",
        "-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 136 -j DROP",
        ":OUTPUT DROP [0:0]\n-A OUTPUT -p tcp -j ACCEPT\n-A OUTPUT -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT",
        "-A OUTPUT -p ipv6-icmp -j DROP",
        "-A INPUT -m eui64 -j ACCEPT",
        "-A INPUT -m eui64 -j DROP",
        "-A INPUT -m eui64 -j LOG\n-A INPUT -p ipv6-icmp -j DROP",
        "-A FORWARD -p ipv6-icmp -j DROP",
        "-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type 128 -j DROP",
    ] {
        let network = network(with_rules(&filter(rules)));
        report.push_str(&format!("{rules}\n"));
        for (from, to) in [("client", "[fd00::1]:80"), ("client", "[fd00:1::2]:80"), ("pod-a", "[fd00:1::3]:80")] {
            report.push_str(&format!("  {from} calls {to}: {}\n", says(&network, from, to)));
        }
    }
    insta::assert_snapshot!(report);
}

#[test]
fn a_changed_hop_limit_and_nftables_hide_neighbours_too() {
    let rules = "*mangle\n-A PREROUTING -j HL --hl-set 64\nCOMMIT\n";
    assert_eq!(
        says(&network(with_rules(rules)), "client", "[fd00::1]:80"),
        "lost on node: fd00::1 is not found on its link, because the neighbour solicitation is ignored: its hop limit, set by PREROUTING 1 (line 2): -A PREROUTING -j HL --hl-set 64, is not 255"
    );
    let table = |rule: &str| {
        let text = format!(
            "table inet t {{\n\tchain in {{\n\t\ttype filter hook input priority 0; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
        );
        let ruleset = Ruleset::read(&text).unwrap();
        says(&network(|host| host.nft(ruleset)), "client", "[fd00::1]:80")
    };
    assert_eq!(
        table("icmpv6 type { 135, 136 } drop"),
        "lost on node: fd00::1 is not found on its link, because the neighbour solicitation is dropped by inet t, rule 1 of chain in, in 1 (line 4): icmpv6 type { 135, 136 } drop"
    );
    assert_eq!(table("ct state invalid drop"), "node answers at [fd00::1]:80 and sees fd00::2");
    assert_eq!(table("fib saddr . iif oif missing drop"), "node answers at [fd00::1]:80 and sees fd00::2");
}

#[test]
fn static_neighbours_and_tunnels_need_no_search() {
    let rules = "*filter\n-A INPUT -p ipv6-icmp -j DROP\nCOMMIT\n";
    // The client searches the node in vain, the node knows the client.
    let known = |change: &dyn Fn(HostBuilder) -> HostBuilder| {
        let rules = with_rules(rules);
        says(&network(move |host| change(rules(host))), "node", "[fd00::2]:80")
    };
    let permanent = known(&|host| host.resolved("eth0", ip("fd00::2")));
    assert!(permanent.starts_with("client answers at"), "{permanent}");
    let other = known(&|host| host.resolved("eth0", ip("fd00::3")));
    assert!(other.starts_with("lost on node: fd00::2 is not found"), "{other}");
    let tunnel = |network: &mut Network| {
        let tunnel = HostInterface::new("tun0").address(ip("fd00:2::1"), 64).without_search();
        let node = Host::builder("far").interface(tunnel).rules(Rules::read_any(Family::V6, rules).unwrap());
        let peer = HostInterface::new("tun0").address(ip("fd00:2::2"), 64).without_search();
        let peer = Host::builder("peer").interface(peer).listen(Protocol::TCP, 80);
        let (node, peer) = (network.add(node.build().unwrap()), network.add(peer.build().unwrap()));
        network.link(&[(node, "tun0"), (peer, "tun0")]).unwrap();
        says(network, "far", "[fd00:2::2]:80")
    };
    assert!(tunnel(&mut Network::new()).starts_with("peer answers at"));
}
