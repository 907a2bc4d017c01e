//! Consistent hashing: kernel and simulator give each client the same endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use svclab_audit::machines::{Around, Machines};
use svclab_netns::namespace::{Isolation, Namespace};
use svclab_sim::cluster::NodeState;
use svclab_sim::network::Flow;
use svclab_sim::trace::Event;
use svclab_snapshot::Snapshot;
use svclab_snapshot::collect::{CollectOptions, collect};
use svcproxy::config::{Config, Mode};
use svcproxy::mode::nftables::{layout, text};
use svcproxy::model::{Family, LoadBalancing, Protocol};
use svcproxy::plan::affinity::AcrossPortsPolicy;
use svcproxy::plan::flow_fate::FatePolicy;
use svcproxy::plan::load_balancing::BalancingPolicy;
use svcproxy::plan::service_port::PlanContext;
use svcproxy::plan::{Masquerade, NodePlan, plan_service_port};
use svcproxy::state::NodeInfo;
use svcproxy::state::service::ServicePort;
use svcproxy::testing::{endpoint, port_name, service_port};

use crate::support::{CaseContext, KernelCase};

const CLIENTS: u16 = 250;
const ENDPOINTS: u16 = 5;

pub fn cases() -> Vec<KernelCase> {
    vec![KernelCase::inside("kernel_and_simulator_hash_alike", kernel_and_simulator_hash_alike)]
}

fn kernel_and_simulator_hash_alike(inside: &CaseContext<'_>) {
    for family in Family::ALL {
        for balancing in [LoadBalancing::Maglev, LoadBalancing::MaglevPort] {
            let wrong = inside.runtime.block_on(compare(family, balancing));
            assert!(wrong.is_empty(), "{family} {balancing}:\n{}", wrong.join("\n"));
        }
    }
}

fn address(family: Family, network: u8, number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    match family {
        Family::V4 => IpAddr::from([10, network, high, low]),
        Family::V6 => IpAddr::from([0xfd00, network.into(), 0, 0, 0, 0, 0, number]),
    }
}

fn frontend(family: Family) -> SocketAddr {
    SocketAddr::new(address(family, 96, 1), 80)
}

fn endpoints(family: Family) -> Vec<SocketAddr> {
    (1..=ENDPOINTS).map(|number| SocketAddr::new(address(family, 244, number), 8080)).collect()
}

/// Each has an address and a port of its own.
fn clients(family: Family) -> Vec<SocketAddr> {
    (1..=CLIENTS).map(|number| SocketAddr::new(address(family, 50, number * 7), 20_000 + number)).collect()
}

/// Returns a table with one Service.
fn table(family: Family, balancing: LoadBalancing) -> String {
    let port = service_port(port_name("web", Protocol::Udp), &frontend(family).ip().to_string());
    let port = ServicePort { load_balancing: Some(balancing), ..port };
    let endpoints: Vec<_> = endpoints(family).iter().map(|one| endpoint(&one.to_string())).collect();
    let config = Config { mode: Mode::Nftables, ..Config::for_node("node") };
    let (node, other_machines) = (NodeInfo::default(), BTreeSet::new());
    let context = PlanContext {
        node_name: "node",
        node: &node,
        primary: None,
        masquerade_all: false,
        other_machines: &other_machines,
        fates: FatePolicy::of(&config),
        affinity_across_ports: AcrossPortsPolicy::default(),
        local_fallback: false,
        source_ranges: false,
        balancing: BalancingPolicy::of(&config),
    };
    let plan = plan_service_port(&port, &endpoints, context);
    let node = NodePlan { internal_masquerade: Masquerade::Never, ..layout::probe_node(family) };
    text::table(&node, &[plan], None)
}

async fn compare(family: Family, balancing: LoadBalancing) -> Vec<String> {
    let namespace = Namespace::create("node", Isolation::Network).await.unwrap();
    let table = table(family, balancing);
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        make(&table);
        let found = of_kernel(family);
        let snapshot = runtime.block_on(collect(&CollectOptions::default()));
        let mut state = NodeState::default();
        state.read_nft("the table", &table).unwrap();
        let used: BTreeSet<SocketAddr> = found.values().copied().collect();
        assert_eq!(used.len(), usize::from(ENDPOINTS), "every endpoint has clients: {used:?}");
        let differences = clients(family).into_iter().filter_map(|client| {
            let (kernel, simulated) = (found.get(&client).copied(), of_simulator(&snapshot, &state, client, family));
            (kernel != simulated).then(|| format!("{client}: kernel: {kernel:?}; simulator: {simulated:?}"))
        });
        differences.collect()
    };
    namespace.run(work).await.unwrap()
}

fn run(program: &str, arguments: &str) {
    let status = Command::new(program).args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "{program} {arguments}");
}

fn make(table: &str) {
    run("ip", "link set lo up");
    // Every address of these ranges is the node's.
    for range in ["10.50.0.0/16", "10.244.0.0/16", "fd00:32::/32", "fd00:f4::/32"] {
        let family = if range.contains(':') { "-6" } else { "-4" };
        run("ip", &format!("{family} route add local {range} dev lo"));
    }
    std::fs::write("/proc/sys/net/ipv6/ip_nonlocal_bind", "1").unwrap();
    run("ip", "-4 route add 10.96.0.0/16 dev lo");
    run("ip", "-6 route add fd00:60::/32 dev lo");
    let file = tempfile::NamedTempFile::new_in("/run").unwrap();
    std::fs::write(file.path(), table).unwrap();
    run("nft", &format!("-f {}", file.path().display()));
}

/// Sends a datagram of each client, and returns the endpoints that got one.
fn of_kernel(family: Family) -> BTreeMap<SocketAddr, SocketAddr> {
    let listeners: Vec<UdpSocket> = endpoints(family).into_iter().map(|one| UdpSocket::bind(one).unwrap()).collect();
    for client in clients(family) {
        UdpSocket::bind(client).unwrap().send_to(b"x", frontend(family)).unwrap();
    }
    let mut found = BTreeMap::new();
    for listener in listeners {
        // Datagrams on lo arrive before the call that sends them returns.
        listener.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        while let Ok((_, client)) = listener.recv_from(&mut [0]) {
            found.insert(client, listener.local_addr().unwrap());
        }
    }
    found
}

fn of_simulator(snapshot: &Snapshot, state: &NodeState, client: SocketAddr, family: Family) -> Option<SocketAddr> {
    let machines = Machines::build(snapshot, state, &Around::default()).unwrap();
    let flow = Flow::udp(machines.node, frontend(family)).source(client.ip()).port(client.port());
    let outcomes = machines.network.outcomes(&flow).unwrap();
    let [(_, journey)] = &outcomes.ways[..] else { return None };
    journey.request.trace.iter().find_map(|event| match event {
        Event::Translated { by: "DNAT", packet } => {
            Some(SocketAddr::new(packet.destination, packet.ports().map_or(0, |(_, to)| to)))
        }
        _ => None,
    })
}
