//! Compiling expressions.

use super::{Compiler, MissingReference};
use crate::nft::{DataType, Expr};
use crate::program::nft::{CompiledExpr, FibResult, PacketField};
use crate::protocol::{Family, Protocol};

impl Compiler<'_> {
    /// The parts of a key.
    pub(super) fn key(&mut self, key: &Expr) -> Result<(Vec<CompiledExpr>, Option<Vec<DataType>>), MissingReference> {
        let parts = key.parts();
        let loads: Result<Vec<CompiledExpr>, MissingReference> =
            parts.iter().map(|part| self.load(part, None)).collect();
        Ok((loads?, parts.iter().map(Expr::kind).collect()))
    }

    /// A value; `wanted` is the type of literals.
    pub(super) fn load(&mut self, expr: &Expr, wanted: Option<DataType>) -> Result<CompiledExpr, MissingReference> {
        let unknown = || CompiledExpr::NotModelled(expr.to_string().into());
        Ok(match expr {
            Expr::Numgen { modulus: 0, .. } | Expr::Hash { modulus: 0, .. } => unknown(),
            Expr::Numgen { random: true, modulus, offset } => {
                CompiledExpr::Random { modulus: *modulus, offset: *offset }
            }
            Expr::Numgen { random: false, modulus, offset } => {
                self.counters += 1;
                CompiledExpr::Rotation { modulus: *modulus, offset: *offset, counter: self.counters - 1 }
            }
            Expr::Hash { key, modulus, seed, offset } => {
                let key = match key {
                    None => None,
                    Some(key) => {
                        let (loads, kinds) = self.key(key)?;
                        let Some(kinds) = kinds else { return Ok(unknown()) };
                        Some(loads.into_iter().zip(kinds).collect())
                    }
                };
                CompiledExpr::Hash { key, modulus: *modulus, seed: *seed, offset: *offset }
            }
            Expr::Binary(operation, left, right) => {
                let kind = expr.kind().or(wanted);
                let (left, right) = (self.load(left, kind)?, self.load(right, kind)?);
                let bits = kind.map_or(128, DataType::bits);
                CompiledExpr::Binary(*operation, Box::new(left), Box::new(right), bits)
            }
            Expr::Map { key, map } => {
                let (loads, kinds) = self.key(key)?;
                let data = wanted.map(|wanted| vec![wanted]);
                match self.set(map, kinds.as_deref(), data.as_deref())? {
                    Some(set) => CompiledExpr::Map { key: loads, set },
                    None => unknown(),
                }
            }
            literal if literal.kind().is_none() => {
                let interface = |name: &str| self.interface(name);
                let range = wanted.and_then(|kind| kind.range(literal, &interface));
                match range {
                    Some((first, last)) if first == last => CompiledExpr::Constant(first),
                    _ => unknown(),
                }
            }
            selector => field(selector).map_or_else(unknown, CompiledExpr::Field),
        })
    }
}

fn field(expr: &Expr) -> Option<PacketField> {
    Some(match expr {
        Expr::Payload { protocol, field } => payload(protocol, field)?,
        Expr::Raw { base, offset, length } => raw(base, *offset, *length)?,
        Expr::Meta(key) => match key.as_str() {
            "mark" => PacketField::Mark,
            "iifname" => PacketField::InterfaceName { input: true },
            "oifname" => PacketField::InterfaceName { input: false },
            "iif" => PacketField::Interface { input: true },
            "oif" => PacketField::Interface { input: false },
            "l4proto" => PacketField::Protocol,
            "nfproto" => PacketField::Family,
            "protocol" => PacketField::EtherType,
            _ => return None,
        },
        Expr::Ct { direction, key } => connection(direction.as_deref(), key)?,
        Expr::Fib { flags, result } => {
            let has = |flag: &str| flags.iter().any(|one| one == flag);
            let known = flags.iter().all(|flag| matches!(flag.as_str(), "saddr" | "daddr" | "iif" | "oif"));
            // Without an address `fib` selects nothing; the simulator does not route by `mark` here.
            if !known || has("saddr") == has("daddr") {
                return None;
            }
            let limit = if has("iif") { Some(true) } else { has("oif").then_some(false) };
            let result = match result.as_str() {
                "type" => FibResult::AddressType,
                "oif" => FibResult::Interface,
                "oifname" => FibResult::InterfaceName,
                _ => return None,
            };
            PacketField::Fib { source: has("saddr"), limit, result }
        }
        _ => return None,
    })
}

fn payload(protocol: &str, field: &str) -> Option<PacketField> {
    let family = |protocol: &str| if protocol == "ip" { Family::V4 } else { Family::V6 };
    Some(match (protocol, field) {
        ("ip" | "ip6", "saddr") => PacketField::Address { family: family(protocol), source: true },
        ("ip" | "ip6", "daddr") => PacketField::Address { family: family(protocol), source: false },
        ("ip" | "ip6", "version") => PacketField::Version(family(protocol)),
        ("ip", "protocol") => PacketField::HeaderProtocol(Family::V4),
        ("ip6", "nexthdr") => PacketField::HeaderProtocol(Family::V6),
        ("th", "sport" | "dport") => PacketField::Port { of: None, source: field == "sport" },
        ("tcp", "flags") => PacketField::TcpFlags,
        ("tcp" | "udp" | "sctp" | "udplite" | "dccp", "sport" | "dport") => {
            let number = Protocol::parse(protocol).or_else(|| (protocol == "dccp").then_some(Protocol(33)))?;
            PacketField::Port { of: Some(number), source: field == "sport" }
        }
        ("icmp", "type") => PacketField::IcmpType(Family::V4),
        ("icmpv6", "type") => PacketField::IcmpType(Family::V6),
        ("icmp", "code") => PacketField::IcmpCode(Family::V4),
        ("icmpv6", "code") => PacketField::IcmpCode(Family::V6),
        _ => return None,
    })
}

/// Raw header bits that equal addresses, the protocol or ports.
fn raw(base: &str, offset: u32, length: u32) -> Option<PacketField> {
    Some(match (base, offset, length) {
        ("nh", 96, 32) => PacketField::Address { family: Family::V4, source: true },
        ("nh", 128, 32) => PacketField::Address { family: Family::V4, source: false },
        ("nh", 72, 8) => PacketField::HeaderProtocol(Family::V4),
        ("nh", 64, 128) => PacketField::Address { family: Family::V6, source: true },
        ("nh", 192, 128) => PacketField::Address { family: Family::V6, source: false },
        ("th", 0, 16) => PacketField::Port { of: None, source: true },
        ("th", 16, 16) => PacketField::Port { of: None, source: false },
        _ => return None,
    })
}

fn connection(direction: Option<&str>, key: &str) -> Option<PacketField> {
    let reply = direction.map(|direction| direction == "reply");
    let address = |source: bool, family: Family| PacketField::ConnectionAddress { reply, source, family };
    Some(match key {
        "state" => PacketField::State,
        "status" => PacketField::Status,
        "direction" => PacketField::Direction,
        "mark" => PacketField::ConnectionMark,
        "ip saddr" => address(true, Family::V4),
        "ip daddr" => address(false, Family::V4),
        "ip6 saddr" => address(true, Family::V6),
        "ip6 daddr" => address(false, Family::V6),
        "proto-src" => PacketField::ConnectionPort { reply, source: true },
        "proto-dst" => PacketField::ConnectionPort { reply, source: false },
        "protocol" => PacketField::ConnectionProtocol,
        _ => return None,
    })
}
