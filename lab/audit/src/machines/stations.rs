use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use svclab_sim::host::{Host, RouteTo};
use svclab_snapshot::network::Network;

use super::Peer;
use super::node::is_bridge;

/// A machine on a link of the node, with the machines behind it.
#[derive(Debug, Clone, Default)]
pub(super) struct Station {
    pub(super) name: String,
    pub(super) interface: String,
    /// The bridge port, if the interface is a bridge.
    pub(super) port: Option<String>,
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) behind: Vec<Peer>,
    /// Addresses behind the machine that have no machine of their own.
    pub(super) others: BTreeSet<IpAddr>,
}

/// Names of pods and nodes by address.
pub type AddressNames = BTreeMap<IpAddr, String>;

pub(super) struct Finder<'a> {
    pub(super) network: &'a Network,
    pub(super) node: &'a Host,
    pub(super) names: &'a AddressNames,
    pub(super) assumed: &'a mut BTreeSet<String>,
    /// Bridge ports that have a station.
    taken: BTreeSet<String>,
    /// By bridge: the first address without a learned port, and the number of such addresses.
    unlearned: BTreeMap<String, (IpAddr, usize)>,
    /// Keyed by interface and name; a point-to-point link by interface alone.
    stations: BTreeMap<(String, String), Station>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(
        network: &'a Network,
        node: &'a Host,
        names: &'a AddressNames,
        assumed: &'a mut BTreeSet<String>,
    ) -> Finder<'a> {
        let (taken, unlearned, stations) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Finder { network, node, names, assumed, taken, unlearned, stations }
    }

    /// Each peer becomes a machine; each address of `crowd` becomes an address of the gateway that the node's routes name for it.
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
        self.stations.into_values().collect()
    }

    fn peer(&mut self, peer: &Peer, address: IpAddr) {
        let RouteTo::Out { interface, next_hop } = self.node.way_to(address) else { return };
        if next_hop == address {
            self.station(&interface, next_hop, &peer.name);
            return;
        }
        let name = self.gateway_name(next_hop);
        if name == peer.name {
            // The peer is the gateway to its further addresses.
            self.station(&interface, next_hop, &name).others.insert(address);
            return;
        }
        let behind = &mut self.station(&interface, next_hop, &name).behind;
        match behind.iter_mut().find(|known| known.name == peer.name) {
            Some(known) => known.addresses.push(address),
            None => behind.push(Peer { name: peer.name.clone(), addresses: vec![address] }),
        }
    }

    fn one_of_many(&mut self, address: IpAddr) {
        let RouteTo::Out { interface, next_hop } = self.node.way_to(address) else { return };
        if next_hop != address {
            let name = self.gateway_name(next_hop);
            self.station(&interface, next_hop, &name).others.insert(address);
            return;
        }
        let name = self.names.get(&address).cloned().unwrap_or_else(|| address.to_string());
        let gateway = self.gateway_name(next_hop);
        if self.stations.contains_key(&(interface.clone(), gateway.clone())) || name.starts_with("node/") {
            self.station(&interface, next_hop, &gateway);
            return;
        }
        let shared = !self.is_pair(&interface) && !is_bridge(self.network, &interface);
        let name = if shared { format!("machines on {interface}") } else { name };
        self.station(&interface, next_hop, &name);
    }

    fn is_direct(&self, address: IpAddr) -> bool {
        matches!(self.node.way_to(address), RouteTo::Out { next_hop, .. } if next_hop == address)
    }

    fn gateway_name(&self, next_hop: IpAddr) -> String {
        self.names.get(&next_hop).cloned().unwrap_or_else(|| format!("gateway {next_hop}"))
    }

    fn station(&mut self, interface: &str, address: IpAddr, name: &str) -> &mut Station {
        let pair = self.is_pair(interface);
        let key = (interface.to_owned(), if pair { String::new() } else { name.to_owned() });
        let port = match self.stations.get(&key) {
            Some(known) => known.port.clone(),
            None if is_bridge(self.network, interface) => Some(self.port(interface, address)),
            None => None,
        };
        let station = self.stations.entry(key).or_insert_with(|| Station {
            name: name.to_owned(),
            interface: interface.to_owned(),
            port,
            ..Station::default()
        });
        station.addresses.insert(address);
        station
    }

    fn is_pair(&self, interface: &str) -> bool {
        self.network.links.iter().any(|link| link.name == interface && link.kind.as_deref() == Some("veth"))
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
