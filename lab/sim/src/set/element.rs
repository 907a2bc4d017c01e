use std::fmt;
use std::net::IpAddr;

use super::icmp;
use crate::masked::{Masked, bits};
use crate::protocol::{Family, Protocol};
use crate::rules::matches::MacAddress;
use crate::rules::tokens::number;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ElementPart {
    Ip,
    /// A network; the longest matching prefix decides.
    Net,
    /// A port with protocol.
    Port,
    /// A port of TCP and UDP (`bitmap:port`).
    PlainPort,
    Mac,
    /// The packet's mark.
    Mark,
    Interface,
    /// Another set (`list:set`).
    Member,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PartValue {
    Ip(IpAddr),
    Net(Masked),
    /// A port; for ICMP, type × 256 + code.
    Port(Protocol, u16),
    PlainPort(u16),
    /// `None`: any (`bitmap:ip,mac`).
    Mac(Option<MacAddress>),
    Mark(u32),
    Interface(InterfaceName),
    Member(String),
    /// Text that is not understood, of a set that is not modelled.
    Text(String),
}

/// An interface of a `hash:net,iface`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceName {
    /// The name, or its beginning (`wildcard`).
    pub name: String,
    /// Matches every name with this beginning.
    pub wildcard: bool,
    /// Matches the bridge port.
    pub physdev: bool,
}

pub(super) fn port_key(protocol: Protocol, port: u16) -> u128 {
    u128::from(protocol.0) << 16 | u128::from(port)
}

impl PartValue {
    /// Parses a value; old ipset prints TCP ports without protocol.
    pub(super) fn read(part: ElementPart, family: Family, text: &str) -> Option<PartValue> {
        let own = |masked: &Masked| masked.family == family;
        match part {
            ElementPart::Ip => text.parse().ok().filter(|ip| Family::of(*ip) == family).map(PartValue::Ip),
            ElementPart::Net => Masked::parse(text).filter(own).map(PartValue::Net),
            ElementPart::PlainPort => text.parse().ok().map(PartValue::PlainPort),
            ElementPart::Mac => MacAddress::parse(text).map(|mac| PartValue::Mac(Some(mac))),
            ElementPart::Mark => number(text).map(PartValue::Mark),
            ElementPart::Interface => {
                let (name, physdev) = text.strip_prefix("physdev:").map_or((text, false), |name| (name, true));
                let name = InterfaceName { name: name.to_owned(), wildcard: false, physdev };
                (!name.name.is_empty()).then_some(PartValue::Interface(name))
            }
            ElementPart::Member => Some(PartValue::Member(text.to_owned())),
            ElementPart::Port => {
                let (protocol, port) = text.split_once(':').unwrap_or(("tcp", text));
                let protocol = Protocol::parse(protocol)?;
                let port = match port.split_once('/') {
                    Some((kind, code)) if protocol.is_icmp() => {
                        u16::from(kind.parse::<u8>().ok()?) << 8 | u16::from(code.parse::<u8>().ok()?)
                    }
                    _ => port.parse().ok().or_else(|| icmp::parse(protocol, port))?,
                };
                Some(PartValue::Port(protocol, port))
            }
        }
    }

    /// The prefix length and the value in the set's index; parts that the packet alone does not decide have 0.
    pub(super) fn key(&self) -> (u8, u128) {
        match self {
            PartValue::Ip(address) => (0, bits(*address)),
            PartValue::Net(network) => (network.prefix().unwrap_or(0), bits(network.address())),
            PartValue::Port(protocol, port) => (0, port_key(*protocol, *port)),
            PartValue::PlainPort(port) => (0, port_key(Protocol(0), *port)),
            PartValue::Mark(mark) => (0, u128::from(*mark)),
            PartValue::Mac(_) | PartValue::Interface(_) | PartValue::Member(_) | PartValue::Text(_) => (0, 0),
        }
    }
}

impl fmt::Display for PartValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartValue::Ip(address) => write!(f, "{address}"),
            // A full prefix length is not printed.
            PartValue::Net(network) if network.prefix() == Some(network.family.bits()) => {
                write!(f, "{}", network.address())
            }
            PartValue::Net(network) => write!(f, "{network}"),
            PartValue::Port(protocol, port) if protocol.is_icmp() => {
                write!(f, "{protocol}:{}/{}", port >> 8, port & 0xff)
            }
            PartValue::Port(protocol, port) => write!(f, "{protocol}:{port}"),
            PartValue::PlainPort(port) => write!(f, "{port}"),
            PartValue::Mac(mac) => mac.map_or(Ok(()), |mac| write!(f, "{mac}")),
            PartValue::Mark(mark) => write!(f, "0x{mark:08x}"),
            PartValue::Interface(name) => write!(f, "{}{}", if name.physdev { "physdev:" } else { "" }, name.name),
            PartValue::Member(text) | PartValue::Text(text) => f.write_str(text),
        }
    }
}

/// An element of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// One value per part of the set.
    pub values: Vec<PartValue>,
    /// An exception from a wider network.
    pub nomatch: bool,
    /// Seconds; 0: never.
    pub timeout: Option<u32>,
}

impl Element {
    pub(super) fn is_wildcard(&self) -> bool {
        matches!(self.values.last(), Some(PartValue::Interface(name)) if name.wildcard)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> =
            self.values.iter().filter(|value| **value != PartValue::Mac(None)).map(ToString::to_string).collect();
        f.write_str(&values.join(","))?;
        if let Some(timeout) = self.timeout {
            write!(f, " timeout {timeout}")?;
        }
        f.write_str(if self.nomatch { " nomatch" } else { "" })?;
        f.write_str(if self.is_wildcard() { " wildcard" } else { "" })
    }
}
