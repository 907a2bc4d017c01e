//! Builds simulated machines from a snapshot: the node, and the machines around it by its routes and neighbours.
//!
//! Callers and the endpoints of a call are machines of their own, on every way that a table of the node names for them.
//! All other endpoints behind a gateway are addresses of that gateway, so that 50,000 cost little.

mod destinations;
mod entry;
mod hosts;
mod node;
mod state;
mod stations;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use svclab_sim::assume::Assumptions;
use svclab_sim::cluster::NodeState;
use svclab_sim::host::{Host, HostBuilder, HostInterface, Listener, RouteTo};
use svclab_sim::masked::Masked;
use svclab_sim::network::{HostId, Network, Outcomes};
use svclab_sim::protocol::Protocol;
use svclab_sim::trace::Event;
use svclab_snapshot::Snapshot;

use crate::error::NodeError;
use entry::{ENTRY, IngressLink};
use hosts::{HostContext, Shared, peer_interface, way_interface};
use stations::{Finder, Station, StationLink, StationWay};

pub use destinations::destinations;
pub use state::state;
pub use stations::AddressNames;

/// A machine with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The name in the output, such as `pod/default/web`.
    pub name: String,
    /// Usually one address per family.
    pub addresses: Vec<IpAddr>,
}

/// The machines around the node.
#[derive(Debug, Clone, Default)]
pub struct Around {
    /// Machines that are simulated one by one.
    pub peers: Vec<Peer>,
    /// Other reachable addresses, which share their gateway's machine.
    pub crowd: BTreeSet<IpAddr>,
    /// Names of addresses.
    pub names: AddressNames,
    /// Listening sockets of the node; `None`: programs listen everywhere.
    pub sockets: Option<BTreeSet<Listener>>,
    /// The user's answers to unknown matches.
    pub assumptions: Assumptions,
    /// Interfaces of the node with invented names.
    pub invented: BTreeSet<String>,
    /// Addresses in the node's networks that it announces: neighbours send packets for them to it.
    pub announced: BTreeSet<IpAddr>,
    /// A peer's address and its ingress interface, if answers use another.
    pub entry: Option<(IpAddr, String)>,
}

/// The node and the machines around it.
#[derive(Debug, Clone)]
pub struct Machines {
    /// The machines on their links.
    pub network: Network,
    /// The node.
    pub node: HostId,
    /// Assumptions, in sentences.
    pub assumed: BTreeSet<String>,
    at: BTreeMap<IpAddr, HostId>,
    /// The state of neighbours that do not answer, by interface and address.
    unresolved: BTreeMap<(String, IpAddr), String>,
}

impl Machines {
    /// Builds the machines.
    ///
    /// # Errors
    /// The snapshot has no network, or its parts contradict each other.
    pub fn build(snapshot: &Snapshot, state: &NodeState, around: &Around) -> Result<Machines, NodeError> {
        let listed = snapshot.network.as_ref().ok_or(NodeError::NoNetwork)?;
        let mut assumed = BTreeSet::new();
        let name = match snapshot.node_name.as_deref().unwrap_or(&snapshot.host) {
            "" => "node".to_owned(),
            name => format!("node/{name}"),
        };
        let builder = node::NodeInputs { name: &name, snapshot, listed, state, around }.builder(&mut assumed);
        // A preliminary node: bridge ports depend on the stations.
        let node = builder.clone().build()?;
        let mut stations = Finder::new(listed, &node, &around.names, &mut assumed).find(&around.peers, &around.crowd);
        let entry = around.entry.as_ref();
        let entry = entry.map(|(address, interface)| IngressLink::find(*address, interface, listed, &node, &stations));
        let entry = entry.transpose()?.flatten();
        stations.extend(entry.as_ref().and_then(|entry| unrouted(entry, &around.peers, &stations)));
        if !around.announced.is_empty() {
            let listed: Vec<String> = around.announced.iter().take(4).map(ToString::to_string).collect();
            let more = if around.announced.len() > 4 { " and others" } else { "" };
            assumed.insert(format!(
                "neighbours send packets for {}{more} to this node: no machine is known to have them",
                listed.join(", ")
            ));
        }
        let node = sockets(with_ports(builder, listed, &stations), around).build()?;
        let announced: Vec<IpAddr> = around.announced.iter().copied().collect();
        let switched = switched(listed);
        let links = || stations.iter().flat_map(Station::links);
        for name in switched.iter().filter(|name| links().any(|link| link.interface == **name)) {
            assumed.insert(format!(
                "Open vSwitch changes no packet of the machines on {name}, and hands each of their answers to this node"
            ));
        }
        let shared = Shared { announced: &announced, entry: entry.as_ref(), switched: &switched };
        let (network, node, at) = connect(node, &stations, &shared)?;
        Ok(Machines { network, node, assumed, at, unresolved: unresolved(listed) })
    }

    /// The neighbouring machine with an address.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Option<HostId> {
        self.at.get(&address).copied()
    }

    /// Whether the node reaches an address without a gateway.
    #[must_use]
    pub fn is_neighbour(&self, address: IpAddr) -> bool {
        matches!(self.network.host(self.node).way_to(address), RouteTo::Out { next_hop, .. } if next_hop == address)
    }

    /// Whether the node has the address.
    #[must_use]
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.network.host(self.node).way_to(address) == RouteTo::Itself
    }

    /// The interface that is set down and whose network has the address.
    #[must_use]
    pub fn down_towards(&self, address: IpAddr) -> Option<&str> {
        self.network.host(self.node).down_towards(address)
    }

    /// Returns, in sentences, the next hops of the node on the packet's paths that did not answer the node.
    #[must_use]
    pub fn unanswering(&self, outcomes: &Outcomes) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        if self.unresolved.is_empty() {
            return found;
        }
        for (_, journey) in &outcomes.ways {
            for leg in [Some(&journey.request), journey.reply.as_ref()].into_iter().flatten() {
                let mut here = false;
                for event in &leg.trace {
                    match event {
                        Event::Sent { host, .. } | Event::Arrived { host, .. } => {
                            here = **host == *self.network.host(self.node).name();
                        }
                        Event::Routed { interface: Some(interface), next_hop: Some(hop) } if here => {
                            let state = self.unresolved.get(&(interface.to_string(), *hop));
                            found.extend(state.map(|state| {
                                format!("{hop} on {interface} answers, although it did not answer the node ({state})")
                            }));
                        }
                        _ => {}
                    }
                }
            }
        }
        found
    }
}

/// Returns the caller that no route of the node leads to.
fn unrouted(entry: &IngressLink, peers: &[Peer], stations: &[Station]) -> Option<Station> {
    let is_known = stations.iter().any(|station| station.own().any(|own| own == entry.address));
    let peer = peers.iter().find(|peer| peer.addresses.contains(&entry.address)).filter(|_| !is_known)?;
    Some(Station { name: peer.name.clone(), addresses: vec![entry.address], ..Station::default() })
}

fn unresolved(listed: &svclab_snapshot::network::Network) -> BTreeMap<(String, IpAddr), String> {
    let all = listed.unresolved.iter();
    all.map(|one| ((one.interface.clone(), one.address), one.state.clone())).collect()
}

/// Links the node and the machines around it.
fn connect(
    node: Host,
    stations: &[Station],
    shared: &Shared<'_>,
) -> Result<(Network, HostId, BTreeMap<IpAddr, HostId>), NodeError> {
    let mut behind: BTreeMap<&str, Vec<&Station>> = BTreeMap::new();
    for station in stations {
        for way in &station.ways {
            if let StationWay::Behind(gateway) = way {
                behind.entry(gateway).or_default().push(station);
            }
        }
    }
    let mut gateways: BTreeMap<&str, Vec<(&str, &StationLink)>> = BTreeMap::new();
    for station in stations.iter().filter(|station| behind.contains_key(station.name.as_str())) {
        for link in station.links() {
            gateways.entry(&link.interface).or_default().push((&station.name, link));
        }
    }
    let context = HostContext { node: &node, shared, behind: &behind, gateways: &gateways };
    let mut network = Network::new();
    let mut ids: BTreeMap<&str, HostId> = BTreeMap::new();
    for station in stations {
        ids.insert(&station.name, network.add(context.host(station).build()?));
    }
    let node = network.add(node);
    let mut at: BTreeMap<IpAddr, HostId> = BTreeMap::new();
    let mut ends: BTreeMap<&str, Vec<(HostId, String)>> = BTreeMap::new();
    let mut end = |name, id, interface: String| {
        ends.entry(name).or_insert_with(|| vec![(node, str::to_owned(name))]).push((id, interface));
    };
    for station in stations {
        let id = ids[station.name.as_str()];
        for address in station.own() {
            at.entry(address).or_insert(id);
        }
        for (number, way) in station.ways.iter().enumerate() {
            if let StationWay::Link(link) = way {
                end(link.end(), id, way_interface(number));
            }
        }
    }
    for station in stations {
        for address in &station.others {
            at.entry(*address).or_insert(ids[station.name.as_str()]);
        }
    }
    if let Some((entry, caller)) = shared.entry.and_then(|entry| Some((entry, at.get(&entry.address)?))) {
        end(&entry.end, *caller, ENTRY.to_owned());
    }
    for ends in ends.values() {
        let ends: Vec<(HostId, &str)> = ends.iter().map(|(id, interface)| (*id, interface.as_str())).collect();
        network.link(&ends).map_err(NodeError::Network)?;
    }
    for (gateway, peers) in &behind {
        for (number, peer) in peers.iter().enumerate() {
            let is_this = |way: &StationWay| matches!(way, StationWay::Behind(name) if name == gateway);
            let Some(way) = peer.ways.iter().position(is_this) else { continue };
            let (near, far) = (peer_interface(number), way_interface(way));
            let ends = [(ids[gateway], near.as_str()), (ids[peer.name.as_str()], far.as_str())];
            network.link(&ends).map_err(NodeError::Network)?;
        }
    }
    Ok((network, node, at))
}

/// Adds bridge ports, in hairpin mode if the existing ones are.
fn with_ports(builder: HostBuilder, listed: &svclab_snapshot::network::Network, stations: &[Station]) -> HostBuilder {
    let missing: BTreeSet<(&str, &str)> = stations
        .iter()
        .flat_map(Station::links)
        .filter_map(|link| Some((link.port.as_deref()?, link.interface.as_str())))
        .filter(|(port, _)| !listed.links.iter().any(|link| link.name == *port))
        .collect();
    missing.into_iter().fold(builder, |builder, (port, bridge)| {
        let mut others = listed.links.iter().filter(|link| link.controller.as_deref() == Some(bridge));
        builder.interface(HostInterface::new(port).port_of(bridge, others.all(|link| link.hairpin)))
    })
}

/// Returns the internal ports of Open vSwitch. Its flows are not known; CNIs return answers to the node, which has
/// translated the request.
fn switched(listed: &svclab_snapshot::network::Network) -> BTreeSet<&str> {
    let ports = listed.links.iter().filter(|link| link.kind.as_deref() == Some("openvswitch"));
    ports.map(|link| link.name.as_str()).collect()
}

fn sockets(builder: HostBuilder, around: &Around) -> HostBuilder {
    match &around.sockets {
        Some(sockets) => sockets.iter().copied().fold(builder, HostBuilder::listener),
        None => everywhere(builder),
    }
}

fn everywhere(builder: HostBuilder) -> HostBuilder {
    [Protocol::TCP, Protocol::UDP, Protocol::SCTP]
        .into_iter()
        .fold(builder, |builder, protocol| builder.listener(Listener { protocol, address: None, port: None }))
}

fn everything(like: IpAddr) -> Masked {
    Masked::from(if like.is_ipv4() { IpNet::V4(Ipv4Net::default()) } else { IpNet::V6(Ipv6Net::default()) })
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The gateway on links where the node has no address.
fn link_local(like: IpAddr) -> IpAddr {
    if like.is_ipv4() {
        Ipv4Addr::new(169, 254, 1, 1).into()
    } else {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into()
    }
}
