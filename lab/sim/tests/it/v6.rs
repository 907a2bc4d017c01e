use crate::support::{at, ip, net, outcomes};
use svclab_sim::host::{Host, HostInterface, Route, Sysctls};
use svclab_sim::network::{Flow, Network};
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::rules::Rules;

const RULES: &str = "\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -d fd00:96::66/128 -j REJECT --reject-with icmp6-port-unreachable
-A FORWARD -d fd00:96::67/128 -p tcp -j REJECT --reject-with tcp-reset
COMMIT
*nat
-A PREROUTING -d fd00:96::10/128 -p tcp -m tcp --dport 80 -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination [fd00:1::2]:8080
-A PREROUTING -d fd00:96::10/128 -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00:1::3]:8080
-A POSTROUTING -s fd00::2/128 -d fd00:1::2/128 -j MASQUERADE --random-fully
COMMIT
";

#[test]
fn a_router_translates_and_rejects() {
    let server = |name: &str, own: &str| {
        let host = Host::builder(name).interface(HostInterface::new("eth0").address(ip(own), 64));
        host.route(Route::via(net("::/0"), ip("fd00:1::1"), "eth0")).listen(Protocol::TCP, 8080)
    };
    let router = Host::builder("router")
        .interface(HostInterface::new("eth0").address(ip("fd00::1"), 64))
        .interface(HostInterface::new("eth1").address(ip("fd00:1::1"), 64))
        .route(Route::via(net("fd00:96::/64"), ip("fd00:1::9"), "eth1"))
        .sysctls(Sysctls::node())
        .rules(Rules::read(Family::V6, RULES).unwrap());
    let client = Host::builder("client").interface(HostInterface::new("eth0").address(ip("fd00::2"), 64));
    let client = client.route(Route::via(net("::/0"), ip("fd00::1"), "eth0"));
    let mut network = Network::new();
    let (router, client) = (network.add(router.build().unwrap()), network.add(client.build().unwrap()));
    let servers = [("first", "fd00:1::2"), ("second", "fd00:1::3")]
        .map(|(name, own)| network.add(server(name, own).build().unwrap()));
    network.link(&[(router, "eth0"), (client, "eth0")]).unwrap();
    network.link(&[(router, "eth1"), (servers[0], "eth0"), (servers[1], "eth0")]).unwrap();
    let mut report = String::new();
    for to in ["[fd00:96::10]:80", "[fd00:96::66]:80", "[fd00:96::67]:80", "[fd00:96::68]:80", "[fd00:1::2]:9"] {
        report.push_str(&format!("{to}\n{}", outcomes(&network, &Flow::tcp(client, at(to)))));
    }
    insta::assert_snapshot!(report, @r"
    [fd00:96::10]:80
    1/2 first answers, saw fd00:1::1
    1/2 second answers, saw fd00::2
    [fd00:96::66]:80
    1 rejected by router with icmp6-port-unreachable, delivered true
    [fd00:96::67]:80
    1 rejected by router with tcp-reset, delivered true
    [fd00:96::68]:80
    1 dropped by router: NoNeighbour(fd00:1::9)
    [fd00:1::2]:9
    1 refused by first at [fd00:1::2]:9, delivered true
    ");
}

#[test]
fn redirect_takes_the_latest_address() {
    let rules = "*nat\n-A PREROUTING -p tcp -j REDIRECT --to-ports 9999\nCOMMIT\n";
    let eth0 = HostInterface::new("eth0").address(ip("fd00::1"), 64).address(ip("fd00::33"), 64);
    let server = Host::builder("server").interface(eth0).listen(Protocol::TCP, 9999);
    let server = server.rules(Rules::read(Family::V6, rules).unwrap());
    let client = Host::builder("client").interface(HostInterface::new("eth0").address(ip("fd00::2"), 64));
    let mut network = Network::new();
    let (server, client) = (network.add(server.build().unwrap()), network.add(client.build().unwrap()));
    network.link(&[(server, "eth0"), (client, "eth0")]).unwrap();
    let found = network.outcomes(&Flow::tcp(client, at("[fd00::1]:80"))).unwrap();
    assert_eq!(found.certain().and_then(|verdict| verdict.answered()), Some((server, at("[fd00::33]:9999"))));
}
