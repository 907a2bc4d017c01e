//! Neighbour discovery over IPv6: without it a machine sends nothing to a neighbour. Only rules are asked: whether a
//! machine answers for the address is known.

use std::net::{IpAddr, Ipv6Addr};

use super::HostId;
use super::link::PortsOf;
use super::run::NetworkWalk;
use crate::chance::{self, Chance};
use crate::host::Host;
use crate::packet::{Packet, PacketBody};
use crate::protocol::Family;
use crate::trace::{DropReason, Event, NotModelled, StoppedDiscovery, Trace};
use crate::walk::{BridgePorts, DiscoveryPath, HostState, Walker};

/// A packet's hop to a neighbour.
pub(super) struct Hop<'a> {
    pub(super) packet: &'a Packet,
    pub(super) next_hop: IpAddr,
    /// Host and interface.
    pub(super) from: (usize, usize),
    pub(super) to: (usize, usize),
}

impl NetworkWalk<'_> {
    /// Returns the machine whose rules stop the search for the next hop, and the reason.
    pub(super) fn stopped_discovery(&self, hop: &Hop<'_>) -> Option<(HostId, DropReason)> {
        let IpAddr::V6(target) = hop.next_hop else { return None };
        let asker = &self.network.hosts[hop.from.0];
        if is_resolved(asker, hop.from.1, target) {
            return None;
        }
        let source = source(asker, hop);
        let (near, far) = (hop.from.1, self.far_path(hop));
        let back = match far {
            DiscoveryPath::Bridged(from, to) => DiscoveryPath::Bridged(to, from),
            _ => DiscoveryPath::Sent(hop.to.1),
        };
        let search = |from: Ipv6Addr, to: Ipv6Addr, [there, met, answered, received]: [(usize, DiscoveryPath); 4]| {
            let (solicitation, advertisement) = (packet(from, solicited_node(to), false), packet(to, from, true));
            let steps =
                [(there, &solicitation), (met, &solicitation), (answered, &advertisement), (received, &advertisement)];
            steps.into_iter().find_map(|((host, path), packet)| {
                let towards = if is_advertisement(packet) { from } else { to };
                let why = self.lost_on(host, packet, path, towards.into())?;
                Some((host, StoppedDiscovery { address: to.into(), advertisement: is_advertisement(packet), why }))
            })
        };
        let [here, there] = [hop.from.0, hop.to.0];
        let [sent, received] = [(here, DiscoveryPath::Sent(near)), (here, DiscoveryPath::Received(near))];
        let (host, stopped) = search(source, target, [sent, (there, far), (there, back), received])?;
        // `ndisc_recv_ns`: a machine also learns its neighbour from the neighbour's own search.
        let other = || search(target, source, [(there, back), received, sent, (there, far)]);
        let why = match stopped.why {
            DropReason::NotModelled(unknown) => DropReason::NotModelled(unknown),
            _ if other().is_none_or(|(_, stopped)| matches!(stopped.why, DropReason::NotModelled(_))) => {
                self.undecided(host, &stopped)
            }
            _ => DropReason::Discovery(Box::new(stopped)),
        };
        Some((HostId(host), why))
    }

    fn undecided(&self, host: usize, stopped: &StoppedDiscovery) -> DropReason {
        let host = &self.network.hosts[host];
        let rule = match &stopped.why {
            DropReason::Rule(rule) | DropReason::NftRule(rule) | DropReason::NftPolicy(rule) => Some(rule.clone()),
            DropReason::HopLimit(rule) => rule.clone(),
            _ => None,
        };
        let packet = if stopped.advertisement { "the neighbour advertisement" } else { "the neighbour solicitation" };
        let why = match &rule {
            Some(_) => "is dropped".to_owned(),
            None => format!("is {}", stopped.why),
        };
        DropReason::NotModelled(Box::new(NotModelled {
            host: host.name.clone(),
            rule,
            name: "".into(),
            what: packet.into(),
            why: format!("{why}, and whether the neighbour has searched for the machine itself is unknown").into(),
        }))
    }

    /// How the machine at the far end meets the solicitation: as the neighbour, or as a bridge before it.
    fn far_path(&self, hop: &Hop<'_>) -> DiscoveryPath {
        let (host, interface) = hop.to;
        let far = &self.network.hosts[host];
        let bridge = far.bridge_of[interface].filter(|_| !far.is_local(hop.next_hop));
        let ports = PortsOf { network: self.network, host };
        match bridge.and_then(|bridge| ports.port_towards(bridge, hop.next_hop)) {
            Some(port) => DiscoveryPath::Bridged(interface, port),
            None => DiscoveryPath::Received(interface),
        }
    }

    /// Returns why the packet is lost, or the unknown fact that decides it. Walks it with a state of its own: neighbour
    /// discovery is not tracked. A rule that draws does not stop it, because the kernel repeats it.
    fn lost_on(&self, host: usize, packet: &Packet, path: DiscoveryPath, towards: IpAddr) -> Option<DropReason> {
        let this = &self.network.hosts[host];
        let is_bare = this.programs(Family::V6).all(|program| program.rules.tables.is_empty());
        if is_bare && this.nft.ruleset.tables.is_empty() {
            return None;
        }
        let ports = PortsOf { network: self.network, host };
        let walk = |chance: &mut Chance| {
            let mut trace = Trace::new();
            let mut walker = Walker {
                host: this,
                state: &mut HostState::default(),
                chance,
                trace: &mut trace,
                elements: &mut Vec::new(),
                ports: &ports,
                now: self.network.clock,
            };
            let lost = walker.discovery(packet.clone(), path, towards);
            let asked = trace.into_iter().find_map(|event| match event {
                Event::Undecided { asked, .. } => Some(asked),
                _ => None,
            });
            (lost, asked)
        };
        let (mut lost, mut passes, mut asked) = (None, false, None);
        let all = chance::explore(WALKS, walk, |(why, unknown), _| {
            asked = asked.take().or(unknown);
            passes |= why.is_none();
            lost = lost.take().or(why);
            true
        });
        match (lost, passes, asked) {
            (Some(_), true, Some(asked)) => Some(DropReason::NotModelled(asked)),
            (lost, false, _) if all => lost,
            (Some(unknown @ DropReason::NotModelled(_)), ..) => Some(unknown),
            _ => None,
        }
    }
}

/// The most walks of one packet; each unknown fact doubles them.
const WALKS: usize = 64;

fn packet(source: Ipv6Addr, destination: Ipv6Addr, advertisement: bool) -> Packet {
    let body = PacketBody::Neighbour { advertisement };
    Packet { source: source.into(), destination: destination.into(), body }
}

fn is_advertisement(packet: &Packet) -> bool {
    matches!(packet.body, PacketBody::Neighbour { advertisement: true })
}

/// Whether the next hop needs no search: its entry is permanent, or the link has no hardware addresses or an invented
/// name.
fn is_resolved(asker: &Host, interface: usize, target: Ipv6Addr) -> bool {
    let device = asker.bridge_of[interface].unwrap_or(interface);
    asker.neighbours.contains(&(interface, target.into()))
        || asker.resolved.contains(&(device, target.into()))
        || !asker.interfaces[device].searches
        || asker.interfaces[device].invented
}

/// `ndisc_solicit`: the source of the packet that waits if it is the machine's own, else a link-local address.
fn source(asker: &Host, hop: &Hop<'_>) -> Ipv6Addr {
    const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    match hop.packet.source {
        IpAddr::V6(source) if asker.is_local(source.into()) => source,
        _ => {
            let device = asker.bridge_of[hop.from.1].unwrap_or(hop.from.1);
            let own = asker.interfaces[device].addresses.iter().filter_map(|own| match own.ip {
                IpAddr::V6(own) if own.is_unicast_link_local() => Some(own),
                _ => None,
            });
            own.into_iter().next().unwrap_or(LINK_LOCAL)
        }
    }
}

/// The solicited-node multicast address (RFC 4291, section 2.7.1).
fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(PREFIX | (target.to_bits() & 0xff_ffff))
}
