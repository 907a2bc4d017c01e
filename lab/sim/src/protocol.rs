//! Address families and transport protocols.

use std::fmt;
use std::net::IpAddr;

use crate::names;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `iptables`.
    V4,
    /// `ip6tables`.
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// The number of bits of an address.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// A transport protocol by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

const NAMES: [(&str, u8); 12] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("vrrp", 112),
    ("sctp", 132),
    ("udplite", 136),
];

impl Protocol {
    /// ICMP for IPv4.
    pub const ICMP: Protocol = Protocol(1);
    /// TCP.
    pub const TCP: Protocol = Protocol(6);
    /// UDP.
    pub const UDP: Protocol = Protocol(17);
    /// ICMP for IPv6.
    pub const ICMPV6: Protocol = Protocol(58);
    /// SCTP.
    pub const SCTP: Protocol = Protocol(132);

    /// Parses the names and numbers of iptables and ipset, except `icmpv6` and `all`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Protocol> {
        names::value(&NAMES, text).or_else(|| text.parse().ok()).map(Protocol)
    }

    /// Whether this is ICMP of either family.
    #[must_use]
    pub fn is_icmp(self) -> bool {
        self == Protocol::ICMP || self == Protocol::ICMPV6
    }

    /// Whether it has ports.
    #[must_use]
    pub fn has_ports(self) -> bool {
        matches!(self, Protocol::TCP | Protocol::UDP | Protocol::SCTP)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match names::name(&NAMES, &self.0) {
            "" => write!(f, "{}", self.0),
            name => f.write_str(name),
        }
    }
}
