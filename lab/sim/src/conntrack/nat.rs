//! Chooses and applies translations (net/netfilter/nf_nat_core.c).

use std::net::IpAddr;

use super::{ConntrackTable, FlowDirection, Tuple};
use crate::chance::Chance;
use crate::masked::{bits, from_bits};
use crate::packet::{Packet, PacketBody};
use crate::protocol::Family;
use crate::rules::nat::NatRange;

/// The end that NAT translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Manip {
    /// DNAT, in PREROUTING and OUTPUT.
    Destination,
    /// SNAT, in INPUT and POSTROUTING.
    Source,
}

const ATTEMPTS: u32 = 128;

impl ConntrackTable {
    pub(crate) fn is_set_up(&self, id: usize, manip: Manip) -> bool {
        self.get(id).is_none_or(|connection| match manip {
            Manip::Source => connection.source_done,
            Manip::Destination => connection.destination_done,
        })
    }

    /// Models `nf_nat_setup_info`.
    pub(crate) fn set_up(&mut self, id: usize, range: &NatRange, manip: Manip, chance: &mut Chance) {
        let Some(connection) = self.get(id) else {
            return;
        };
        if connection.confirmed {
            return;
        }
        let current = connection.reply.inverted();
        let chosen = self.unique(id, current, range, manip, chance);
        let Some(connection) = self.get_mut(id) else {
            return;
        };
        match manip {
            Manip::Source => connection.source_done = true,
            Manip::Destination => connection.destination_done = true,
        }
        if chosen != current {
            connection.reply = chosen.inverted();
            match manip {
                Manip::Source => connection.source_nat = true,
                Manip::Destination => connection.destination_nat = true,
            }
        }
    }

    /// Sets up a connection without NAT rule: only a taken source port changes.
    pub(crate) fn set_up_nothing(&mut self, id: usize, manip: Manip, chance: &mut Chance) {
        let Some(connection) = self.get(id) else {
            return;
        };
        let current = connection.reply.inverted();
        let address = if manip == Manip::Source { current.source } else { current.destination };
        let range = NatRange { addresses: Some((address, address)), ..NatRange::default() };
        self.set_up(id, &range, manip, chance);
    }

    /// Models `nf_nat_used_tuple`.
    fn used(&self, tuple: &Tuple, id: usize) -> bool {
        self.taken(&tuple.inverted(), id)
    }

    /// Models `get_unique_tuple`.
    fn unique(&self, id: usize, current: Tuple, range: &NatRange, manip: Manip, chance: &mut Chance) -> Tuple {
        let random = range.random || range.random_fully;
        if manip == Manip::Source && !random {
            if in_range(&current, range) {
                if !self.used(&current, id) {
                    return current;
                }
            } else if let Some(known) = self.known_source(id, &current, range)
                && !self.used(&known, id)
            {
                return known;
            }
        }
        let mut tuple = current;
        choose_address(&mut tuple, range, manip);
        if !random {
            match range.ports {
                Some((first, last)) => {
                    let port = if manip == Manip::Source { tuple.source_port } else { tuple.destination_port };
                    if (first..=last).contains(&port) && (first == last || !self.used(&tuple, id)) {
                        return tuple;
                    }
                }
                None if !self.used(&tuple, id) => return tuple,
                None => {}
            }
        }
        self.choose_port(&mut tuple, range, manip, id, chance);
        tuple
    }

    /// Models `find_appropriate_src`.
    fn known_source(&self, id: usize, current: &Tuple, range: &NatRange) -> Option<Tuple> {
        let connection = self.get(id)?;
        let (original, zones) = (connection.original, connection.zones);
        let same = self.iter().filter(|other| {
            other.confirmed
                && other.zones.original == zones.original
                && other.original.protocol == original.protocol
                && (other.original.source, other.original.source_port) == (current.source, current.source_port)
        });
        let mut found = same.map(|other| {
            let mapped = other.reply.inverted();
            Tuple { source: mapped.source, source_port: mapped.source_port, ..*current }
        });
        found.find(|tuple| in_range(tuple, range))
    }

    /// Models `nf_nat_l4proto_unique_tuple`.
    fn choose_port(&self, tuple: &mut Tuple, range: &NatRange, manip: Manip, id: usize, chance: &mut Chance) {
        let icmp = tuple.protocol.is_icmp();
        if !icmp && !tuple.protocol.has_ports() {
            return;
        }
        let source = icmp || manip == Manip::Source;
        let port = if source { tuple.source_port } else { tuple.destination_port };
        let (first, last) = match range.ports {
            Some(ports) => ports,
            None if icmp => (0, u16::MAX),
            None if manip == Manip::Destination => return,
            None => match port {
                0..512 => (1, 511),
                512..1024 => (600, 1023),
                _ => (1024, u16::MAX),
            },
        };
        let size = u32::from(last) - u32::from(first) + 1;
        let mut attempts = size.min(ATTEMPTS);
        loop {
            let start = chance.offset(65536);
            for step in 0..attempts {
                let port = first + ((start + step) % size) as u16;
                if source {
                    tuple.source_port = port
                } else {
                    tuple.destination_port = port
                }
                if !self.used(tuple, id) {
                    return;
                }
            }
            if attempts >= size || attempts < 16 {
                return;
            }
            attempts /= 2;
        }
    }

    /// Models `nf_nat_packet`; returns whether the connection has NAT of kind `manip`.
    pub(crate) fn translate(&self, id: usize, direction: FlowDirection, manip: Manip, packet: &mut Packet) -> bool {
        let Some(connection) = self.get(id) else {
            return false;
        };
        // Replies reverse the translation of the other end.
        let by_source = (manip == Manip::Source) == (direction == FlowDirection::Original);
        if !(if by_source { connection.source_nat } else { connection.destination_nat }) {
            return false;
        }
        let target = connection.tuple(direction.other()).inverted();
        apply(packet, &target, manip);
        true
    }
}

/// Replaces the packet's source or destination, and the opposite one of a packet that an ICMP error quotes.
fn apply(packet: &mut Packet, target: &Tuple, manip: Manip) {
    let error = matches!(packet.body, PacketBody::Error { .. });
    match manip {
        Manip::Source => {
            packet.source = target.source;
            if !error {
                packet.set_source_port(target.source_port);
            }
        }
        Manip::Destination => {
            packet.destination = target.destination;
            if !error {
                let icmp = target.protocol.is_icmp();
                packet.set_destination_port(if icmp { target.source_port } else { target.destination_port });
            }
        }
    }
    if let PacketBody::Error { about, .. } = &mut packet.body {
        match manip {
            Manip::Source => {
                about.destination = target.source;
                about.set_destination_port(target.source_port);
            }
            Manip::Destination => {
                about.source = target.destination;
                let icmp = target.protocol.is_icmp();
                about.set_source_port(if icmp { target.source_port } else { target.destination_port });
            }
        }
    }
}

/// Whether the source is in range (`in_range`).
fn in_range(tuple: &Tuple, range: &NatRange) -> bool {
    let address = range.addresses.is_none_or(|(first, last)| (first..=last).contains(&tuple.source));
    address && range.ports.is_none_or(|(first, last)| (first..=last).contains(&tuple.source_port))
}

/// Models `find_best_ips_proto` with another hash: the address may differ from the kernel's.
fn choose_address(tuple: &mut Tuple, range: &NatRange, manip: Manip) {
    let Some((first, last)) = range.addresses else {
        return;
    };
    let mut mixed = bits(tuple.source);
    if !range.persistent {
        mixed ^= bits(tuple.destination).rotate_left(64);
    }
    let folded = (mixed ^ (mixed >> 64)) as u64;
    let spread = u128::from(folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
    let chosen = bits(first) + spread % (bits(last) - bits(first)).saturating_add(1);
    let end: &mut IpAddr = if manip == Manip::Source { &mut tuple.source } else { &mut tuple.destination };
    *end = from_bits(Family::of(first), chosen);
}
