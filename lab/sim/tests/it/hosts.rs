use crate::support::{Plan, at, id, ip, net, outcomes, say, tcp};
use svclab_sim::chance::Chance;
use svclab_sim::host::{Host, HostBuilder, HostInterface, Listener, Route, RouteKind, Sysctls};
use svclab_sim::network::{Flow, Network, PacketVerdict};
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::rules::Rules;

fn eth0() -> HostBuilder {
    Host::builder("node").interface(HostInterface::new("eth0").address(ip("192.0.2.1"), 24))
}

#[test]
fn inconsistent_hosts_and_links_are_errors() {
    let rules = |text: &str| eth0().rules(Rules::read(Family::V4, text).unwrap());
    let mut report = String::new();
    for host in [
        eth0().interface(HostInterface::new("eth0")),
        eth0().interface(HostInterface::new("eth1").address(ip("192.0.2.1"), 33)),
        eth0().interface(HostInterface::new("veth0").port_of("cni0", true)),
        eth0().route(Route::link(net("10.0.0.0/8"), "eth1")),
        eth0().neighbour("eth1", ip("192.0.2.2")),
        rules("*filter\n-A INPUT -m set --match-set GONE src -j DROP\nCOMMIT\n"),
        rules("*filter\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j A\nCOMMIT\n"),
    ] {
        report.push_str(&format!("{}\n", host.build().unwrap_err()));
    }
    let mut network = Network::new();
    let node = network.add(eth0().build().unwrap());
    network.link(&[(node, "eth0")]).unwrap();
    report.push_str(&format!("{}\n", network.link(&[(node, "eth0")]).unwrap_err()));
    report.push_str(&format!("{}\n", network.link(&[(node, "eth1")]).unwrap_err()));
    report.push_str(&format!("{}\n", network.outcomes(&Flow::tcp(node, at("203.0.113.1:80"))).unwrap_err()));
    report.push_str(&format!(
        "{}\n",
        network.outcomes(&Flow::tcp(node, at("192.0.2.9:80")).source(ip("fd00::1"))).unwrap_err()
    ));
    insta::assert_snapshot!(report);
}

#[test]
fn the_kernel_drops_martians_and_loopback() {
    let mut report = String::new();
    let mut say_all = |title: &str, plan: &Plan, from: &str, source: Option<&str>, to: &str| {
        let network = plan.build();
        let flow = tcp(&network, from, to);
        let flow = source.map_or(flow, |source| flow.source(ip(source)));
        report.push_str(&format!("{title}: {}", outcomes(&network, &flow)));
    };
    let web = Plan::web();
    let with = |change: fn(&mut Sysctls)| {
        let mut plan = Plan::web();
        change(&mut plan.sysctls);
        plan
    };
    let forwards = with(|sysctls| sysctls.ip_forward = false);
    say_all("no forwarding", &forwards, "client", None, "10.244.0.2:8080");
    say_all("a source of the node's own", &web, "client", Some("172.18.0.2"), "10.244.0.2:8080");
    let strict = with(|sysctls| sysctls.rp_filter = 1);
    say_all("a pod's source from outside, strict", &strict, "client", Some("10.244.0.3"), "172.18.0.2:22");
    let loose = with(|sysctls| sysctls.rp_filter = 2);
    say_all("a pod's source from outside, loose", &loose, "client", Some("10.244.0.3"), "172.18.0.2:22");
    let inside = with(|sysctls| sysctls.route_localnet = false);
    say_all("a loopback source from outside", &inside, "client", Some("127.0.0.1"), "172.18.0.2:22");
    insta::assert_snapshot!(report);
}

#[test]
fn reject_routes_reject() {
    let base = || eth0().route(Route::via(net("0.0.0.0/0"), ip("192.0.2.9"), "eth0")).sysctls(Sysctls::node());
    let mut report = String::new();
    for kind in [RouteKind::Blackhole, RouteKind::Unreachable] {
        let mut network = Network::new();
        let router = network.add(base().route(Route::nowhere(net("10.0.0.0/8"), kind)).build().unwrap());
        let client = Host::builder("client").interface(HostInterface::new("eth0").address(ip("192.0.2.2"), 24));
        let client = client.route(Route::via(net("0.0.0.0/0"), ip("192.0.2.1"), "eth0"));
        let client = network.add(client.build().unwrap());
        network.link(&[(router, "eth0"), (client, "eth0")]).unwrap();
        report.push_str(&outcomes(&network, &Flow::tcp(client, at("10.1.1.1:80"))));
    }
    insta::assert_snapshot!(report, @r"
    1 dropped by node: Blackhole
    1 rejected by node with icmp-host-unreachable, delivered true
    ");
}

#[test]
fn a_reply_that_bypasses_the_translation_has_the_wrong_source() {
    // The reply does not pass node-a, which translated the request.
    let mut plan = Plan::web();
    plan.rules = plan.rules.replace("-A KUBE-POSTROUTING -j MASQUERADE --random-fully\n", "");
    let mut network = plan.build();
    let flow = tcp(&network, "client", "172.18.0.2:30080");
    let pod = id(&network, "pod-c");
    let all = network.outcomes(&flow).unwrap();
    let broken =
        all.outcomes.iter().map(|one| say(&network, &one.verdict)).find(|said| said.starts_with("pod-c")).unwrap();
    assert!(broken.contains("in vain") && broken.contains("WrongSource { from: 10.244.1.2:8080 }"), "{broken}");
    assert!(all.probability(|verdict| verdict.answered().is_some_and(|(by, _)| by == pod)).is_zero());
    assert!(network.send(&flow, &mut Chance::seeded(1)).is_ok());
}

/// As `ip route get` shows, local routes to secondary addresses prefer the primary one as source.
#[test]
fn calls_to_own_addresses_come_from_them_or_the_primary_address() {
    let host = eth0().interface(
        HostInterface::new("eth1")
            .address(ip("198.51.100.1"), 24)
            .secondary(ip("198.51.100.2"), 24)
            .address(ip("203.0.113.1"), 32)
            .address(ip("fd00::1"), 64)
            .secondary(ip("fd00::2"), 64),
    );
    let mut network = Network::new();
    let node = network.add(host.build().unwrap());
    let source = |to: &str| network.first_packet(&Flow::tcp(node, at(to))).unwrap().source.to_string();
    for (to, from) in [
        ("192.0.2.1:80", "192.0.2.1"),
        ("198.51.100.1:80", "198.51.100.1"),
        ("198.51.100.2:80", "198.51.100.1"),
        ("203.0.113.1:80", "203.0.113.1"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("127.0.0.2:80", "127.0.0.1"),
        ("[fd00::1]:80", "fd00::1"),
        ("[fd00::2]:80", "fd00::2"),
    ] {
        assert_eq!(source(to), from, "{to}");
    }
}

fn doubled(last: &str) -> Network {
    let chains: String = (0..40).map(|n| format!(":C{n} - [0:0]\n")).collect();
    let jumps: String = (0..39).map(|n| format!("-A C{n} -j C{m}\n-A C{n} -j C{m}\n", m = n + 1)).collect();
    let rules = format!("*filter\n{chains}-A INPUT -j C0\n{jumps}-A C39 {last}\nCOMMIT\n");
    let mut network = Network::new();
    let tcp = svclab_sim::protocol::Protocol::TCP;
    let node = eth0().rules(Rules::read(Family::V4, &rules).unwrap()).listen(tcp, 80);
    let client = Host::builder("client").interface(HostInterface::new("eth0").address(ip("192.0.2.2"), 24));
    let (node, client) = (network.add(node.build().unwrap()), network.add(client.build().unwrap()));
    network.link(&[(node, "eth0"), (client, "eth0")]).unwrap();
    network
}

#[test]
fn chains_with_two_jumps_each_are_walked_in_linear_time() {
    let outcomes = |last: &str| {
        let network = doubled(last);
        network.outcomes(&Flow::tcp(network.find("client").unwrap(), at("192.0.2.1:80")))
    };
    let verdict = |last: &str| format!("{:?}", outcomes(last).unwrap().certain().unwrap());
    for nothing_happens in ["-s 203.0.113.9/32 -j DROP", "-j MARK --set-xmark 0x1/0x1", "-m comment --comment x"] {
        let said = verdict(nothing_happens);
        assert!(said.contains("Answered") || said.contains("Delivered"), "{nothing_happens}: {said}");
    }
    let changes = verdict("-j MARK --set-xmark 0x1/0x0");
    assert!(changes.contains("TooManyRules"), "{changes}");
    let asks_chance = outcomes("-m statistic --mode random --probability 0.5 -j MARK --set-xmark 0x1/0x1");
    assert!(asks_chance.unwrap_err().to_string().contains("more than 100000 paths"));
}

#[test]
fn a_chain_is_walked_again_after_a_change() {
    let empty = "-A INPUT -j CHECK\n".repeat(6000);
    let rules = format!(
        "*filter\n:CHECK - [0:0]\n-A CHECK -m mark --mark 0x1/0x1 -j DROP\n{empty}-A INPUT -j MARK --set-xmark 0x1/0x1\n-A INPUT -j CHECK\nCOMMIT\n"
    );
    let mut network = Network::new();
    let node = network.add(eth0().rules(Rules::read(Family::V4, &rules).unwrap()).build().unwrap());
    let client = Host::builder("client").interface(HostInterface::new("eth0").address(ip("192.0.2.2"), 24));
    let client = network.add(client.build().unwrap());
    network.link(&[(node, "eth0"), (client, "eth0")]).unwrap();
    let outcomes = network.outcomes(&Flow::tcp(client, at("192.0.2.1:80"))).unwrap();
    let said = format!("{:?}", outcomes.certain().unwrap());
    assert!(said.contains("Dropped") && said.contains("Rule"), "{said}");
}

/// Links with many machines are searched by an index of addresses.
#[test]
fn a_machine_is_found_among_many_on_a_link_and_after_a_change() {
    let machine = |name: String, address: String| {
        let eth0 = HostInterface::new("eth0").address(address.parse().unwrap(), 24);
        let listener = Listener { protocol: Protocol::TCP, address: None, port: None };
        Host::builder(&name).interface(eth0).listener(listener).build().unwrap()
    };
    let mut network = Network::new();
    let ids: Vec<_> = (1..=20).map(|at| network.add(machine(format!("m{at}"), format!("192.0.2.{at}")))).collect();
    network.link(&ids.iter().map(|id| (*id, "eth0")).collect::<Vec<_>>()).unwrap();
    let call = |network: &Network, to: &str| {
        let found = network.outcomes(&Flow::tcp(ids[0], to.parse().unwrap())).unwrap();
        found.certain().and_then(PacketVerdict::answered).map(|(by, _)| by)
    };
    assert_eq!(call(&network, "192.0.2.20:80"), Some(ids[19]));
    assert_eq!(call(&network, "192.0.2.77:80"), None);
    network.replace(ids[19], machine("m20".to_owned(), "192.0.2.77".to_owned()));
    assert_eq!((call(&network, "192.0.2.20:80"), call(&network, "192.0.2.77:80")), (None, Some(ids[19])));
}
