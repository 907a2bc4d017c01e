use std::net::IpAddr;

use svclab_sim::chance::Chance;
use svclab_sim::host::{
    Host, HostBuilder, HostInterface, InterfaceSysctls, LOCAL_TABLE, Listener, MAIN_TABLE, PolicyAction, PolicyRule,
    Route, RouteKind, Sysctls,
};
use svclab_sim::masked::Masked;
use svclab_sim::network::{Flow, Network, PacketVerdict};
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::rules::Rules;

fn range(text: &str) -> Masked {
    Masked::parse(text).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn lookup(priority: u32, table: u32) -> PolicyRule {
    PolicyRule::of_all(Family::V4, priority, PolicyAction::Lookup { table, suppress: None })
}

/// A router with two ways to 203.0.113.0/24: `eth0`, and in table 100 `eth1`. All ports listen.
struct Two {
    network: Network,
}

impl Two {
    fn new(configure: impl FnOnce(HostBuilder) -> HostBuilder) -> Two {
        let router = Host::builder("router")
            .sysctls(Sysctls { ip_forward: true, ..Sysctls::default() })
            .interface(HostInterface::new("lan0").address(ip("10.0.0.1"), 24))
            .interface(HostInterface::new("eth0").address(ip("192.0.2.1"), 24))
            .interface(HostInterface::new("eth1").address(ip("198.51.100.1"), 24))
            .route(Route::via(range("203.0.113.0/24"), ip("192.0.2.9"), "eth0"))
            .route(Route::via(range("203.0.113.0/24"), ip("198.51.100.9"), "eth1").in_table(100));
        let mut network = Network::new();
        let router = network.add(configure(router).build().unwrap());
        let far = |name: &str, near: &str| {
            let eth0 = HostInterface::new("eth0").address(ip(near), 24).address(ip("203.0.113.5"), 32);
            let back = if name == "by-eth0" { "192.0.2.1" } else { "198.51.100.1" };
            Host::builder(name)
                .interface(eth0)
                .route(Route::via(range("0.0.0.0/0"), ip(back), "eth0"))
                .listener(Listener { protocol: Protocol::TCP, address: None, port: None })
                .build()
                .unwrap()
        };
        let lan = Host::builder("lan")
            .interface(HostInterface::new("eth0").address(ip("10.0.0.2"), 24))
            .route(Route::via(range("0.0.0.0/0"), ip("10.0.0.1"), "eth0"));
        let lan = network.add(lan.build().unwrap());
        let (first, second) = (network.add(far("by-eth0", "192.0.2.9")), network.add(far("by-eth1", "198.51.100.9")));
        network.link(&[(router, "lan0"), (lan, "eth0")]).unwrap();
        network.link(&[(router, "eth0"), (first, "eth0")]).unwrap();
        network.link(&[(router, "eth1"), (second, "eth0")]).unwrap();
        Two { network }
    }

    fn who(&mut self, from: &str) -> String {
        let from = self.network.find(from).unwrap();
        let flow = Flow::tcp(from, "203.0.113.5:80".parse().unwrap());
        let journey = match self.network.send(&flow, &mut Chance::seeded(1)) {
            Ok(journey) => journey,
            Err(error) => return error.to_string(),
        };
        match journey.verdict {
            PacketVerdict::Answered { by, .. } => self.network.host(by).name().to_owned(),
            PacketVerdict::Dropped { why, .. } => why.to_string(),
            other => format!("{other:?}"),
        }
    }
}

fn standard(host: HostBuilder) -> HostBuilder {
    host.policy(lookup(0, LOCAL_TABLE)).policy(lookup(32766, MAIN_TABLE))
}

fn lan(mut two: Two) -> String {
    two.who("lan")
}

#[test]
fn the_first_deciding_policy_rule_wins() {
    let rule = |change: &dyn Fn(&mut PolicyRule)| {
        let mut rule = lookup(100, 100);
        change(&mut rule);
        lan(Two::new(|host| standard(host).policy(rule)))
    };
    assert_eq!(lan(Two::new(|host| host)), "by-eth0", "without rules the main table");
    assert_eq!(lan(Two::new(standard)), "by-eth0");
    assert_eq!(rule(&|_| {}), "by-eth1");
    assert_eq!(rule(&|rule| rule.priority = 40000), "by-eth0", "after the main table");
    assert_eq!(rule(&|rule| rule.from = Some(range("10.0.0.0/24"))), "by-eth1");
    assert_eq!(rule(&|rule| rule.from = Some(range("10.0.1.0/24"))), "by-eth0");
    assert_eq!(rule(&|rule| (rule.from, rule.invert) = (Some(range("10.0.1.0/24")), true)), "by-eth1");
    assert_eq!(rule(&|rule| rule.to = Some(range("203.0.113.5/32"))), "by-eth1");
    assert_eq!(rule(&|rule| rule.input = Some("lan0".to_owned())), "by-eth1");
    assert_eq!(rule(&|rule| rule.input = Some("lo".to_owned())), "by-eth0", "lo is what starts here");
    assert_eq!(rule(&|rule| rule.input = Some("gone0".to_owned())), "by-eth0");
    assert_eq!(rule(&|rule| rule.output = Some("eth1".to_owned())), "by-eth0", "no socket is bound");
    assert_eq!(rule(&|rule| rule.mark = Some((1, 1))), "by-eth0");
    assert_eq!(rule(&|rule| rule.action = PolicyAction::Refuse(RouteKind::Blackhole)), "a black-hole route");
    assert_eq!(rule(&|rule| rule.action = PolicyAction::Nop), "by-eth0");
    assert_eq!(
        rule(&|rule| rule.action = PolicyAction::Lookup { table: 7, suppress: None }),
        "by-eth0",
        "no such table"
    );
    let suppressed = |suppress| PolicyAction::Lookup { table: 100, suppress: Some(suppress) };
    assert_eq!(rule(&|rule| rule.action = suppressed(24)), "by-eth0");
    assert_eq!(rule(&|rule| rule.action = suppressed(23)), "by-eth1");
}

#[test]
fn goto_skips_policy_rules() {
    let jump = PolicyRule { action: PolicyAction::Goto(32766), ..lookup(50, 0) };
    assert_eq!(lan(Two::new(|host| standard(host).policy(lookup(100, 100)).policy(jump))), "by-eth0");
}

#[test]
fn a_throw_route_continues_with_the_next_policy_rule() {
    let throw = Route::nowhere(range("203.0.113.5/32"), RouteKind::Throw).in_table(100);
    assert_eq!(lan(Two::new(|host| standard(host).policy(lookup(100, 100)).route(throw))), "by-eth0");
}

#[test]
fn a_local_route_delivers_foreign_addresses() {
    let local = Route::nowhere(range("203.0.113.0/24"), RouteKind::Local).in_table(LOCAL_TABLE);
    let listening = Listener { protocol: Protocol::TCP, address: None, port: Some(80) };
    assert_eq!(lan(Two::new(|host| host.route(local).listener(listening))), "router");
}

#[test]
fn a_mark_of_mangle_selects_the_route() {
    let marked = |hook: &str| {
        let rules = format!(
            "*mangle\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A {hook} -j MARK --set-xmark 0x1/0x1\nCOMMIT\n"
        );
        let rules = Rules::read(Family::V4, &rules).unwrap();
        let rule = PolicyRule { mark: Some((1, 1)), ..lookup(100, 100) };
        Two::new(|host| standard(host).policy(rule).rules(rules))
    };
    assert_eq!(marked("PREROUTING").who("lan"), "by-eth1");
    assert_eq!(marked("PREROUTING").who("router"), "by-eth0");
    assert_eq!(marked("OUTPUT").who("lan"), "by-eth0");
    assert_eq!(marked("OUTPUT").who("router"), "by-eth1", "routed anew after mangle");
}

#[test]
fn interface_sysctls_override_the_hosts() {
    let with = |change: &dyn Fn(&mut InterfaceSysctls)| {
        let mut settings = InterfaceSysctls { forwarding: true, ..InterfaceSysctls::default() };
        change(&mut settings);
        let mut two = Two::new(|host| host);
        let router = two.network.find("router").unwrap();
        let lan0 = HostInterface::new("lan0").address(ip("10.0.0.1"), 24).sysctls(settings);
        let host = Host::builder("router")
            .interface(lan0)
            .interface(HostInterface::new("eth0").address(ip("192.0.2.1"), 24))
            .interface(HostInterface::new("eth1").address(ip("198.51.100.1"), 24))
            .route(Route::via(range("203.0.113.0/24"), ip("192.0.2.9"), "eth0"))
            .route(Route::via(range("10.0.0.2/32"), ip("198.51.100.9"), "eth1"))
            .build()
            .unwrap();
        two.network.replace(router, host);
        two.who("lan")
    };
    let off = with(&|settings| settings.forwarding = false);
    assert_eq!(off, "forwarding is disabled (net.ipv4.ip_forward = 0)");
    let strict = with(&|settings| settings.rp_filter = 1);
    assert_eq!(strict, "the route to the source does not use lan0 (rp_filter = 1)");
    let loose = with(&|settings| settings.rp_filter = 2);
    assert!(!loose.contains("rp_filter"), "{loose}");
}

/// Docker uses iptables-legacy, a proxy iptables-nft.
#[test]
fn rules_of_both_iptables_variants_run() {
    let of = |text: &str| Rules::read(Family::V4, text).unwrap();
    let drop = "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n";
    let mark = "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j MARK --set-xmark 0x1/0x1\nCOMMIT\n";
    let to_router = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j DNAT --to-destination 192.0.2.9\nCOMMIT\n";
    let to_other = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j DNAT --to-destination 198.51.100.9\nCOMMIT\n";
    let both = |first: &str, second: &str| {
        let rule = PolicyRule { mark: Some((1, 1)), ..lookup(100, 100) };
        lan(Two::new(|host| standard(host).policy(rule).rules(of(first)).second_rules(of(second))))
    };
    assert_eq!(both(mark, drop), "dropped by the policy of FORWARD in filter");
    assert_eq!(both(drop, mark), "dropped by the policy of FORWARD in filter");
    assert_eq!(both("*filter\nCOMMIT\n", mark), "by-eth1");
    assert_eq!(both(to_router, to_other), "by-eth0", "what one has translated the other does not");
    assert_eq!(both(to_other, to_router), "by-eth1");
}
