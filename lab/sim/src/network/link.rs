//! Links: who hears a packet that is sent to a neighbour.

use std::net::IpAddr;

use super::Network;
use crate::host::Host;
use crate::walk::BridgePorts;

/// Interfaces that hear each other.
#[derive(Debug, Clone, Default)]
pub(super) struct NetworkLink {
    /// Host and interface.
    pub(super) ends: Vec<(usize, usize)>,
}

impl Network {
    /// The other ends of an interface's link.
    fn others(&self, host: usize, interface: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let link = self.link_of[host].get(interface).copied().flatten();
        let ends = link.map_or(&[][..], |link| &self.links[link].ends);
        ends.iter().copied().filter(move |end| *end != (host, interface))
    }

    /// Whom a packet reaches that is sent out by an interface to `next_hop`.
    pub(super) fn neighbour(&self, host: usize, interface: usize, next_hop: IpAddr) -> Option<(usize, usize)> {
        if self.hosts[host].neighbours.contains(&(interface, next_hop)) {
            // A permanent entry means whatever is at the far end, if that is one.
            let mut others = self.others(host, interface);
            let far = others.next();
            return if others.next().is_none() { far } else { None };
        }
        self.others(host, interface).find(|(far, at)| self.answers(*far, *at, next_hop))
    }

    /// Whether somebody at or behind that end has the address: ARP answers for any address of the machine (unless
    /// `arp_ignore` says otherwise), neighbour discovery only for the interface's own.
    fn answers(&self, host: usize, interface: usize, address: IpAddr) -> bool {
        let this = &self.hosts[host];
        let Some(bridge) = this.bridge_of[interface] else {
            return has(this, interface, address);
        };
        has(this, bridge, address) || self.port(host, bridge, Some(interface), address).is_some()
    }

    /// The port of a bridge behind which somebody has the address.
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

/// The bridges of one machine.
pub(super) struct PortsOf<'a> {
    pub(super) network: &'a Network,
    pub(super) host: usize,
}

impl BridgePorts for PortsOf<'_> {
    fn port_towards(&self, bridge: usize, next_hop: IpAddr) -> Option<usize> {
        self.network.port(self.host, bridge, None, next_hop)
    }
}
