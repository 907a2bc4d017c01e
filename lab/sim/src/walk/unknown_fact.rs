//! Checks whose result may be unknown for a packet.

use std::sync::Arc;

use super::{PacketOrigin, Skb};
use crate::packet::{Packet, PacketBody, TcpFlags};
use crate::program::iptables::Interfaces;
use crate::protocol::{Family, Protocol};
use crate::rules::header::InterfacePattern;
use crate::rules::matches::{NumberRange, Owner, PacketType};

pub(super) enum CheckAnswer {
    Known(bool),
    Unknown(UnknownFact),
}

pub(super) struct UnknownFact {
    pub(super) name: Arc<str>,
    pub(super) why: Arc<str>,
    pub(super) same: FactScope,
}

/// Occurrences of a fact that have the same answer.
pub(super) enum FactScope {
    Nothing,
    /// A condition on the packet (true with `!`); `None`: the whole match's text.
    Packet(Option<(String, bool)>),
    /// A property of the machine, such as an order of registration.
    Machine(String),
    /// A pattern for an interface's name (true with `!`).
    Name(usize, InterfacePattern, bool),
}

impl UnknownFact {
    pub(super) fn new(name: &str, why: &str) -> UnknownFact {
        UnknownFact { name: name.into(), why: why.into(), same: FactScope::Packet(None) }
    }

    pub(super) fn about(self, what: &dyn std::fmt::Display, not: bool) -> UnknownFact {
        let key = format!("{} {what}", self.name);
        UnknownFact { same: FactScope::Packet(Some((key, not))), ..self }
    }
}

pub(super) fn by_name(test: &Interfaces, interface: Option<usize>, name: &str) -> CheckAnswer {
    match interface.and_then(|at| Some((at, test.unknown_of(at)?))) {
        None => CheckAnswer::Known(test.holds(interface)),
        Some((at, pattern)) => CheckAnswer::Unknown(UnknownFact {
            name: name.into(),
            why: "matches the unknown name of an interface".into(),
            same: FactScope::Name(at, pattern.clone(), test.is_not()),
        }),
    }
}

pub(super) fn interface_text(option: &str, fact: &UnknownFact) -> String {
    match &fact.same {
        FactScope::Name(_, pattern, true) => format!("! {option} {pattern}"),
        FactScope::Name(_, pattern, false) => format!("{option} {pattern}"),
        _ => String::new(),
    }
}

/// Follows `owner_mt`.
pub(super) fn owner(asked: &Owner, origin: PacketOrigin) -> CheckAnswer {
    let unknown = || {
        let fact = UnknownFact::new("owner", "matches the unknown owner of the packet");
        CheckAnswer::Unknown(match (asked.user, asked.group, asked.supplementary) {
            (Some(test), None, false) => fact.about(&format!("user {:?}", test.is), test.not),
            (None, Some(test), false) => fact.about(&format!("group {:?}", test.is), test.not),
            _ => fact,
        })
    };
    let refuses_sockets = asked.socket_exists.is_some_and(|test| test.not);
    match origin {
        PacketOrigin::Elsewhere => CheckAnswer::Known(asked.holds_without_socket()),
        PacketOrigin::Socket if refuses_sockets => CheckAnswer::Known(false),
        PacketOrigin::Socket if asked.user.is_none() && asked.group.is_none() => CheckAnswer::Known(true),
        PacketOrigin::Socket => unknown(),
        // The kernel's packets have no socket, or one without owner.
        PacketOrigin::Kernel => {
            let inverted = asked.user.is_none_or(|test| test.not) && asked.group.is_none_or(|test| test.not);
            let (with, without) = (!refuses_sockets && inverted, asked.holds_without_socket());
            if with == without { CheckAnswer::Known(with) } else { unknown() }
        }
    }
}

pub(super) fn of_packet(name: &str) -> bool {
    matches!(name, "bpf" | "u32" | "string" | "dscp" | "tos" | "ecn" | "helper" | "cgroup" | "esp" | "ah")
}

/// Follows `nf_sk_lookup_slow_v4`, `_v6`.
pub(super) fn has_socket(packet: &Packet) -> bool {
    let about = match &packet.body {
        PacketBody::Error { about, .. } => about,
        _ => packet,
    };
    matches!(about.protocol(), Protocol::TCP | Protocol::UDP)
}

/// Returns possible lengths with IP header. TCP SYN and RST carry no data and at most 20 bytes of options.
pub(super) fn lengths(packet: &Packet) -> NumberRange {
    let header = if packet.family() == Family::V4 { 20 } else { 40 };
    match &packet.body {
        PacketBody::Tcp { flags, .. } if flags.0 & (TcpFlags::SYN | TcpFlags::RST) != 0 => {
            NumberRange { first: header + 20, last: header + 40 }
        }
        PacketBody::Tcp { .. } => NumberRange { first: header + 20, last: u16::MAX },
        PacketBody::Udp { .. } | PacketBody::Echo { .. } => NumberRange { first: header + 8, last: u16::MAX },
        PacketBody::Sctp { .. } => NumberRange { first: header + 12, last: u16::MAX },
        PacketBody::Error { about, .. } => {
            NumberRange { first: header + 8 + lengths(about).first.min(28), last: u16::MAX }
        }
        // Type, target and perhaps the link-layer address.
        PacketBody::Neighbour { .. } => NumberRange { first: header + 24, last: header + 32 },
        PacketBody::Other(_) => NumberRange { first: header, last: u16::MAX },
    }
}

/// Follows `pkttype_mt`.
pub(super) fn packet_type(skb: &Skb, broadcast: bool) -> PacketType {
    match skb.packet.destination {
        _ if skb.input.is_none() => PacketType::Unicast,
        to if to.is_multicast() => PacketType::Multicast,
        _ if broadcast => PacketType::Broadcast,
        _ => PacketType::Unicast,
    }
}
