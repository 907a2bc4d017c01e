use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::rule::RuleAction;
use rtnetlink::{Handle, LinkBridge, LinkBridgePort, LinkUnspec, LinkVeth, RouteMessageBuilder, RouteNextHopBuilder};
use svclab_netns::namespace::{Isolation, Namespace};
use svclab_sim::nft::{Ruleset, TableFamily};
use svclab_snapshot::Snapshot;
use svclab_snapshot::collect::{CollectOptions, NodeWatch, collect};
use svclab_snapshot::network::{Hop, Network, UnresolvedNeighbour};

use crate::api::settled;
use crate::programs;

const BRIDGE: u32 = 10;
const PORT: u32 = 11;
const TABLE: u32 = 100;

/// Runs in a namespace created after the sandbox's user was mapped: in the first one another user owns
/// iptables-legacy's tables. Everything runs on its only thread.
pub fn in_a_namespace() {
    let outer = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    outer.block_on(async {
        let namespace = Namespace::create("node", Isolation::Host).await.unwrap();
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(what_is_made_is_found());
        };
        namespace.run(work).await.unwrap();
    });
}

async fn what_is_made_is_found() {
    make().await;
    let programs = programs::attach(PORT, "port").await;
    let mut proxy = proxy();
    let snapshot = collect(&CollectOptions::default()).await;
    a_mark_differs_after_any_change().await;
    drop(proxy.stdin.take());
    proxy.wait().unwrap();
    let mut bytes = Vec::new();
    snapshot.write(&mut bytes).unwrap();
    let read = Snapshot::read(&bytes[..]).unwrap();
    assert_eq!(read, snapshot);

    let unread: Vec<&str> = read.unread.iter().map(|unread| unread.what.as_str()).collect();
    let expected = ["objects", "bpf.json"];
    assert!(
        unread.iter().all(|what| expected[..expected.len() - usize::from(programs.is_some())].contains(what)),
        "{:?}",
        read.unread
    );
    if let Some(programs) = &programs {
        programs.are_found(&read);
    }
    let config = read.proxy_config.as_ref().unwrap();
    assert!(config.contains("mode: nftables") && config.contains("clusterCIDR: 10.1.0.0/16"), "{config}");
    assert_eq!(read.sources["proxy/config.yaml"], "the flags of kube-proxy");
    links_and_addresses(read.network.as_ref().unwrap());
    routes_and_rules(read.network.as_ref().unwrap());
    let nft = read.nft_v4.unwrap();
    assert!(nft.contains("--comment \"shop/web:http cluster IP\"") && nft.contains("[7:420]"), "{nft}");
    let ruleset = read.nft.unwrap();
    assert!(ruleset.contains("10.96.0.10"));
    let tables = Ruleset::read(&ruleset).unwrap();
    let chains = &tables.table(TableFamily::Netdev, "guard").unwrap().chains;
    let devices: Vec<_> = chains.iter().filter_map(|chain| chain.base.as_ref()?.devices.clone()).collect();
    assert_eq!(devices, [vec!["port".to_owned()]]);
    assert!(read.legacy_v6.unwrap().contains("-A FORWARD -s fd00::/64 -j DROP"));
    assert!(read.sets.unwrap().contains("add CLUSTER-IP 10.96.0.10,tcp:80"));
    let setting = |key: &str| read.sysctls.get(key).map(String::as_str);
    assert_eq!(setting("net.ipv4.conf.br.0.rp_filter"), Some("2"));
    assert_eq!(setting("net.ipv4.ip_forward"), Some("1"));
    assert!(setting("net.ipv6.conf.all.forwarding").is_some());
    assert!(read.versions.contains_key("nft"), "{:?}", read.versions);
    assert_eq!(read.host, "node");
    assert_eq!(read.kernel, nix::sys::utsname::uname().unwrap().release().to_string_lossy());
}

async fn a_mark_differs_after_any_change() {
    let watch = NodeWatch::start(CollectOptions::default());
    let changes: [(&str, &[&str]); 7] = [
        ("a rule of iptables-nft", &["iptables-nft", "-t", "nat", "-A", "OUTPUT", "-j", "ACCEPT"]),
        ("a rule of nft", &["nft", "add", "table", "inet", "marked"]),
        ("a rule of legacy iptables", &["ip6tables-legacy", "-A", "INPUT", "-j", "ACCEPT"]),
        ("an element of an IP set", &["ipset", "add", "CLUSTER-IP", "10.96.0.11,tcp:80"]),
        ("an address", &["ip", "address", "add", "10.1.0.7/32", "dev", "br.0"]),
        ("a route", &["ip", "route", "add", "blackhole", "10.99.0.0/16"]),
        ("a setting", &["sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/br.0/rp_filter"]),
    ];
    for (what, command) in changes {
        let before = settled(&watch).await;
        feed(command, "");
        assert_ne!(watch.mark().await, before, "{what}");
    }
    for undo in ["ip address del 10.1.0.7/32 dev br.0", "ip route del blackhole 10.99.0.0/16"] {
        feed(&undo.split(' ').collect::<Vec<_>>(), "");
    }
}

fn links_and_addresses(network: &Network) {
    let link = |name: &str| network.links.iter().find(|link| link.name == name).unwrap();
    assert_eq!(link("br.0").kind.as_deref(), Some("bridge"));
    let port = link("port");
    assert_eq!((port.kind.as_deref(), port.controller.as_deref()), (Some("veth"), Some("br.0")));
    assert!(port.hairpin && port.up && port.mac.is_some() && port.mtu == 1500, "{port:?}");
    assert_eq!((port.carrier, port.isolated, port.port_state.as_deref()), (Some(true), true, Some("forwarding")));
    assert_eq!((link("away").up, link("away").carrier), (false, Some(false)));
    assert_eq!(network.registered, ["br.0", "pod", "port"], "interfaces that are up; a veth pair's other end is first");
    assert!(!link("br.0").hairpin);
    let addresses: Vec<String> =
        network.addresses.iter().map(|found| format!("{} {}", found.interface, found.address)).collect();
    assert!(addresses.contains(&"br.0 10.1.0.1/24".to_owned()), "{addresses:?}");
    assert!(addresses.contains(&"br.0 fd00:1::1/64".to_owned()), "{addresses:?}");
    let neighbour = network.neighbours.iter().find(|found| found.address == IpAddr::from([10, 1, 0, 9])).unwrap();
    assert_eq!((neighbour.mac.as_str(), neighbour.permanent), ("02:00:00:00:00:09", true));
    let unresolved = UnresolvedNeighbour {
        interface: "br.0".to_owned(),
        address: IpAddr::from([10, 1, 0, 8]),
        state: "failed".to_owned(),
    };
    assert_eq!(network.unresolved, [unresolved]);
    assert!(network.forwarding.iter().any(|found| found.port == "port" && found.mac == "02:00:00:00:00:07"));
}

fn routes_and_rules(network: &Network) {
    let route = network.routes.iter().find(|route| route.table == TABLE).unwrap();
    assert_eq!((route.to.to_string().as_str(), route.kind.as_str()), ("10.9.0.0/16", "unicast"));
    let hop = |last, weight| Hop {
        via: Some([10, 1, 0, last].into()),
        interface: Some("br.0".to_owned()),
        weight,
        encap: None,
    };
    assert_eq!(route.hops, [hop(2, 3), hop(3, 1)]);
    assert_eq!(route.scope.as_deref(), Some("global"));
    let near = network.routes.iter().find(|route| route.to.to_string() == "10.1.0.0/24").unwrap();
    assert_eq!(near.scope.as_deref(), Some("link"));
    let tunnel = network.routes.iter().find(|route| route.to.to_string() == "fd00:9::/64").unwrap();
    assert_eq!(tunnel.hops[0].encap.as_deref(), Some("seg6"));
    let policies: Vec<String> =
        network.ipsec.iter().map(|one| format!("{} {} {}", one.direction, one.from, one.to)).collect();
    assert_eq!(policies, ["out 10.1.0.0/24 10.8.0.0/16"]);
    assert!(network.routes.iter().any(|route| route.table == 255 && route.kind == "local"));
    let rule = network.rules.iter().find(|rule| rule.priority == 99).unwrap();
    assert_eq!((rule.family.as_str(), rule.action.as_str(), rule.table), ("ipv4", "lookup", TABLE));
    assert_eq!(
        (rule.from.map(|from| from.to_string()).as_deref(), rule.mark),
        (Some("10.1.0.0/24"), Some((1, u32::MAX)))
    );
    assert!(network.rules.iter().any(|rule| rule.family == "ipv6" && rule.table == 255));
}

fn proxy() -> std::process::Child {
    let mut command = Command::new("sh");
    command.arg0("kube-proxy").args([
        "-c",
        "read -r end",
        "sh",
        "--proxy-mode=nftables",
        "--cluster-cidr",
        "10.1.0.0/16",
    ]);
    command.stdin(Stdio::piped()).spawn().unwrap()
}

async fn make() {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    interfaces(&handle).await;
    let ways = [(2, 3), (3, 1)].map(|(last, weight)| {
        let way = RouteNextHopBuilder::new(AddressFamily::Inet).interface(BRIDGE).via([10, 1, 0, last].into()).unwrap();
        let mut way = way.build();
        way.hops = weight - 1;
        way
    });
    let route = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix([10, 9, 0, 0].into(), 16)
        .table_id(TABLE)
        .multipath(ways.to_vec())
        .build();
    handle.route().add(route).execute().await.unwrap();
    let rule = handle.rule().add().v4().source_prefix([10, 1, 0, 0].into(), 24).priority(99).fw_mark(1);
    rule.table_id(TABLE).action(RuleAction::ToTable).execute().await.unwrap();

    std::fs::write("/proc/sys/net/ipv4/conf/br.0/rp_filter", "2").unwrap();
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    let nat = "*nat\n:SERVICES - [0:0]\n[7:420] -A SERVICES -d 10.96.0.10/32 -p tcp -m comment \
               --comment \"shop/web:http cluster IP\" -m tcp --dport 80 -j ACCEPT\nCOMMIT\n";
    feed(&["iptables-nft-restore", "-c"], nat);
    let guard = "table netdev guard {\nchain c {\ntype filter hook ingress device port priority 0\n}\n}\n";
    feed(&["nft", "-f", "-"], guard);
    feed(&["ip6tables-legacy-restore"], "*filter\n-A FORWARD -s fd00::/64 -j DROP\nCOMMIT\n");
    run(&[
        "ip",
        "-6",
        "route",
        "add",
        "fd00:9::/64",
        "encap",
        "seg6",
        "mode",
        "encap",
        "segs",
        "fd00:1::9",
        "dev",
        "br.0",
    ]);
    run(&["ip", "xfrm", "policy", "add", "src", "10.1.0.0/24", "dst", "10.8.0.0/16", "dir", "out"]);
    feed(&["ipset", "restore"], "create CLUSTER-IP hash:ip,port\nadd CLUSTER-IP 10.96.0.10,tcp:80\n");
}

/// The bridge's name has a dot; its port is in hairpin mode.
async fn interfaces(handle: &Handle) {
    handle.link().add(LinkBridge::new("br.0").index(BRIDGE).up().build()).execute().await.unwrap();
    let pair = LinkVeth::new("port", "pod").index(PORT).controller(BRIDGE).up().build();
    handle.link().add(pair).execute().await.unwrap();
    handle.link().change(LinkUnspec::new_with_name("pod").up().build()).execute().await.unwrap();
    handle.link().change(LinkBridgePort::new(PORT).hairpin(true).build()).execute().await.unwrap();
    handle.address().add(BRIDGE, [10, 1, 0, 1].into(), 24).execute().await.unwrap();
    let v6: IpAddr = "fd00:1::1".parse().unwrap();
    handle.address().add(BRIDGE, v6, 64).execute().await.unwrap();
    let neighbour = handle.neighbours().add(BRIDGE, [10, 1, 0, 9].into());
    neighbour.link_layer_address(&[2, 0, 0, 0, 0, 9]).execute().await.unwrap();
    // The kernel removes failed entries of all namespaces now and then, but none with this flag (`neigh_periodic_work`).
    run(&["ip", "neighbour", "add", "10.1.0.8", "dev", "br.0", "nud", "failed", "extern_learn"]);
    run(&["ip", "link", "set", "port", "type", "bridge_slave", "isolated", "on"]);
    handle.link().add(LinkVeth::new("away", "far").build()).execute().await.unwrap();
    let mut learned = handle.neighbours().add_bridge(PORT, &[2, 0, 0, 0, 0, 7]);
    // `bridge fdb add … static`: an entry that is not the bridge's own address (`NUD_NOARP`).
    learned.message_mut().header.state = rtnetlink::packet_route::neighbour::NeighbourState::Noarp;
    learned.message_mut().header.flags = rtnetlink::packet_route::neighbour::NeighbourFlags::Controller;
    learned.execute().await.unwrap();
}

fn run(command: &[&str]) {
    feed(command, "");
}

fn feed(command: &[&str], input: &str) {
    let [program, args @ ..] = command else { panic!("a program") };
    let mut child = Command::new(program).args(args).stdin(Stdio::piped()).spawn().expect(program);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program}");
}
