//! Builds simulated machines from a snapshot: the node, and the machines around it by its routes and neighbours.
//!
//! Callers and the endpoints of a call are machines of their own. All other endpoints behind a gateway are addresses of
//! that gateway, so that 50,000 cost little.

mod destinations;
mod entry;
mod node;
mod state;
mod stations;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use svclab_sim::assume::Assumptions;
use svclab_sim::cluster::NodeState;
use svclab_sim::host::{
    Host, HostBuilder, HostInterface, LOCAL_TABLE, Listener, MAIN_TABLE, PolicyAction, PolicyRule, Route, RouteKind,
    RouteTo, Sysctls,
};
use svclab_sim::masked::Masked;
use svclab_sim::network::{HostId, Network};
use svclab_sim::protocol::{Family, Protocol};
use svclab_snapshot::Snapshot;

use crate::error::NodeError;
use entry::{ENTRY, IngressLink};
use stations::{Finder, Station};

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
}

const NEAR: &str = "eth0";
const BEHIND: &str = "behind";

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
        let stations = Finder::new(listed, &node, &around.names, &mut assumed).find(&around.peers, &around.crowd);
        let entry = around.entry.as_ref();
        let entry = entry.map(|(address, interface)| IngressLink::find(*address, interface, listed, &node, &stations));
        let entry = entry.transpose()?.flatten();
        if !around.announced.is_empty() {
            let listed: Vec<String> = around.announced.iter().take(4).map(ToString::to_string).collect();
            let more = if around.announced.len() > 4 { " and others" } else { "" };
            assumed.insert(format!(
                "neighbours send packets for {}{more} to this node: no machine is known to have them",
                listed.join(", ")
            ));
        }
        let builder = sockets(with_ports(builder, listed, &stations), around);
        let mut network = Network::new();
        let node = builder.build()?;
        let announced = &around.announced;
        let switched = switched(listed);
        for name in switched.iter().filter(|name| stations.iter().any(|station| station.interface == **name)) {
            assumed.insert(format!(
                "Open vSwitch changes no packet of the machines on {name}, and hands each of their answers to this node"
            ));
        }
        let links = Links { node: &node, stations: &stations, announced, entry: entry.as_ref(), switched: &switched };
        let (mut added, mut at) = (Vec::new(), BTreeMap::new());
        for station in &stations {
            added.push(links.add(&mut network, station, &mut at)?);
        }
        let node_id = network.add(node.clone());
        let mut ends: BTreeMap<&str, Vec<(HostId, &str)>> = BTreeMap::new();
        for (station, id) in stations.iter().zip(added) {
            let end = station.port.as_deref().unwrap_or(&station.interface);
            ends.entry(end).or_insert_with(|| vec![(node_id, end)]).push((id, NEAR));
        }
        if let Some((entry, caller)) = entry.as_ref().and_then(|entry| Some((entry, at.get(&entry.address)?))) {
            let end = entry.end.as_str();
            ends.entry(end).or_insert_with(|| vec![(node_id, end)]).push((*caller, ENTRY));
        }
        for ends in ends.into_values() {
            network.link(&ends).map_err(NodeError::Network)?;
        }
        Ok(Machines { network, node: node_id, assumed, at })
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
}

/// Adds bridge ports, in hairpin mode if the existing ones are.
fn with_ports(builder: HostBuilder, listed: &svclab_snapshot::network::Network, stations: &[Station]) -> HostBuilder {
    let missing: BTreeSet<(&str, &str)> = stations
        .iter()
        .filter_map(|station| Some((station.port.as_deref()?, station.interface.as_str())))
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

struct Links<'a> {
    node: &'a Host,
    stations: &'a [Station],
    announced: &'a BTreeSet<IpAddr>,
    entry: Option<&'a IngressLink>,
    switched: &'a BTreeSet<&'a str>,
}

impl Links<'_> {
    fn add(
        &self,
        network: &mut Network,
        station: &Station,
        at: &mut BTreeMap<IpAddr, HostId>,
    ) -> Result<HostId, NodeError> {
        let near = station
            .addresses
            .iter()
            .fold(HostInterface::new(NEAR), |near, own| near.address(*own, self.length(station, *own)));
        let sysctls = Sysctls { ip_forward: true, ipv6_forward: true, ..Sysctls::default() };
        let mut host = everywhere(Host::builder(&station.name).sysctls(sysctls).interface(near));
        host = nothing_back(host);
        if let Some(entry) = self.entry.filter(|entry| station.addresses.contains(&entry.address)) {
            host = entry.onto(host).policy(entry.rule());
        }
        let others =
            station.others.iter().fold(HostInterface::new(BEHIND), |others, own| others.address(*own, bits(*own)));
        host = host.interface(others);
        for family in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            host = self.towards_node(host, station, family);
        }
        // Machines behind other gateways of the link are reached without the node.
        for other in
            self.stations.iter().filter(|other| other.interface == station.interface && other.name != station.name)
        {
            for address in other.behind.iter().flat_map(|peer| &peer.addresses) {
                if let Some(via) = other.addresses.iter().find(|via| via.is_ipv4() == address.is_ipv4()) {
                    host = host.route(Route::via(Masked::from(*address), *via, NEAR));
                }
            }
        }
        for (index, peer) in station.behind.iter().enumerate() {
            let link = format!("peer{index}");
            host = host.interface(HostInterface::new(&link));
            for address in &peer.addresses {
                host = host.route(Route::link(Masked::from(*address), &link));
            }
        }
        let id = network.add(host.build()?);
        at.extend(station.addresses.iter().chain(&station.others).map(|address| (*address, id)));
        for (index, peer) in station.behind.iter().enumerate() {
            let entry = self.entry.filter(|entry| peer.addresses.contains(&entry.address));
            let behind = network.add(alone(peer, entry)?);
            at.extend(peer.addresses.iter().map(|address| (*address, behind)));
            network.link(&[(id, &format!("peer{index}")), (behind, NEAR)]).map_err(NodeError::Network)?;
        }
        Ok(id)
    }

    fn length(&self, station: &Station, address: IpAddr) -> u8 {
        if self.switched.contains(station.interface.as_str()) {
            return bits(address);
        }
        let own = self.node.addresses_of(&station.interface).iter();
        let near = own.filter_map(|own| IpNet::new(own.ip, own.prefix).ok()).find(|net| net.contains(&address));
        near.map_or(bits(address), |net| net.prefix_len())
    }

    /// Adds a default route by the node's address on the link, else by any machine at the far end.
    fn towards_node(&self, host: HostBuilder, station: &Station, family: IpAddr) -> HostBuilder {
        let everything = everything(family);
        let own = self.node.addresses_of(&station.interface).iter();
        let own = own.map(|own| own.ip).filter(|own| own.is_ipv4() == family.is_ipv4());
        // A global gateway address reads better than a link-local one.
        match own.clone().find(|own| !is_link_local(*own)).or_else(|| own.clone().next()) {
            Some(via) => {
                let announced = self.announced.iter().filter(|address| address.is_ipv4() == family.is_ipv4());
                let all = announced.map(|address| Masked::from(*address)).chain([everything]);
                all.fold(host, |host, to| host.route(Route::via(to, via, NEAR)))
            }
            None => {
                let via = link_local(family);
                host.route(Route::via(everything, via, NEAR)).neighbour(NEAR, via)
            }
        }
    }
}

/// Drops packets for unknown addresses instead of returning them by the default route.
fn nothing_back(mut host: HostBuilder) -> HostBuilder {
    for family in [Family::V4, Family::V6] {
        let rule = |priority, input: Option<&str>, action| PolicyRule {
            family,
            priority,
            from: None,
            to: None,
            input: input.map(str::to_owned),
            output: None,
            mark: None,
            invert: false,
            action,
        };
        let lookup = |table, suppress| PolicyAction::Lookup { table, suppress };
        host = host.policy(rule(0, None, lookup(LOCAL_TABLE, None)));
        host = host.policy(rule(1, Some(NEAR), lookup(MAIN_TABLE, Some(0))));
        host = host.policy(rule(2, Some(NEAR), PolicyAction::Refuse(RouteKind::Blackhole)));
        host = host.policy(rule(3, None, lookup(MAIN_TABLE, None)));
    }
    host
}

fn alone(peer: &Peer, entry: Option<&IngressLink>) -> Result<Host, NodeError> {
    let near = peer.addresses.iter().fold(HostInterface::new(NEAR), |near, own| near.address(*own, bits(*own)));
    let mut host = everywhere(Host::builder(&peer.name).interface(near));
    for family in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        let everything = everything(family);
        let via = link_local(family);
        host = host.route(Route::via(everything, via, NEAR)).neighbour(NEAR, via);
    }
    if let Some(entry) = entry {
        host = entry.rules().into_iter().fold(entry.onto(host), HostBuilder::policy);
    }
    Ok(host.build()?)
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
