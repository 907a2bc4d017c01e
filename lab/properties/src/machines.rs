//! Builds the oracle's world in the simulator, wired like the lab.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use svclab_oracle::{ClusterModel, Cni, NodeMachine, PodName, Protocol, ReversePath, World};
use svclab_sim::cluster::{self as sim, BuildError, Listening, NodeState};
use svclab_sim::host::Sysctls;
use svclab_sim::network::{Flow, Network, NetworkError, Outcomes};
use svclab_sim::protocol::Protocol as Number;
use svclab_sim::relays::{self, Relays};
use svcproxy::plan::node::routes_loopback;

use crate::node;

/// One network for each node where outside packets enter.
#[derive(Debug, Clone)]
pub struct SimulatedMachines {
    by_entrance: BTreeMap<String, Network>,
    relays: BTreeMap<String, Relays>,
}

pub fn machine_of_pod(world: &World, name: &PodName) -> Option<String> {
    let pod = world.pods.iter().find(|pod| pod.name == *name)?;
    Some(if pod.host_network { pod.node.clone() } else { pod_machine(name) })
}

fn pod_machine(name: &PodName) -> String {
    format!("pod/{name}")
}

pub fn client_machine(name: &str) -> String {
    format!("client/{name}")
}

pub const LOAD_BALANCER: &str = "load-balancer";

pub fn number(protocol: Protocol) -> Number {
    match protocol {
        Protocol::Tcp => Number::TCP,
        Protocol::Udp => Number::UDP,
        Protocol::Sctp => Number::SCTP,
    }
}

/// Returns the ports of slices' endpoints, and `everywhere` for every pod.
fn listeners(cluster: &ClusterModel, everywhere: &[(Protocol, u16)]) -> BTreeMap<String, Listening> {
    let mut waiting: BTreeMap<String, Listening> = BTreeMap::new();
    for pod in &cluster.world.pods {
        let machine = if pod.host_network { pod.node.clone() } else { pod_machine(&pod.name) };
        let ports = everywhere.iter().map(|(protocol, port)| (number(*protocol), *port));
        waiting.entry(machine).or_default().extend(ports);
    }
    for slice in &cluster.objects.slices {
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            let name = port.protocol.as_deref().unwrap_or("TCP");
            let protocol = Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)?;
            Some((number(protocol), u16::try_from(port.port?).ok()?))
        });
        let ports: Vec<(Number, u16)> = ports.collect();
        let addresses = slice.endpoints.iter().flatten().flat_map(|endpoint| endpoint.addresses.first());
        for address in addresses.filter_map(|text| text.parse::<IpAddr>().ok()) {
            let pods = cluster.world.pods.iter().filter(|pod| pod.addresses.contains(&address));
            let Some(pod) = pods.min_by_key(|pod| pod.host_network) else { continue };
            let machine = if pod.host_network { pod.node.clone() } else { pod_machine(&pod.name) };
            waiting.entry(machine).or_default().extend(ports.iter().copied());
        }
    }
    waiting
}

fn shared(addresses: &[IpAddr]) -> Vec<IpNet> {
    let with_length = |address: &IpAddr| IpNet::new_assert(*address, if address.is_ipv4() { 24 } else { 64 });
    addresses.iter().map(with_length).collect()
}

/// Returns the machines; hosts outside have no routes yet.
fn describe(cluster: &ClusterModel, mut listeners: BTreeMap<String, Listening>) -> sim::Cluster {
    let world = &cluster.world;
    let rp_filter = match world.reverse_path {
        ReversePath::Off => 0,
        ReversePath::Loose => 2,
    };
    let node = |place: &NodeMachine| {
        let mut seen = BTreeSet::new();
        let first_of_family = |address: &IpNet| seen.insert(address.addr().is_ipv4());
        let (addresses, secondary) = shared(&place.addresses).into_iter().partition(first_of_family);
        let config = node::config(world, &place.name);
        let own = world.pods.iter().filter(|pod| pod.node == place.name && !pod.host_network);
        let own = own.map(|pod| {
            let name = pod_machine(&pod.name);
            let listening = listeners.remove(&name).unwrap_or_default();
            (name, Some(sim::Pod { addresses: pod.addresses.clone(), listening }))
        });
        let pods = own.collect();
        sim::Node {
            name: place.name.clone(),
            addresses,
            secondary,
            pod_ranges: cluster.objects.pod_ranges(&place.name),
            gateways: shared(&place.gateways),
            overlay: place.overlay.clone(),
            second: shared(&place.second),
            sysctls: Sysctls { route_localnet: routes_loopback(&config), rp_filter, ..Sysctls::node() },
            listening: listeners.remove(&place.name).unwrap_or_default(),
            pods,
        }
    };
    let nodes = world.nodes.iter().map(node).collect();
    let outside = |name: String, addresses: &[IpAddr]| sim::ExternalHost {
        name,
        addresses: shared(addresses),
        routes: Vec::new(),
    };
    let clients = world.clients.iter().map(|client| outside(client_machine(&client.name), &client.addresses));
    let balancer = (!world.load_balancer.is_empty()).then(|| outside(LOAD_BALANCER.to_owned(), &world.load_balancer));
    sim::Cluster { bridged: world.cni == Cni::Bridge, nodes, outside: clients.chain(balancer).collect() }
}

fn enter_by(machines: &mut sim::Cluster, entrance: &NodeMachine) {
    for outside in &mut machines.outside {
        let route = |own: &IpNet| {
            let via = entrance.addresses.iter().find(|address| address.is_ipv4() == own.addr().is_ipv4())?;
            let everywhere = if own.addr().is_ipv4() { Ipv4Net::default().into() } else { Ipv6Net::default().into() };
            Some((everywhere, *via))
        };
        outside.routes = outside.addresses.iter().filter_map(route).collect();
    }
}

impl SimulatedMachines {
    /// The error is a state that the simulator rejects.
    pub fn build(
        cluster: &ClusterModel,
        states: &BTreeMap<String, NodeState>,
    ) -> Result<SimulatedMachines, BuildError> {
        SimulatedMachines::build_with(cluster, states, &[])
    }

    /// Like [`SimulatedMachines::build`]; every pod also listens at `everywhere`.
    pub fn build_with(
        cluster: &ClusterModel,
        states: &BTreeMap<String, NodeState>,
        everywhere: &[(Protocol, u16)],
    ) -> Result<SimulatedMachines, BuildError> {
        let mut machines = describe(cluster, listeners(cluster, everywhere));
        let mut first = Network::new();
        machines.put(&mut first, |node| states.get(node))?;
        let mut by_entrance = BTreeMap::new();
        for entrance in &cluster.world.nodes {
            let mut network = first.clone();
            enter_by(&mut machines, entrance);
            machines.put_outside(&mut network)?;
            by_entrance.insert(entrance.name.clone(), network);
        }
        let relays = states.iter().map(|(node, state)| (node.clone(), state.relays.clone())).collect();
        Ok(SimulatedMachines { by_entrance, relays })
    }

    /// Follows the flow through a relay, if one accepts it.
    pub fn outcomes(&self, network: &Network, flow: &Flow) -> Result<Outcomes, NetworkError> {
        let found = network.outcomes(flow)?;
        Ok(relays::through(network, flow, found, |host| self.relays.get(network.host(host).name())))
    }

    /// Returns the network of an entry node; for `None`, any network.
    pub fn network(&self, entrance: Option<&str>) -> Option<&Network> {
        match entrance {
            Some(entrance) => self.by_entrance.get(entrance),
            None => self.by_entrance.values().next(),
        }
    }
}
