//! What rules load from a packet and its connection.

use std::net::IpAddr;

use super::{At, Stop};
use crate::conntrack::{Connection, Direction, Tracked};
use crate::host::route::Decision;
use crate::nft::name_bits;
use crate::packet::Body;
use crate::program::nft::{Compare, FibResult, Field, Load, hash};
use crate::protocol::Family;
use crate::rules::matches::AddressType;
use crate::trace::Event;
use crate::walk::{Skb, Walker};

/// In place of a port of a packet that has none where a rule did not ask for the protocol: bytes of another header, like no port.
const NO_PORT: u128 = 0x1_0000;

impl<'a> Walker<'a> {
    /// The values of a key's parts.
    pub(super) fn nft_values(&mut self, loads: &[Load], at: &At<'a>, skb: &Skb) -> Result<Vec<u128>, Stop> {
        let mut values = Vec::with_capacity(loads.len());
        for load in loads {
            values.extend(self.nft_load(load, at, skb)?);
        }
        Ok(values)
    }

    /// One value, or those that a map has.
    pub(super) fn nft_load(&mut self, load: &Load, at: &At<'a>, skb: &Skb) -> Result<Vec<u128>, Stop> {
        let one = |value: u128| Ok(vec![value]);
        match load {
            Load::Constant(value) => one(*value),
            Load::Field(field) => one(self.nft_field(field, skb)?),
            Load::Binary(operation, left, right, bits) => {
                let (left, right) = (self.nft_one(left, at, skb)?, self.nft_one(right, at, skb)?);
                let mask = u128::MAX.checked_shr(128 - (*bits).min(128)).unwrap_or(0);
                one(operation.apply(left, right) & mask)
            }
            Load::Random { modulus, offset } => one(u128::from(self.nft_draw(*modulus, at) + offset)),
            Load::Rotation { modulus, offset, counter } => {
                let number = if self.chance.is_exact() {
                    // Every place of the rotation is as likely.
                    self.nft_draw(*modulus, at)
                } else {
                    let next = self.state.nft.rotations.entry(*counter).or_insert(0);
                    let number = *next;
                    *next = (number + 1) % modulus;
                    number
                };
                one(u128::from(number + offset))
            }
            Load::Hash { key: Some(key), modulus, seed: Some(seed), offset } => {
                let mut bytes = Vec::new();
                for (load, kind) in key {
                    bytes.extend(hash::register(self.nft_one(load, at, skb)?, *kind));
                }
                one(u128::from(hash::below(&bytes, *seed, *modulus) + offset))
            }
            // Of a seed or a key that only the kernel knows, every number is as likely.
            Load::Hash { modulus, offset, .. } => one(u128::from(self.nft_draw(*modulus, at) + offset)),
            Load::Map { key, set } => {
                let key = self.nft_values(key, at, skb)?;
                match self.nft_find(at, *set, &key)? {
                    Some(crate::program::nft::Content::Data(data)) => Ok(data),
                    _ => Err(Stop::Break),
                }
            }
            Load::NotModelled(what) => Err(Stop::NotModelled(what.clone())),
        }
    }

    pub(super) fn nft_one(&mut self, load: &Load, at: &At<'a>, skb: &Skb) -> Result<u128, Stop> {
        self.nft_load(load, at, skb)?.first().copied().ok_or(Stop::Break)
    }

    fn nft_draw(&mut self, modulus: u32, at: &At<'_>) -> u32 {
        let shares = vec![1; usize::try_from(modulus).unwrap_or(1)];
        let number = u32::try_from(self.chance.choose(&shares)).unwrap_or(0);
        if modulus > 1 {
            self.note(Event::Drawn { rule: at.rule(), number, of: modulus });
        }
        number
    }

    /// In exact walks: whether a number that the kernel draws is among those that a rule compares it with. That is one question with two
    /// answers: of a chain of N such rules with `mod N`, `mod N-1`, … the ways are N, where one for each number would make N! of them.
    pub(super) fn nft_compare_drawn(&mut self, left: &[Load], compare: &Compare, at: &At<'_>) -> Option<bool> {
        let (&modulus, &offset) = match left {
            [Load::Random { modulus, offset }]
            | [Load::Rotation { modulus, offset, .. }]
            | [Load::Hash { modulus, offset, key: None, .. } | Load::Hash { modulus, offset, seed: None, .. }] => {
                (modulus, offset)
            }
            _ => return None,
        };
        let Compare::Within { not, ranges } = compare else { return None };
        let &[(first, last)] = &ranges[..] else { return None };
        if !self.chance.is_exact() {
            return None;
        }
        let (lowest, end) = (u128::from(offset), u128::from(offset) + u128::from(modulus));
        let (begin, end_inside) = (first.max(lowest), last.saturating_add(1).min(end));
        let inside = u64::try_from(end_inside.saturating_sub(begin)).unwrap_or(0);
        let is_inside = self.chance.choose(&[inside, u64::from(modulus) - inside]) == 0;
        if modulus > 1 {
            // The first number that gives this answer stands for all of them.
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

    fn nft_field(&self, field: &Field, skb: &Skb) -> Result<u128, Stop> {
        let packet = &skb.packet;
        let only = |holds: bool, value: u128| if holds { Ok(value) } else { Err(Stop::Break) };
        let address = |source: bool| if source { packet.source } else { packet.destination };
        match field {
            Field::Address { family, source } => {
                only(packet.family() == *family, crate::masked::bits(address(*source)))
            }
            Field::Version(family) => only(packet.family() == *family, if *family == Family::V4 { 4 } else { 6 }),
            Field::HeaderProtocol(family) => only(packet.family() == *family, u128::from(packet.protocol().0)),
            Field::Port { of, source } => {
                let right = of.is_none_or(|of| of == packet.protocol());
                let ports = packet.ports().map(|(from, to)| u128::from(if *source { from } else { to }));
                only(right, ports.unwrap_or(NO_PORT))
            }
            Field::TcpFlags => match packet.body {
                Body::Tcp { flags, .. } => Ok(u128::from(flags.0)),
                _ => Err(Stop::Break),
            },
            Field::IcmpType(family) | Field::IcmpCode(family) => {
                let icmp = packet.icmp().filter(|_| packet.family() == *family).ok_or(Stop::Break)?;
                Ok(u128::from(if matches!(field, Field::IcmpType(_)) { icmp.kind } else { icmp.code }))
            }
            Field::Mark => Ok(u128::from(skb.mark)),
            Field::InterfaceName { input } | Field::Interface { input } if self.nft_invented(*input, skb).is_some() => {
                Err(Stop::Invented { input: *input, alone: false })
            }
            Field::InterfaceName { input } => {
                let interface = if *input { skb.input } else { skb.output };
                Ok(interface.map_or(0, |at| name_bits(&self.host.names[at])))
            }
            Field::Interface { input } => Ok(number_of(if *input { skb.input } else { skb.output })),
            Field::Protocol => Ok(u128::from(packet.protocol().0)),
            Field::Family => Ok(if packet.family() == Family::V4 { 2 } else { 10 }),
            Field::EtherType => Ok(if packet.family() == Family::V4 { 0x0800 } else { 0x86dd }),
            Field::State => Ok(match skb.tracked() {
                Tracked::Invalid => 1,
                Tracked::Established => 2,
                Tracked::Related => 4,
                Tracked::New => 8,
                Tracked::Untracked => 64,
            }),
            Field::Fib { source, limit, result } => Ok(self.nft_fib(address(*source), *limit, *result, skb)),
            of_connection => self.nft_connection(of_connection, skb),
        }
    }

    /// `nft_ct_get_eval`: nothing but the state is there without a connection.
    fn nft_connection(&self, field: &Field, skb: &Skb) -> Result<u128, Stop> {
        let attached = skb.attached.ok_or(Stop::Break)?;
        let connection = self.state.connections.get(attached.id).ok_or(Stop::Break)?;
        let tuple = |reply: Option<bool>| match reply {
            None => connection.tuple(attached.direction),
            Some(true) => connection.tuple(Direction::Reply),
            Some(false) => connection.tuple(Direction::Original),
        };
        match field {
            Field::Status => Ok(status(connection)),
            Field::Direction => Ok(u128::from(attached.direction == Direction::Reply)),
            Field::ConnectionMark => Ok(u128::from(connection.mark)),
            Field::ConnectionAddress { reply, source, family } => {
                let tuple = tuple(*reply);
                let address = if *source { tuple.source } else { tuple.destination };
                if Family::of(address) == *family { Ok(crate::masked::bits(address)) } else { Err(Stop::Break) }
            }
            Field::ConnectionPort { reply, source } => {
                let tuple = tuple(*reply);
                Ok(u128::from(if *source { tuple.source_port } else { tuple.destination_port }))
            }
            Field::ConnectionProtocol => Ok(u128::from(connection.original.protocol.0)),
            _ => Err(Stop::Break),
        }
    }

    /// net/ipv4/netfilter/nft_fib_ipv4.c, net/ipv6/netfilter/nft_fib_ipv6.c.
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
            Decision::Out(way) => Some(way.interface).filter(|out| interface.is_none_or(|only| only == *out)),
            _ => None,
        };
        match result {
            FibResult::InterfaceName => found.map_or(0, |at| name_bits(&self.host.names[at])),
            _ => number_of(found),
        }
    }
}

/// An interface's number, from 1; 0 is none.
fn number_of(interface: Option<usize>) -> u128 {
    interface.and_then(|at| u128::try_from(at + 1).ok()).unwrap_or(0)
}

/// `enum ip_conntrack_status`.
fn status(connection: &Connection) -> u128 {
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
