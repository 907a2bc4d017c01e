use std::fmt;
use std::net::IpAddr;

use crate::masked::{Masked, bits};
use crate::protocol::{Family, Protocol};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ElementPart {
    Ip,
    /// A network; the longest matching prefix decides.
    Net,
    /// A port with protocol.
    Port,
    /// A port of any protocol (`bitmap:port`).
    PlainPort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PartValue {
    Ip(IpAddr),
    Net(Masked),
    /// A port; for ICMP, type × 256 + code.
    Port(Protocol, u16),
    PlainPort(u16),
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
            ElementPart::Port => {
                let (protocol, port) = text.split_once(':').unwrap_or(("tcp", text));
                let protocol = Protocol::parse(protocol)?;
                let port = match port.split_once('/') {
                    Some((kind, code)) if protocol.is_icmp() => {
                        u16::from(kind.parse::<u8>().ok()?) << 8 | u16::from(code.parse::<u8>().ok()?)
                    }
                    _ => port.parse().ok()?,
                };
                Some(PartValue::Port(protocol, port))
            }
        }
    }

    pub(super) fn key(&self) -> (u8, u128) {
        match self {
            PartValue::Ip(address) => (0, bits(*address)),
            PartValue::Net(network) => (network.prefix().unwrap_or(0), bits(network.address())),
            PartValue::Port(protocol, port) => (0, port_key(*protocol, *port)),
            PartValue::PlainPort(port) => (0, port_key(Protocol(0), *port)),
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

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.values.iter().map(ToString::to_string).collect();
        f.write_str(&values.join(","))?;
        if let Some(timeout) = self.timeout {
            write!(f, " timeout {timeout}")?;
        }
        f.write_str(if self.nomatch { " nomatch" } else { "" })
    }
}
