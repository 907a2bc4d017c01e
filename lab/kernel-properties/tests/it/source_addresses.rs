//! The interface, next hop and source address of a node's own packets are those of `ip route get`, on drawn addresses,
//! routes and rules.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;
use svclab_audit::machines::{Around, Machines};
use svclab_netns::namespace::{Isolation, Namespace};
use svclab_properties::sweep::runner_with;
use svclab_sim::cluster::NodeState;
use svclab_sim::host::RouteTo;
use svclab_sim::network::Flow;
use svclab_snapshot::Snapshot;
use svclab_snapshot::collect::{CollectOptions, collect};

use crate::support::{CaseContext, KernelCase};

/// Nodes that are drawn.
const NODES: u32 = 12;
const SETTLES: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(300);

pub fn cases() -> Vec<KernelCase> {
    vec![KernelCase::inside("the_kernel_chooses_the_same_source", the_kernel_chooses_the_same_source)]
}

/// Arguments of `ip` and destinations.
type Drawn = (Vec<String>, Vec<String>);

fn the_kernel_chooses_the_same_source(inside: &CaseContext<'_>) {
    let outcome = runner_with(inside.seed, 7, NODES, 20).run(&nodes(), |(commands, destinations)| {
        let wrong = inside.runtime.block_on(compare(commands.clone(), destinations));
        prop_assert!(wrong.is_empty(), "{}\nafter:\n  ip {}", wrong.join("\n"), commands.join("\n  ip "));
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

async fn compare(commands: Vec<String>, destinations: Vec<String>) -> Vec<String> {
    let namespace = Namespace::create("node", Isolation::Network).await.unwrap();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        make(&commands);
        let all: BTreeSet<String> = destinations.into_iter().collect();
        // The kernel adds the local routes of IPv6 addresses from a work queue.
        let end = Instant::now() + SETTLES;
        loop {
            let snapshot = runtime.block_on(collect(&CollectOptions::default()));
            let differences = differences(&snapshot, &all);
            if differences.is_empty() || Instant::now() > end {
                return differences;
            }
            std::thread::sleep(PAUSE);
        }
    };
    namespace.run(work).await.unwrap()
}

fn differences(snapshot: &Snapshot, destinations: &BTreeSet<String>) -> Vec<String> {
    let differences = destinations.iter().filter_map(|to| {
        let (kernel, simulated) = (of_kernel(to), of_simulator(snapshot, to.parse().unwrap()));
        (kernel != simulated).then(|| format!("to {to}: kernel: {kernel}; simulator: {simulated}"))
    });
    differences.collect()
}

fn ip(arguments: &str) -> Option<String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).stderr(Stdio::null()).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

fn make(commands: &[String]) {
    ip("link set lo up").unwrap();
    for number in 0..LINKS {
        ip(&format!("link add d{number} type veth peer name e{number}")).unwrap();
        // Addresses take effect at once.
        for name in ["d", "e"] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}{number}/accept_dad"), "0").unwrap();
            ip(&format!("link set {name}{number} up")).unwrap();
        }
    }
    // The kernel refuses some drawn addresses and routes, such as the same one twice.
    for command in commands {
        let _ = ip(command);
    }
    std::thread::sleep(PAUSE);
}

fn of_kernel(to: &str) -> String {
    let Some(text) = ip(&format!("-json route get {to}")) else { return "nowhere".to_owned() };
    let answer: Value = serde_json::from_str(&text).unwrap();
    let field = |name: &str| answer[0][name].as_str();
    let source = field("prefsrc").unwrap_or("none");
    match field("type") {
        Some("local") => format!("here from {source}"),
        Some("broadcast" | "multicast" | "blackhole" | "unreachable" | "prohibit") => "nowhere".to_owned(),
        _ => format!("{} to {} from {source}", field("dev").unwrap(), field("gateway").unwrap_or(to)),
    }
}

fn of_simulator(snapshot: &Snapshot, to: IpAddr) -> String {
    let machines = Machines::build(snapshot, &NodeState::default(), &Around::default()).unwrap();
    let flow = Flow::tcp(machines.node, SocketAddr::new(to, 80));
    let source = machines.network.first_packet(&flow).map_or("none".to_owned(), |packet| packet.source.to_string());
    match machines.network.host(machines.node).way_to(to) {
        // `__mkroute_output` refuses them; the simulator loses the packet.
        RouteTo::Out { interface, .. } if source.starts_with("127.") && interface != "lo" => "nowhere".to_owned(),
        RouteTo::Itself => format!("here from {source}"),
        RouteTo::Out { interface, next_hop } => format!("{interface} to {next_hop} from {source}"),
        RouteTo::Nowhere => "nowhere".to_owned(),
    }
}

const LINKS: usize = 3;
const INTERFACES: [&str; 4] = ["d0", "d1", "d2", "lo"];
const RANGES: [&str; 6] =
    ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.0/24", "192.168.1.0/24", "192.168.1.9/32", "172.16.0.0/12"];
const RANGES_V6: [&str; 6] =
    ["::/0", "fd00::/16", "fd00:1::/64", "2001:db8:5::/48", "2001:db8:5::9/128", "2002:1::/32"];
const TO: [&str; 6] = ["8.8.8.8", "192.168.1.9", "192.168.1.7", "172.16.9.9", "127.0.0.7", "10.200.0.1"];
const TO_V6: [&str; 6] = ["2600::1", "2001:db8:5::9", "2001:db8:5::7", "2002:1::7", "::1", "fd00:9::1"];

fn nodes() -> impl Strategy<Value = Drawn> {
    let commands = (
        prop::collection::vec(address(), 1..6),
        prop::collection::vec(address_v6(), 1..6),
        prop::collection::vec(route(), 1..6),
        prop::collection::vec(route_v6(), 1..6),
        prop::collection::vec(rule(), 0..3),
    );
    let commands = commands.prop_map(|(v4, v6, routes, routes_v6, rules)| [v4, v6, routes, routes_v6, rules].concat());
    let near = prop_oneof![own(), own_v6()];
    let far = prop_oneof![select(&TO[..]), select(&TO_V6[..])].prop_map(str::to_owned);
    (commands, prop::collection::vec(prop_oneof![near, far], 16..24))
}

/// An address that the node or a neighbour may have.
fn own() -> impl Strategy<Value = String> {
    (0u8..3, 1u8..7).prop_map(|(network, host)| format!("10.1.{network}.{host}"))
}

fn own_v6() -> impl Strategy<Value = String> {
    (select(&["fd00:1:", "fd00:2:", "2001:db8:5:", "2001:db8:6:", "2002:1:"][..]), 1u8..7)
        .prop_map(|(network, host)| format!("{network}:{host}"))
}

fn interface() -> impl Strategy<Value = &'static str> {
    select(&INTERFACES[..])
}

fn address() -> impl Strategy<Value = String> {
    let scope = select(&["", "", "scope global", "scope link", "scope host", "scope site"][..]);
    (own(), select(&[16u8, 24, 25, 32][..]), interface(), scope)
        .prop_map(|(own, length, interface, scope)| format!("addr add {own}/{length} dev {interface} {scope}"))
}

fn address_v6() -> impl Strategy<Value = String> {
    let lifetime = select(&["", "", "preferred_lft 0"][..]);
    (own_v6(), select(&[32u8, 64, 128][..]), interface(), lifetime).prop_map(|(own, length, interface, lifetime)| {
        format!("addr add {own}/{length} dev {interface} nodad {lifetime}")
    })
}

fn route() -> impl Strategy<Value = String> {
    let way = prop_oneof![
        (interface(), select(&["", "", "scope global", "scope host"][..]))
            .prop_map(|(dev, scope)| format!("dev {dev} {scope}")),
        (interface(), own()).prop_map(|(dev, gateway)| format!("via {gateway} dev {dev} onlink")),
        own().prop_map(|gateway| format!("via {gateway}")),
    ];
    let source = prop_oneof![Just(String::new()), Just(String::new()), own().prop_map(|own| format!("src {own}"))];
    (select(&RANGES[..]), way, source, 0u8..3, select(&["main", "100"][..])).prop_map(
        |(to, way, source, metric, table)| format!("route add {to} {way} {source} metric {metric} table {table}"),
    )
}

fn route_v6() -> impl Strategy<Value = String> {
    let way = prop_oneof![
        select(&INTERFACES[..3]).prop_map(|dev| format!("dev {dev}")),
        (select(&INTERFACES[..3]), own_v6()).prop_map(|(dev, gateway)| format!("via {gateway} dev {dev} onlink")),
    ];
    let source = prop_oneof![Just(String::new()), Just(String::new()), own_v6().prop_map(|own| format!("src {own}"))];
    (select(&RANGES_V6[..]), way, source, 1u8..4, select(&["main", "100"][..])).prop_map(
        |(to, way, source, metric, table)| format!("-6 route add {to} {way} {source} metric {metric} table {table}"),
    )
}

fn rule() -> impl Strategy<Value = String> {
    let v4 = select(&RANGES[1..]).prop_map(|to| format!("rule add to {to} lookup 100"));
    let v6 = select(&RANGES_V6[1..]).prop_map(|to| format!("-6 rule add to {to} lookup 100"));
    prop_oneof![v4, v6]
}
