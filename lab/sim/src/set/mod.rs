//! IP sets and membership.

mod element;
mod read;

use std::collections::BTreeMap;
use std::fmt;

pub use element::{Element, ElementPart, PartValue};
pub use read::SetReadError;

use crate::masked::{bits, prefix_mask};
use crate::packet::Packet;
use crate::protocol::{Family, Protocol};
use crate::rules::matches::Side;

type LookupKey = [u128; 3];
/// Prefix lengths; 0 without prefix.
type Lengths = [u8; 3];

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct IpSet {
    pub name: String,
    /// Such as `hash:ip,port`.
    pub kind: String,
    pub parts: Vec<ElementPart>,
    /// `None`: ports only.
    pub family: Option<Family>,
    /// Options of `ipset create`, without effect on verdicts.
    pub options: Vec<String>,
    /// In listing order.
    pub elements: Vec<Element>,
}

/// All sets of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sets {
    /// In listing order.
    pub sets: Vec<IpSet>,
}

impl Sets {
    /// Reads the output of `ipset save`.
    pub fn read(text: &str) -> Result<Sets, SetReadError> {
        read::read(text)
    }

    /// Finds a set by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&IpSet> {
        self.sets.iter().find(|set| set.name == name)
    }
}

impl fmt::Display for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for set in &self.sets {
            write!(f, "create {} {}", set.name, set.kind)?;
            set.options.iter().try_for_each(|option| write!(f, " {option}"))?;
            writeln!(f)?;
            set.elements.iter().try_for_each(|element| writeln!(f, "add {} {element}", set.name))?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    No,
    Yes,
    /// The most specific element has `nomatch`.
    NoMatch,
}

#[derive(Debug, Clone)]
pub(crate) struct CompiledIpSet {
    pub(crate) name: String,
    parts: Vec<ElementPart>,
    family: Option<Family>,
    /// Longest first (net/netfilter/ipset/ip_set_hash_gen.h).
    lengths: Vec<Lengths>,
    /// `nomatch`, and the expiry in seconds.
    elements: BTreeMap<(Lengths, LookupKey), (bool, Option<u64>)>,
}

impl CompiledIpSet {
    pub(crate) fn new(set: &IpSet) -> CompiledIpSet {
        let mut elements = BTreeMap::new();
        for element in &set.elements {
            let (mut lengths, mut key) = ([0; 3], [0; 3]);
            for (at, value) in element.values.iter().enumerate().take(3) {
                (lengths[at], key[at]) = value.key();
            }
            let ends = element.timeout.filter(|seconds| *seconds > 0).map(u64::from);
            elements.insert((lengths, key), (element.nomatch, ends));
        }
        let mut lengths: Vec<Lengths> = elements.keys().map(|(lengths, _)| *lengths).collect();
        lengths.dedup();
        lengths.reverse();
        CompiledIpSet { name: set.name.clone(), parts: set.parts.clone(), family: set.family, lengths, elements }
    }

    /// Looks up a packet; `now` is in seconds.
    pub(crate) fn test(&self, packet: &Packet, sides: &[Side], now: u64) -> Membership {
        // ip_set_test fails on too few sides or another family.
        if sides.len() < self.parts.len() || self.family.is_some_and(|family| family != packet.family()) {
            return Membership::No;
        }
        let mut values = [0; 3];
        for (at, (part, side)) in self.parts.iter().zip(sides).enumerate() {
            let Some(value) = value_of(packet, *part, *side) else {
                return Membership::No;
            };
            values[at] = value;
        }
        let family = self.family.unwrap_or(Family::V4);
        for lengths in &self.lengths {
            let mut key = values;
            for (at, part) in self.parts.iter().enumerate() {
                if *part == ElementPart::Net {
                    key[at] &= prefix_mask(family, lengths[at]);
                }
            }
            match self.elements.get(&(*lengths, key)) {
                Some((_, Some(ends))) if *ends <= now => {}
                Some((true, _)) => return Membership::NoMatch,
                Some((false, _)) => return Membership::Yes,
                None => {}
            }
        }
        Membership::No
    }
}

/// Returns the packet's value for a part (net/netfilter/ipset/ip_set_getport.c).
fn value_of(packet: &Packet, part: ElementPart, side: Side) -> Option<u128> {
    let source = side == Side::Source;
    match part {
        ElementPart::Ip | ElementPart::Net => Some(bits(if source { packet.source } else { packet.destination })),
        ElementPart::Port | ElementPart::PlainPort => {
            let port = match (packet.ports(), packet.icmp()) {
                (Some((from, to)), _) => {
                    if source {
                        from
                    } else {
                        to
                    }
                }
                // Bitmaps need ports. Hash types use ICMP type and code, otherwise port 0.
                _ if part == ElementPart::PlainPort => return None,
                (None, Some(icmp)) => u16::from(icmp.kind) << 8 | u16::from(icmp.code),
                (None, None) => 0,
            };
            let protocol = if part == ElementPart::PlainPort { Protocol(0) } else { packet.protocol() };
            Some(element::port_key(protocol, port))
        }
    }
}
