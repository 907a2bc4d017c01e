//! Membership of packets in sets (net/netfilter/ipset).

use std::collections::BTreeMap;

use super::element::{self, ElementPart, InterfaceName, PartValue};
use super::{Element, IpSet, Sets};
use crate::masked::{bits, prefix_mask};
use crate::packet::Packet;
use crate::protocol::{Family, Protocol};
use crate::rules::matches::Side;

type LookupKey = [u128; 3];
/// Prefix lengths; 0 without prefix.
type Lengths = [u8; 3];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    No,
    Yes,
    /// The most specific element has `nomatch`.
    NoMatch,
    /// Why it is unknown, as a predicate of the match.
    Unknown(&'static str),
}

/// A packet as sets see it.
pub(crate) struct SetQuery<'a> {
    pub(crate) packet: &'a Packet,
    pub(crate) mark: u32,
    /// Name, and whether it is a placeholder.
    pub(crate) input: Option<(&'a str, bool)>,
    pub(crate) output: Option<(&'a str, bool)>,
    /// Whether the packet has an Ethernet header, whose addresses are unknown.
    pub(crate) ethernet: bool,
    /// Seconds.
    pub(crate) now: u64,
}

const MAC: &str = "matches the unknown Ethernet address of the packet";
const NAME: &str = "matches the unknown name of an interface";
const PORT: &str = "matches a bridge port in a set, which is not modelled";

/// The part of an element that is compared beside the index.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Rest {
    Nothing,
    Mac,
    Interface(InterfaceName),
}

impl Rest {
    fn of(element: &Element) -> Rest {
        match element.values.last() {
            Some(PartValue::Mac(Some(_))) => Rest::Mac,
            Some(PartValue::Interface(name)) => Rest::Interface(name.clone()),
            _ => Rest::Nothing,
        }
    }

    /// Whether the packet matches; `Err`: why it is unknown.
    fn holds(&self, query: &SetQuery<'_>, side: Side) -> Result<bool, &'static str> {
        match self {
            Rest::Nothing => Ok(true),
            Rest::Mac if query.ethernet => Err(MAC),
            Rest::Mac => Ok(false),
            Rest::Interface(InterfaceName { physdev: true, .. }) => Err(PORT),
            Rest::Interface(name) => match if side == Side::Source { query.input } else { query.output } {
                Some((_, true)) => Err(NAME),
                Some((found, false)) if name.wildcard => Ok(found.starts_with(&name.name)),
                Some((found, false)) => Ok(found == name.name),
                None => Ok(false),
            },
        }
    }
}

#[derive(Debug, Clone)]
struct IndexedElement {
    nomatch: bool,
    /// The expiry in seconds.
    ends: Option<u64>,
    rest: Rest,
}

#[derive(Debug, Clone)]
pub(crate) struct CompiledIpSet {
    pub(crate) name: String,
    /// Why the set is not modelled.
    unmodelled: bool,
    /// The members of a `list:set`, with the expiry in seconds.
    pub(crate) members: Option<Vec<(usize, Option<u64>)>>,
    parts: Vec<ElementPart>,
    family: Option<Family>,
    address_mask: u128,
    mark_mask: u32,
    /// Longest first (net/netfilter/ipset/ip_set_hash_gen.h).
    lengths: Vec<Lengths>,
    /// Elements that differ in their rest only are numbered.
    elements: BTreeMap<(Lengths, LookupKey, u32), IndexedElement>,
}

fn ends(element: &Element) -> Option<u64> {
    element.timeout.filter(|seconds| *seconds > 0).map(u64::from)
}

impl CompiledIpSet {
    /// Compiles all sets, in their order.
    pub(crate) fn all(sets: &Sets) -> Vec<CompiledIpSet> {
        let is_list = |set: &IpSet| set.parts.contains(&ElementPart::Member);
        let position = |name: &str| sets.sets.iter().position(|set| set.name == name && !is_list(set));
        let members = |set: &IpSet| {
            let members = set.elements.iter().filter_map(|element| match element.values.first() {
                Some(PartValue::Member(name)) => Some((position(name)?, ends(element))),
                _ => None,
            });
            is_list(set).then(|| members.collect())
        };
        sets.sets.iter().map(|set| CompiledIpSet { members: members(set), ..CompiledIpSet::new(set) }).collect()
    }

    fn new(set: &IpSet) -> CompiledIpSet {
        let mut elements = BTreeMap::new();
        for (element, number) in set.elements.iter().zip(0u32..) {
            let (mut lengths, mut key) = ([0; 3], [0; 3]);
            for (at, value) in element.values.iter().enumerate().take(3) {
                (lengths[at], key[at]) = value.key();
            }
            let rest = Rest::of(element);
            let number = if rest == Rest::Nothing { 0 } else { number };
            elements
                .insert((lengths, key, number), IndexedElement { nomatch: element.nomatch, ends: ends(element), rest });
        }
        let mut lengths: Vec<Lengths> = elements.keys().map(|(lengths, ..)| *lengths).collect();
        lengths.dedup();
        lengths.reverse();
        CompiledIpSet {
            name: set.name.clone(),
            unmodelled: set.unmodelled.is_some(),
            members: None,
            parts: set.parts.clone(),
            family: set.family,
            address_mask: set.address_mask.unwrap_or(u128::MAX),
            mark_mask: set.mark_mask,
            lengths,
            elements,
        }
    }

    /// Whether the membership of some packets is unknown.
    pub(crate) fn may_be_unknown(&self) -> bool {
        self.unmodelled || self.parts.iter().any(|part| matches!(part, ElementPart::Mac | ElementPart::Interface))
    }

    /// Whether `--return-nomatch` has an effect (`IPSET_TYPE_NOMATCH`).
    pub(crate) fn has_nomatch(&self) -> bool {
        self.parts.contains(&ElementPart::Net)
    }

    /// Looks up a packet.
    pub(crate) fn test(&self, query: &SetQuery<'_>, sides: &[Side]) -> Membership {
        if self.unmodelled {
            return Membership::Unknown("matches a set that is not modelled");
        }
        // ip_set_test fails on too few sides or another family.
        if sides.len() < self.parts.len() || self.family.is_some_and(|family| family != query.packet.family()) {
            return Membership::No;
        }
        let mut values = [0; 3];
        for (at, (part, side)) in self.parts.iter().zip(sides).enumerate().take(3) {
            let Some(value) = self.value_of(query, *part, *side) else {
                return Membership::No;
            };
            values[at] = value;
        }
        let side = sides.get(self.parts.len().saturating_sub(1)).copied().unwrap_or(Side::Source);
        // The result if an element with an unknown rest matches.
        let mut possible = None;
        for lengths in &self.lengths {
            let mut key = values;
            let family = self.family.unwrap_or(Family::V4);
            for (at, part) in self.parts.iter().enumerate() {
                if *part == ElementPart::Net {
                    key[at] &= prefix_mask(family, lengths[at]);
                }
            }
            let found = self.elements.range((*lengths, key, 0)..=(*lengths, key, u32::MAX)).map(|(_, element)| element);
            for element in found.filter(|element| element.ends.is_none_or(|ends| ends > query.now)) {
                let result = if element.nomatch { Membership::NoMatch } else { Membership::Yes };
                match (element.rest.holds(query, side), possible) {
                    (Ok(false), _) => {}
                    (Ok(true), None) => return result,
                    (Ok(true), Some((same, _))) if same == result => return result,
                    (Ok(true), Some((_, why))) => return Membership::Unknown(why),
                    (Err(why), None) => possible = Some((result, why)),
                    (Err(_), Some((same, _))) if same == result => {}
                    (Err(_), Some((_, why))) => return Membership::Unknown(why),
                }
            }
        }
        possible.map_or(Membership::No, |(_, why)| Membership::Unknown(why))
    }

    /// Returns the packet's value for a part (net/netfilter/ipset/ip_set_getport.c).
    fn value_of(&self, query: &SetQuery<'_>, part: ElementPart, side: Side) -> Option<u128> {
        let packet = query.packet;
        let source = side == Side::Source;
        match part {
            ElementPart::Ip | ElementPart::Net => {
                Some(bits(if source { packet.source } else { packet.destination }) & self.address_mask)
            }
            ElementPart::Mark => Some(u128::from(query.mark & self.mark_mask)),
            ElementPart::Mac | ElementPart::Interface | ElementPart::Member => Some(0),
            // `ip_set_get_ip_port`: bitmaps know TCP and UDP only.
            ElementPart::PlainPort if !matches!(packet.protocol(), Protocol::TCP | Protocol::UDP) => None,
            ElementPart::Port | ElementPart::PlainPort => {
                let port = match (packet.ports(), packet.icmp()) {
                    (Some((from, to)), _) => {
                        if source {
                            from
                        } else {
                            to
                        }
                    }
                    // Hash types use ICMP type and code, otherwise port 0.
                    (None, Some(icmp)) => u16::from(icmp.kind) << 8 | u16::from(icmp.code),
                    (None, None) => 0,
                };
                let protocol = if part == ElementPart::PlainPort { Protocol(0) } else { packet.protocol() };
                Some(element::port_key(protocol, port))
            }
        }
    }
}
