use super::{DataType, Expr};
use crate::protocol::{Family, Protocol};

pub(super) const HEADERS: [&str; 13] =
    ["ip", "ip6", "tcp", "udp", "sctp", "udplite", "dccp", "th", "icmp", "icmpv6", "ether", "vlan", "arp"];
/// Keys printed without `meta`.
pub(super) const BARE_META: [&str; 5] = ["iif", "iifname", "mark", "oif", "oifname"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PacketField {
    Address {
        family: Family,
        source: bool,
    },
    Version(Family),
    HeaderProtocol(Family),
    /// A port of protocol `of`; `None` is any.
    Port {
        of: Option<Protocol>,
        source: bool,
    },
    TcpFlags,
    IcmpType(Family),
    IcmpCode(Family),
    Mark,
    InterfaceName {
        input: bool,
    },
    Interface {
        input: bool,
    },
    Protocol,
    Family,
    EtherType,
    Arp(ArpField),
    /// The user (or group) of the packet's socket.
    Owner,
    /// A property of the packet's open socket.
    Socket,
    State,
    Status,
    Direction,
    ConnectionMark,
    /// `reply`: `None` is the packet's direction.
    ConnectionAddress {
        reply: Option<bool>,
        source: bool,
        family: Family,
    },
    ConnectionPort {
        reply: Option<bool>,
        source: bool,
    },
    ConnectionProtocol,
    /// `limit`: `true` is `iif`, `false` is `oif`.
    Fib {
        source: bool,
        limit: Option<bool>,
        result: FibResult,
    },
}

/// The sender is the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArpField {
    Hardware,
    Protocol,
    HardwareLength,
    ProtocolLength,
    Operation,
    Address { source: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FibResult {
    AddressType,
    Interface,
    InterfaceName,
}

pub(crate) fn selector(expr: &Expr) -> Option<(DataType, Option<PacketField>)> {
    match expr {
        Expr::Payload { protocol, field } => payload(protocol, field).map(|(kind, field)| (kind, Some(field))),
        Expr::Raw { base, offset, length } => Some((DataType::Integer(*length), raw(base, *offset, *length))),
        Expr::Meta(key) => meta(key).map(|(kind, field)| (kind, Some(field))),
        Expr::Ct { direction, key } => connection(direction.as_deref().map(|way| way == "reply"), key),
        Expr::Socket(_) => Some((DataType::Integer(32), Some(PacketField::Socket))),
        Expr::Fib { flags, result } => fib(flags, result),
        _ => None,
    }
}

fn payload(protocol: &str, field: &str) -> Option<(DataType, PacketField)> {
    let family = if matches!(protocol, "ip" | "icmp") { Family::V4 } else { Family::V6 };
    let address = if family == Family::V4 { DataType::Ipv4 } else { DataType::Ipv6 };
    Some(match (protocol, field) {
        ("ip" | "ip6", "saddr" | "daddr") => (address, PacketField::Address { family, source: field == "saddr" }),
        ("ip" | "ip6", "version") => (DataType::Integer(4), PacketField::Version(family)),
        ("ip", "protocol") | ("ip6", "nexthdr") => (DataType::Protocol, PacketField::HeaderProtocol(family)),
        ("tcp", "flags") => (DataType::TcpFlags, PacketField::TcpFlags),
        ("tcp" | "udp" | "sctp" | "udplite" | "dccp" | "th", "sport" | "dport") => {
            (DataType::Port, PacketField::Port { of: Protocol::parse(protocol), source: field == "sport" })
        }
        ("icmp", "type") => (DataType::IcmpType, PacketField::IcmpType(family)),
        ("icmpv6", "type") => (DataType::Icmpv6Type, PacketField::IcmpType(family)),
        ("ether", "type") => (DataType::Integer(16), PacketField::EtherType),
        ("arp", field) => {
            let (kind, field) = arp(field)?;
            (kind, PacketField::Arp(field))
        }
        ("icmp" | "icmpv6", "code") => (DataType::IcmpCode, PacketField::IcmpCode(family)),
        _ => return None,
    })
}

fn arp(field: &str) -> Option<(DataType, ArpField)> {
    Some(match field {
        "htype" => (DataType::Integer(16), ArpField::Hardware),
        "ptype" => (DataType::Integer(16), ArpField::Protocol),
        "hlen" => (DataType::Integer(8), ArpField::HardwareLength),
        "plen" => (DataType::Integer(8), ArpField::ProtocolLength),
        "operation" => (DataType::ArpOperation, ArpField::Operation),
        "saddr ip" | "daddr ip" => (DataType::Ipv4, ArpField::Address { source: field == "saddr ip" }),
        _ => return None,
    })
}

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

fn meta(key: &str) -> Option<(DataType, PacketField)> {
    Some(match key {
        "mark" => (DataType::Mark, PacketField::Mark),
        "iifname" | "oifname" => (DataType::InterfaceName, PacketField::InterfaceName { input: key == "iifname" }),
        "iif" | "oif" => (DataType::Interface, PacketField::Interface { input: key == "iif" }),
        "l4proto" => (DataType::Protocol, PacketField::Protocol),
        "nfproto" => (DataType::Family, PacketField::Family),
        "protocol" => (DataType::Integer(16), PacketField::EtherType),
        "skuid" | "skgid" => (DataType::Integer(32), PacketField::Owner),
        _ => return None,
    })
}

fn connection(reply: Option<bool>, key: &str) -> Option<(DataType, Option<PacketField>)> {
    let address = |source, family| PacketField::ConnectionAddress { reply, source, family };
    let (kind, field) = match key {
        "state" => (DataType::State, PacketField::State),
        "status" => (DataType::Status, PacketField::Status),
        "direction" => (DataType::Direction, PacketField::Direction),
        "mark" => (DataType::Mark, PacketField::ConnectionMark),
        "ip saddr" | "ip daddr" => (DataType::Ipv4, address(key == "ip saddr", Family::V4)),
        "ip6 saddr" | "ip6 daddr" => (DataType::Ipv6, address(key == "ip6 saddr", Family::V6)),
        "proto-src" | "proto-dst" => {
            (DataType::Port, PacketField::ConnectionPort { reply, source: key == "proto-src" })
        }
        "protocol" => (DataType::Protocol, PacketField::ConnectionProtocol),
        "l3proto" => return Some((DataType::Family, None)),
        _ => return None,
    };
    Some((kind, Some(field)))
}

fn fib(flags: &[String], result: &str) -> Option<(DataType, Option<PacketField>)> {
    let (kind, result) = match result {
        "type" => (DataType::AddressType, FibResult::AddressType),
        "oif" => (DataType::Interface, FibResult::Interface),
        "oifname" => (DataType::InterfaceName, FibResult::InterfaceName),
        _ => return None,
    };
    let has = |flag: &str| flags.iter().any(|one| one == flag);
    // `fib` needs an address; routing by `mark` is not modelled.
    let is_modelled = flags.iter().all(|flag| matches!(flag.as_str(), "saddr" | "daddr" | "iif" | "oif"))
        && has("saddr") != has("daddr");
    let limit = if has("iif") { Some(true) } else { has("oif").then_some(false) };
    Some((kind, is_modelled.then(|| PacketField::Fib { source: has("saddr"), limit, result })))
}
