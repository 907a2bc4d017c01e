use std::net::IpAddr;

use super::{RuleAbort, RuleContext};
use crate::conntrack::{ConntrackEntry, FlowDirection, TrackingState};
use crate::hook::Hook;
use crate::host::route::RouteDecision;
use crate::nft::name_bits;
use crate::nft::selector::{FibResult, PacketField};
use crate::packet::PacketBody;
use crate::program::nft::{CompiledComparison, CompiledExpr, hash};
use crate::protocol::Family;
use crate::rules::matches::AddressType;
use crate::trace::Event;
use crate::walk::unknown_fact::{self, UnknownFact};
use crate::walk::{PacketOrigin, Skb, Walker};

const NO_PORT: u128 = 0x1_0000;

impl<'a> Walker<'a> {
    pub(super) fn nft_values(
        &mut self,
        loads: &[CompiledExpr],
        at: &RuleContext<'a>,
        skb: &Skb,
    ) -> Result<Vec<u128>, RuleAbort> {
        let mut values = Vec::with_capacity(loads.len());
        for load in loads {
            values.extend(self.nft_load(load, at, skb)?);
        }
        Ok(values)
    }

    pub(super) fn nft_load(
        &mut self,
        load: &CompiledExpr,
        at: &RuleContext<'a>,
        skb: &Skb,
    ) -> Result<Vec<u128>, RuleAbort> {
        let one = |value: u128| Ok(vec![value]);
        match load {
            CompiledExpr::Constant(value) => one(*value),
            CompiledExpr::Field(field) => one(self.nft_field(field, at.hook, skb)?),
            CompiledExpr::Binary(operation, left, right, bits) => {
                let (left, right) = (self.nft_one(left, at, skb)?, self.nft_one(right, at, skb)?);
                let mask = u128::MAX.checked_shr(128 - (*bits).min(128)).unwrap_or(0);
                one(operation.apply(left, right) & mask)
            }
            CompiledExpr::Random { modulus, offset } => one(u128::from(self.nft_draw(*modulus, at) + offset)),
            CompiledExpr::Rotation { modulus, offset, counter } => {
                let number = if self.chance.is_exact() {
                    self.nft_draw(*modulus, at)
                } else {
                    let next = self.state.nft.rotations.entry(*counter).or_insert(0);
                    let number = *next;
                    *next = (number + 1) % modulus;
                    number
                };
                one(u128::from(number + offset))
            }
            CompiledExpr::Hash { key: Some(key), modulus, seed: Some(seed), offset } => {
                let mut bytes = Vec::new();
                for (load, kind) in key {
                    bytes.extend(hash::register(self.nft_one(load, at, skb)?, *kind));
                }
                one(u128::from(hash::below(&bytes, *seed, *modulus) + offset))
            }
            CompiledExpr::Hash { modulus, offset, .. } => one(u128::from(self.nft_draw(*modulus, at) + offset)),
            CompiledExpr::Map { key, set } => {
                let key = self.nft_values(key, at, skb)?;
                match self.nft_look_up(at, *set, &key)? {
                    Some(crate::program::nft::EntryContent::Data(data)) => Ok(data),
                    _ => Err(RuleAbort::Break),
                }
            }
            CompiledExpr::NotModelled(what) => Err(RuleAbort::NotModelled(what.clone())),
        }
    }

    pub(super) fn nft_one(&mut self, load: &CompiledExpr, at: &RuleContext<'a>, skb: &Skb) -> Result<u128, RuleAbort> {
        self.nft_load(load, at, skb)?.first().copied().ok_or(RuleAbort::Break)
    }

    fn nft_draw(&mut self, modulus: u32, at: &RuleContext<'_>) -> u32 {
        let shares = vec![1; usize::try_from(modulus).unwrap_or(1)];
        let number = u32::try_from(self.chance.choose(&shares)).unwrap_or(0);
        if modulus > 1 {
            self.note(Event::Drawn { rule: at.rule(), number, of: modulus });
        }
        number
    }

    /// Compares a random number. Exact walks draw only whether it is in the range: N rules with `mod N`, `mod N-1`, …
    /// make N paths, not N!.
    pub(super) fn nft_compare_drawn(
        &mut self,
        left: &[CompiledExpr],
        compare: &CompiledComparison,
        at: &RuleContext<'_>,
    ) -> Option<bool> {
        let (&modulus, &offset) = match left {
            [CompiledExpr::Random { modulus, offset }]
            | [CompiledExpr::Rotation { modulus, offset, .. }]
            | [
                CompiledExpr::Hash { modulus, offset, key: None, .. }
                | CompiledExpr::Hash { modulus, offset, seed: None, .. },
            ] => (modulus, offset),
            _ => return None,
        };
        let CompiledComparison::Within { not, ranges } = compare else { return None };
        let &[(first, last)] = &ranges[..] else { return None };
        if !self.chance.is_exact() {
            return None;
        }
        let (lowest, end) = (u128::from(offset), u128::from(offset) + u128::from(modulus));
        let (begin, end_inside) = (first.max(lowest), last.saturating_add(1).min(end));
        let inside = u64::try_from(end_inside.saturating_sub(begin)).unwrap_or(0);
        let is_inside = self.chance.choose(&[inside, u64::from(modulus) - inside]) == 0;
        if modulus > 1 {
            let number = match (is_inside, begin > lowest) {
                (true, _) => begin,
                (false, true) => lowest,
                (false, false) => end_inside,
            };
            let number = u32::try_from(number - lowest).unwrap_or(0);
            self.note(Event::Drawn { rule: at.rule(), number, of: modulus });
        }
        Some(is_inside != *not)
    }

    fn nft_field(&self, field: &PacketField, hook: Hook, skb: &Skb) -> Result<u128, RuleAbort> {
        if let Some(operation) = skb.arp {
            return self.nft_arp_field(field, operation, skb);
        }
        let packet = &skb.packet;
        let only = |holds: bool, value: u128| if holds { Ok(value) } else { Err(RuleAbort::Break) };
        let address = |source: bool| if source { packet.source } else { packet.destination };
        match field {
            PacketField::Address { family, source } => {
                only(packet.family() == *family, crate::masked::bits(address(*source)))
            }
            PacketField::Version(family) => only(packet.family() == *family, if *family == Family::V4 { 4 } else { 6 }),
            PacketField::HeaderProtocol(family) => only(packet.family() == *family, u128::from(packet.protocol().0)),
            PacketField::Port { of, source } => {
                let right = of.is_none_or(|of| of == packet.protocol());
                let ports = packet.ports().map(|(from, to)| u128::from(if *source { from } else { to }));
                only(right, ports.unwrap_or(NO_PORT))
            }
            PacketField::TcpFlags => match packet.body {
                PacketBody::Tcp { flags, .. } => Ok(u128::from(flags.0)),
                _ => Err(RuleAbort::Break),
            },
            PacketField::IcmpType(family) | PacketField::IcmpCode(family) => {
                let icmp = packet.icmp().filter(|_| packet.family() == *family).ok_or(RuleAbort::Break)?;
                Ok(u128::from(if matches!(field, PacketField::IcmpType(_)) { icmp.kind } else { icmp.code }))
            }
            PacketField::Mark => Ok(u128::from(skb.mark)),
            PacketField::InterfaceName { input } | PacketField::Interface { input }
                if self.nft_invented(*input, skb).is_some() =>
            {
                Err(RuleAbort::Invented { input: *input, alone: false })
            }
            PacketField::InterfaceName { input } | PacketField::Interface { input } => {
                let by_name = matches!(field, PacketField::InterfaceName { .. });
                Ok(self.nft_interface(if *input { skb.input } else { skb.output }, by_name))
            }
            PacketField::Protocol => Ok(u128::from(packet.protocol().0)),
            PacketField::Family => Ok(if packet.family() == Family::V4 { 2 } else { 10 }),
            PacketField::EtherType => Ok(if packet.family() == Family::V4 { 0x0800 } else { 0x86dd }),
            PacketField::Arp(_) => Err(RuleAbort::Break),
            // Sockets of other machines and of the kernel have no owner here (`nft_meta_get_eval_skugid`).
            PacketField::Owner if self.has_no_owner(hook, skb) => Err(RuleAbort::Break),
            PacketField::Owner => {
                Err(RuleAbort::Unknown(UnknownFact::new("owner", "matches the unknown owner of the packet")))
            }
            PacketField::Socket if unknown_fact::has_socket(packet) => {
                Err(RuleAbort::Unknown(UnknownFact::new("socket", "matches unknown open sockets")))
            }
            PacketField::Socket => Err(RuleAbort::Break),
            PacketField::State => Ok(match skb.tracked() {
                TrackingState::Invalid => 1,
                TrackingState::Established => 2,
                TrackingState::Related => 4,
                TrackingState::New => 8,
                TrackingState::Untracked => 64,
            }),
            PacketField::Fib { source, limit, result } => Ok(self.nft_fib(address(*source), *limit, *result, skb)),
            of_connection => self.nft_connection(of_connection, skb),
        }
    }

    pub(super) fn nft_interface(&self, interface: Option<usize>, by_name: bool) -> u128 {
        match interface {
            Some(at) if by_name => name_bits(&self.host.names[at]),
            Some(at) => number_of(Some(at)),
            None => 0,
        }
    }

    /// At INPUT the kernel has found the socket of an established connection (`tcp_v4_early_demux`).
    fn has_no_owner(&self, hook: Hook, skb: &Skb) -> bool {
        match skb.origin {
            PacketOrigin::Elsewhere => hook != Hook::Input || skb.tracked() == TrackingState::New,
            PacketOrigin::Kernel => true,
            PacketOrigin::Socket => false,
        }
    }

    /// Follows `nft_ct_get_eval`.
    fn nft_connection(&self, field: &PacketField, skb: &Skb) -> Result<u128, RuleAbort> {
        let attached = skb.attached.ok_or(RuleAbort::Break)?;
        let connection = self.state.connections.get(attached.id).ok_or(RuleAbort::Break)?;
        let tuple = |reply: Option<bool>| match reply {
            None => connection.tuple(attached.direction),
            Some(true) => connection.tuple(FlowDirection::Reply),
            Some(false) => connection.tuple(FlowDirection::Original),
        };
        match field {
            PacketField::Status => Ok(status(connection)),
            PacketField::Direction => Ok(u128::from(attached.direction == FlowDirection::Reply)),
            PacketField::ConnectionMark => Ok(u128::from(connection.mark)),
            PacketField::ConnectionAddress { reply, source, family } => {
                let tuple = tuple(*reply);
                let address = if *source { tuple.source } else { tuple.destination };
                if Family::of(address) == *family { Ok(crate::masked::bits(address)) } else { Err(RuleAbort::Break) }
            }
            PacketField::ConnectionPort { reply, source } => {
                let tuple = tuple(*reply);
                Ok(u128::from(if *source { tuple.source_port } else { tuple.destination_port }))
            }
            PacketField::ConnectionProtocol => Ok(u128::from(connection.original.protocol.0)),
            _ => Err(RuleAbort::Break),
        }
    }

    /// Follows net/ipv4/netfilter/nft_fib_ipv4.c, net/ipv6/netfilter/nft_fib_ipv6.c.
    fn nft_fib(&self, address: IpAddr, limit: Option<bool>, result: FibResult, skb: &Skb) -> u128 {
        let interface = limit.and_then(|input| if input { skb.input } else { skb.output });
        if result == FibResult::AddressType {
            return match self.address_type(address, interface) {
                AddressType::Unspec => 0,
                AddressType::Unicast => 1,
                AddressType::Local => 2,
                AddressType::Broadcast => 3,
                AddressType::Multicast => 5,
                AddressType::Blackhole => 6,
                AddressType::Unreachable => 7,
                AddressType::Prohibit => 8,
                _ => 4,
            };
        }
        let found = match self.host.route(address) {
            _ if skb.input == Some(crate::host::LOOPBACK) => skb.input,
            // Link-local addresses are looked up on the input interface.
            _ if matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()) => skb.input,
            RouteDecision::Out(way) => Some(way.interface).filter(|out| interface.is_none_or(|only| only == *out)),
            _ => None,
        };
        match result {
            FibResult::InterfaceName => found.map_or(0, |at| name_bits(&self.host.names[at])),
            _ => number_of(found),
        }
    }
}

fn number_of(interface: Option<usize>) -> u128 {
    interface.and_then(|at| u128::try_from(at + 1).ok()).unwrap_or(0)
}

/// Follows `enum ip_conntrack_status`.
fn status(connection: &ConntrackEntry) -> u128 {
    let bits = [
        (connection.seen_reply, 2),
        (connection.assured, 4),
        (connection.confirmed, 8),
        (connection.source_nat, 16),
        (connection.destination_nat, 32),
        (connection.source_done, 128),
        (connection.destination_done, 256),
    ];
    bits.into_iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum()
}
