//! Determines which interface of a link receives a packet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::OnceLock;

use super::Network;
use crate::host::Host;
use crate::walk::BridgePorts;

#[derive(Debug, Clone, Default)]
pub(super) struct NetworkLink {
    pub(super) ends: Vec<(usize, usize)>,
    /// Made at the first search of a link with many ends.
    index: OnceLock<LinkIndex>,
}

/// Which ends of a link may answer for an address, by their positions.
#[derive(Debug, Clone, Default)]
struct LinkIndex {
    by_address: HashMap<IpAddr, Vec<usize>>,
    /// Ports of bridges, which answer for what is behind them.
    ports: Vec<usize>,
}

/// Links with fewer ends are searched one by one.
const MANY_ENDS: usize = 8;

impl NetworkLink {
    /// Must be called when a machine on the link has other addresses.
    pub(super) fn forget_addresses(&mut self) {
        self.index = OnceLock::new();
    }

    fn index(&self, network: &Network) -> &LinkIndex {
        self.index.get_or_init(|| {
            let mut index = LinkIndex::default();
            for (position, (host, interface)) in self.ends.iter().enumerate() {
                let host = &network.hosts[*host];
                if host.bridge_of[*interface].is_some() {
                    index.ports.push(position);
                    continue;
                }
                for address in host
                    .interfaces
                    .iter()
                    .flat_map(|one| &one.addresses)
                    .map(|own| own.ip)
                    .chain(host.local.iter().copied())
                {
                    let places = index.by_address.entry(address).or_default();
                    if places.last() != Some(&position) {
                        places.push(position);
                    }
                }
            }
            index
        })
    }
}

impl Network {
    fn others(&self, host: usize, interface: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let link = self.link_of[host].get(interface).copied().flatten();
        let ends = link.map_or(&[][..], |link| &self.links[link].ends);
        ends.iter().copied().filter(move |end| *end != (host, interface))
    }

    pub(super) fn neighbour(&self, host: usize, interface: usize, next_hop: IpAddr) -> Option<(usize, usize)> {
        if self.hosts[host].neighbours.contains(&(interface, next_hop)) {
            // A permanent neighbour entry refers to the link's first other end.
            return self.others(host, interface).next();
        }
        let link = &self.links[self.link_of[host].get(interface).copied().flatten()?];
        if link.ends.len() < MANY_ENDS {
            return self.others(host, interface).find(|(far, at)| self.answers(*far, *at, next_hop));
        }
        let index = link.index(self);
        let known = index.by_address.get(&next_hop).into_iter().flatten().chain(&index.ports);
        let ends = known.map(|position| (*position, link.ends[*position]));
        let answering = ends.filter(|(_, end)| *end != (host, interface) && self.answers(end.0, end.1, next_hop));
        answering.min_by_key(|(position, _)| *position).map(|(_, end)| end)
    }

    /// Whether the interface answers for `address`: ARP for the machine's addresses (see `arp_ignore`), neighbour
    /// discovery for the interface's.
    fn answers(&self, host: usize, interface: usize, address: IpAddr) -> bool {
        let this = &self.hosts[host];
        let Some(bridge) = this.bridge_of[interface] else {
            return has(this, interface, address);
        };
        has(this, bridge, address) || self.port(host, bridge, Some(interface), address).is_some()
    }

    fn port(&self, host: usize, bridge: usize, except: Option<usize>, address: IpAddr) -> Option<usize> {
        let ports = self.hosts[host].bridge_of.iter().enumerate();
        let ports = ports.filter(|(port, of)| **of == Some(bridge) && Some(*port) != except).map(|(port, _)| port);
        let mut found = ports.filter(|port| self.others(host, *port).any(|(far, at)| self.answers(far, at, address)));
        found.next()
    }
}

fn has(host: &Host, interface: usize, address: IpAddr) -> bool {
    let own = || host.interfaces[interface].addresses.iter().any(|own| own.ip == address);
    match address {
        IpAddr::V4(v4) if host.settings(interface).arp_ignore == 0 => !v4.is_loopback() && host.is_local(address),
        _ => own(),
    }
}

pub(super) struct PortsOf<'a> {
    pub(super) network: &'a Network,
    pub(super) host: usize,
}

impl BridgePorts for PortsOf<'_> {
    fn port_towards(&self, bridge: usize, next_hop: IpAddr) -> Option<usize> {
        self.network.port(self.host, bridge, None, next_hop)
    }
}
