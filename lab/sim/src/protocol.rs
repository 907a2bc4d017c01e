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

/// The names of Debian's `/etc/protocols` (netbase), one per number: iptables, nft and ipset print the names of the file.
#[rustfmt::skip]
const NAMES: [(&str, u8); 55] = [
    ("hopopt", 0), ("icmp", 1), ("igmp", 2), ("ggp", 3), ("ipencap", 4), ("st", 5), ("tcp", 6), ("egp", 8),
    ("igp", 9), ("pup", 12), ("udp", 17), ("hmp", 20), ("xns-idp", 22), ("rdp", 27), ("iso-tp4", 29), ("dccp", 33),
    ("xtp", 36), ("ddp", 37), ("idpr-cmtp", 38), ("ipv6", 41), ("ipv6-route", 43), ("ipv6-frag", 44), ("idrp", 45),
    ("rsvp", 46), ("gre", 47), ("esp", 50), ("ah", 51), ("skip", 57), ("ipv6-icmp", 58), ("ipv6-nonxt", 59),
    ("ipv6-opts", 60), ("rspf", 73), ("vmtp", 81), ("eigrp", 88), ("ospf", 89), ("ax.25", 93), ("ipip", 94),
    ("etherip", 97), ("encap", 98), ("pim", 103), ("ipcomp", 108), ("vrrp", 112), ("l2tp", 115), ("isis", 124),
    ("sctp", 132), ("fc", 133), ("mobility-header", 135), ("udplite", 136), ("mpls-in-ip", 137), ("manet", 138),
    ("hip", 139), ("shim6", 140), ("wesp", 141), ("rohc", 142), ("ethernet", 143),
];

/// Other names of `/etc/protocols` by RHEL, Alpine and older systems, of IANA's registry, and of iptables itself.
#[rustfmt::skip]
const OTHER_NAMES: [(&str, u8); 102] = [
    ("ip", 0), ("ipv4", 4), ("cbt", 7), ("bbn-rcc", 10), ("bbn-rcc-mon", 10), ("nvp", 11), ("nvp-ii", 11),
    ("argus", 13), ("emcon", 14), ("xnet", 15), ("chaos", 16), ("mux", 18), ("dcn", 19), ("dcn-meas", 19),
    ("prm", 21), ("trunk-1", 23), ("trunk-2", 24), ("leaf-1", 25), ("leaf-2", 26), ("irtp", 28), ("netblt", 30),
    ("mfe-nsp", 31), ("merit-inp", 32), ("sep", 33), ("3pc", 34), ("idpr", 35), ("tp++", 39), ("il", 40),
    ("sdrp", 42), ("dsr", 48), ("mhrp", 48), ("bna", 49), ("ipv6-crypt", 50), ("ipv6-auth", 51), ("i-nlsp", 52),
    ("swipe", 53), ("narp", 54), ("mobile", 55), ("tlsp", 56), ("icmpv6", 58), ("cftp", 62), ("sat-expak", 64),
    ("kryptolan", 65), ("rvd", 66), ("ippc", 67), ("sat-mon", 69), ("visa", 70), ("ipcv", 71), ("cpnx", 72),
    ("cphb", 73), ("wsn", 74), ("pvp", 75), ("br-sat-mon", 76), ("sun-nd", 77), ("wb-mon", 78), ("wb-expak", 79),
    ("iso-ip", 80), ("secure-vmtp", 82), ("vines", 83), ("ttp", 84), ("iptm", 84), ("nsfnet-igp", 85), ("dgp", 86),
    ("tcf", 87), ("sprite-rpc", 90), ("larp", 91), ("mtp", 92), ("micp", 95), ("scc-sp", 96), ("gmtp", 100),
    ("ifmp", 101), ("pnni", 102), ("aris", 104), ("scps", 105), ("qnx", 106), ("a/n", 107), ("snp", 109),
    ("compaq-peer", 110), ("ipx-in-ip", 111), ("carp", 112), ("pgm", 113), ("ddx", 116), ("iatp", 117), ("stp", 118),
    ("srp", 119), ("uti", 120), ("smp", 121), ("sm", 122), ("ptp", 123), ("fire", 125), ("crtp", 126),
    ("crdup", 127), ("crudp", 127), ("sscopmce", 128), ("iplt", 129), ("sps", 130), ("pipe", 131),
    ("rsvp-e2e-ignore", 134), ("ipv6-mh", 135), ("mh", 135), ("aggfrag", 144), ("nsh", 145),
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

    /// Parses the names and numbers of iptables, nft and ipset, except `all`. Names have no case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Protocol> {
        let name = text.to_ascii_lowercase();
        let named = || names::value(&NAMES, &name).or_else(|| names::value(&OTHER_NAMES, &name));
        text.parse().ok().or_else(named).map(Protocol)
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
