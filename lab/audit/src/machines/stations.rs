//! Finds the machines around the node by its routes and neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use svclab_sim::host::{Host, RouteTo};
use svclab_snapshot::network::Network;

use super::node::is_bridge;
use super::{Peer, is_link_local};

/// A machine, on links of the node or behind machines on its links.
#[derive(Debug, Clone, Default)]
pub(super) struct Station {
    pub(super) name: String,
    /// The first is that of the main route. Empty if no route leads to the machine.
    pub(super) ways: Vec<StationWay>,
    /// The addresses of a machine that is not on a link.
    pub(super) addresses: Vec<IpAddr>,
    /// Addresses behind the machine that have no machine of their own.
    pub(super) others: BTreeSet<IpAddr>,
}

/// A way from the node to a machine. The machine has an interface for each.
#[derive(Debug, Clone)]
pub(super) enum StationWay {
    Link(StationLink),
    /// The name of the machine to which the node sends.
    Behind(String),
}

/// A machine's place on a link of the node.
#[derive(Debug, Clone, Default)]
pub(super) struct StationLink {
    pub(super) interface: String,
    /// The bridge port, if the interface is a bridge.
    pub(super) port: Option<String>,
    pub(super) addresses: BTreeSet<IpAddr>,
}

impl Station {
    pub(super) fn links(&self) -> impl Iterator<Item = &StationLink> {
        self.ways.iter().filter_map(StationWay::link)
    }

    /// Returns the machine's addresses, without those behind it.
    pub(super) fn own(&self) -> impl Iterator<Item = IpAddr> {
        self.links().flat_map(|link| &link.addresses).chain(&self.addresses).copied()
    }
}

impl StationWay {
    pub(super) fn link(&self) -> Option<&StationLink> {
        match self {
            StationWay::Link(link) => Some(link),
            StationWay::Behind(_) => None,
        }
    }
}

impl StationLink {
    /// The node's interface that the link's other machines are on.
    pub(super) fn end(&self) -> &str {
        self.port.as_deref().unwrap_or(&self.interface)
    }
}

/// Names of pods and nodes by address.
pub type AddressNames = BTreeMap<IpAddr, String>;

pub(super) struct Finder<'a> {
    network: &'a Network,
    node: &'a Host,
    names: &'a AddressNames,
    assumed: &'a mut BTreeSet<String>,
    /// Bridge ports that have a station.
    taken: BTreeSet<String>,
    /// By bridge: the first address without a learned port, and the number of such addresses.
    unlearned: BTreeMap<String, (IpAddr, usize)>,
    /// Interfaces on whose links a crowd is one machine.
    shared: BTreeSet<String>,
    /// By name.
    stations: BTreeMap<String, Station>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(
        network: &'a Network,
        node: &'a Host,
        names: &'a AddressNames,
        assumed: &'a mut BTreeSet<String>,
    ) -> Finder<'a> {
        let (taken, unlearned, stations) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        let shared = shared(network);
        Finder { network, node, names, assumed, taken, unlearned, shared, stations }
    }

    /// Each peer becomes a machine; each address of `crowd` becomes an address of the gateways that the node's routes
    /// name for it. Returns the machines on links by interface and name, each before those behind it.
    pub(super) fn find(mut self, peers: &[Peer], crowd: &BTreeSet<IpAddr>) -> Vec<Station> {
        for peer in peers {
            for address in &peer.addresses {
                self.peer(peer, *address);
            }
        }
        let own: BTreeSet<IpAddr> = peers.iter().flat_map(|peer| peer.addresses.iter().copied()).collect();
        let others: BTreeSet<IpAddr> = crowd.difference(&own).copied().collect();
        // Gateways' own addresses need no further machine.
        let (direct, behind): (Vec<IpAddr>, Vec<IpAddr>) =
            others.into_iter().partition(|address| self.is_direct(*address));
        for address in behind.into_iter().chain(direct) {
            self.one_of_many(address);
        }
        for (bridge, (first, count)) in &self.unlearned {
            let more = if *count > 1 { format!(" and {} more are", count - 1) } else { " is".to_owned() };
            self.assumed
                .insert(format!("{first}{more} behind ports of {bridge} of their own: it has not learned which"));
        }
        self.in_order(peers)
    }

    fn in_order(mut self, peers: &[Peer]) -> Vec<Station> {
        let behind = |station: &Station| match station.ways.first() {
            Some(StationWay::Behind(gateway)) => Some(gateway.clone()),
            _ => None,
        };
        let mut far: BTreeMap<String, Vec<Station>> = BTreeMap::new();
        for peer in peers {
            let Some(gateway) = self.stations.get(&peer.name).and_then(behind) else { continue };
            far.entry(gateway).or_default().extend(self.stations.remove(&peer.name));
        }
        let mut near: Vec<Station> = self.stations.into_values().collect();
        near.sort_by(|one, other| {
            let key = |station: &Station| station.links().next().map(|link| link.interface.clone());
            key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
        });
        let mut all = Vec::with_capacity(near.len());
        for station in near {
            let behind = far.remove(&station.name).unwrap_or_default();
            all.push(station);
            all.extend(behind);
        }
        all.extend(far.into_values().flatten());
        all
    }

    fn peer(&mut self, peer: &Peer, address: IpAddr) {
        for way in self.node.ways_to(address) {
            let RouteTo::Out { interface, next_hop } = way else { continue };
            if next_hop == address {
                self.link(&interface, next_hop, &peer.name);
                continue;
            }
            // A pod of the node is behind no gateway, whatever the default routes of other tables.
            if self.is_pod(address) {
                continue;
            }
            let gateway = self.gateway_name(next_hop);
            self.link(&interface, next_hop, &gateway);
            let station = self.station(&peer.name);
            if gateway == peer.name {
                // The peer is the gateway to its further addresses.
                station.others.insert(address);
                continue;
            }
            let is_known = |way: &StationWay| matches!(way, StationWay::Behind(known) if *known == gateway);
            if !station.ways.iter().any(is_known) {
                station.ways.push(StationWay::Behind(gateway));
            }
            if !station.addresses.contains(&address) {
                station.addresses.push(address);
            }
        }
    }

    fn one_of_many(&mut self, address: IpAddr) {
        for way in self.node.ways_to(address) {
            let RouteTo::Out { interface, next_hop } = way else { continue };
            if next_hop != address {
                let name = self.gateway_name(next_hop);
                self.link(&interface, next_hop, &name).others.insert(address);
                continue;
            }
            let name = self.names.get(&address).cloned().unwrap_or_else(|| address.to_string());
            let gateway = self.gateway_name(next_hop);
            if self.stations.contains_key(&gateway) || name.starts_with("node/") {
                self.link(&interface, next_hop, &gateway);
                continue;
            }
            let name = if self.shared.contains(&interface) { format!("machines on {interface}") } else { name };
            self.link(&interface, next_hop, &name);
        }
    }

    fn is_direct(&self, address: IpAddr) -> bool {
        matches!(self.node.place_of(address), RouteTo::Out { next_hop, .. } if next_hop == address)
    }

    /// Whether the address is on a bridge, or alone on its link.
    fn is_pod(&self, address: IpAddr) -> bool {
        matches!(self.node.place_of(address),
            RouteTo::Out { next_hop, interface } if next_hop == address && !self.shared.contains(&interface))
    }

    fn gateway_name(&self, next_hop: IpAddr) -> String {
        self.names.get(&next_hop).cloned().unwrap_or_else(|| format!("gateway {next_hop}"))
    }

    fn station(&mut self, name: &str) -> &mut Station {
        let empty = || Station { name: name.to_owned(), ..Station::default() };
        self.stations.entry(name.to_owned()).or_insert_with(empty)
    }

    /// Adds an address to the named machine's end of the interface's link.
    fn link(&mut self, interface: &str, address: IpAddr, name: &str) -> &mut Station {
        let known = self.stations.get(name).into_iter().flat_map(Station::links);
        let known = known.into_iter().any(|link| link.interface == interface);
        let port = (!known && is_bridge(self.network, interface)).then(|| self.port(interface, address));
        let station = self.station(name);
        if !known {
            let link = StationLink { interface: interface.to_owned(), port, addresses: BTreeSet::new() };
            station.ways.push(StationWay::Link(link));
        }
        for way in &mut station.ways {
            if let StationWay::Link(link) = way
                && link.interface == interface
            {
                link.addresses.insert(address);
            }
        }
        station
    }

    /// Returns the learned bridge port, else an unused one.
    fn port(&mut self, bridge: &str, address: IpAddr) -> String {
        let ports = || self.network.links.iter().filter(|link| link.controller.as_deref() == Some(bridge));
        let known = self.network.neighbours.iter().find(|one| one.interface == bridge && one.address == address);
        let behind = known.and_then(|known| {
            let learned = self.network.forwarding.iter().find(|entry| entry.mac == known.mac);
            learned.map(|entry| entry.port.clone()).filter(|port| ports().any(|link| link.name == *port))
        });
        if let Some(port) = behind {
            self.taken.insert(port.clone());
            return port;
        }
        let learned: BTreeSet<&str> = self.network.forwarding.iter().map(|entry| entry.port.as_str()).collect();
        let mut free = ports().map(|link| &link.name);
        let free = free.find(|name| !self.taken.contains(*name) && !learned.contains(name.as_str())).cloned();
        let port = free.unwrap_or_else(|| format!("{bridge}-port{}", self.taken.len()));
        self.unlearned.entry(bridge.to_owned()).or_insert((address, 0)).1 += 1;
        self.taken.insert(port.clone());
        port
    }
}

/// Returns the interfaces that lead to many machines: all but bridges, whose ports tell machines apart, and a pod's
/// veth, to which only routes to single addresses lead.
fn shared(network: &Network) -> BTreeSet<String> {
    let is_network = |interface: &str| {
        network.routes.iter().any(|route| {
            route.kind == "unicast"
                && route.to.prefix_len() < route.to.max_prefix_len()
                && !is_link_local(route.to.addr())
                && route.hops.iter().any(|hop| hop.via.is_none() && hop.interface.as_deref() == Some(interface))
        })
    };
    let links = network.links.iter().filter(|link| match link.kind.as_deref() {
        Some("bridge") => false,
        Some("veth") => is_network(&link.name),
        _ => true,
    });
    links.map(|link| link.name.clone()).collect()
}
