//! Data types. Values are numbers: addresses as bits, interface names as 16 bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Expr;
use crate::names;
use crate::protocol::Protocol;

/// A data type of nft (src/datatype.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataType {
    /// `ipv4_addr`.
    Ipv4,
    /// `ipv6_addr`.
    Ipv6,
    /// `inet_proto`.
    Protocol,
    /// `inet_service`.
    Port,
    /// `mark`.
    Mark,
    /// `ifname`.
    InterfaceName,
    /// `iface_index`.
    Interface,
    /// `ct_state`.
    State,
    /// `ct_status`.
    Status,
    /// `ct_dir`.
    Direction,
    /// `fib_addrtype`.
    AddressType,
    /// `nf_proto`.
    Family,
    /// `icmp_type`.
    IcmpType,
    /// `icmpv6_type`.
    Icmpv6Type,
    /// `icmp_code`, `icmpv6_code`.
    IcmpCode,
    /// `tcp_flag`.
    TcpFlags,
    /// `arp_op`.
    ArpOperation,
    /// Number of bits.
    Integer(u32),
}

/// A literal's first and last value.
pub(crate) type ValueRange = (u128, u128);

const STATES: &[(&str, u128)] = &[("invalid", 1), ("established", 2), ("related", 4), ("new", 8), ("untracked", 64)];
/// `enum ip_conntrack_status` (include/uapi/linux/netfilter/nf_conntrack_common.h).
const STATUSES: &[(&str, u128)] =
    &[("expected", 1), ("seen-reply", 2), ("assured", 4), ("confirmed", 8), ("snat", 16), ("dnat", 32), ("dying", 512)];
const DIRECTIONS: &[(&str, u128)] = &[("original", 0), ("reply", 1)];
/// `RTN_…` (include/uapi/linux/rtnetlink.h).
const ADDRESS_TYPES: &[(&str, u128)] = &[
    ("unspec", 0),
    ("unicast", 1),
    ("local", 2),
    ("broadcast", 3),
    ("anycast", 4),
    ("multicast", 5),
    ("blackhole", 6),
    ("unreachable", 7),
    ("prohibit", 8),
];
const FAMILIES: &[(&str, u128)] = &[("ipv4", 2), ("ipv6", 10)];
const ICMP_TYPES: &[(&str, u128)] = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
];
const ICMPV6_TYPES: &[(&str, u128)] = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("mld-listener-reduction", 132),
    ("nd-router-solicit", 133),
    ("nd-router-advert", 134),
    ("nd-neighbor-solicit", 135),
    ("nd-neighbor-advert", 136),
    ("nd-redirect", 137),
    ("router-renumbering", 138),
    ("ind-neighbor-solicit", 141),
    ("ind-neighbor-advert", 142),
    ("mld2-listener-report", 143),
];
const ICMP_CODES: &[(&str, u128)] = &[
    ("net-unreachable", 0),
    ("host-unreachable", 1),
    ("prot-unreachable", 2),
    ("port-unreachable", 3),
    ("frag-needed", 4),
    ("net-prohibited", 9),
    ("host-prohibited", 10),
    ("admin-prohibited", 13),
];
/// include/uapi/linux/if_arp.h.
const ARP_OPERATIONS: &[(&str, u128)] =
    &[("request", 1), ("reply", 2), ("rrequest", 3), ("rreply", 4), ("inrequest", 8), ("inreply", 9), ("nak", 10)];
const TCP_FLAGS: &[(&str, u128)] =
    &[("fin", 1), ("syn", 2), ("rst", 4), ("psh", 8), ("ack", 16), ("urg", 32), ("ecn", 64), ("cwr", 128)];

impl DataType {
    pub(crate) fn named(name: &str) -> Option<DataType> {
        Some(match name {
            "ipv4_addr" => DataType::Ipv4,
            "ipv6_addr" => DataType::Ipv6,
            "inet_proto" => DataType::Protocol,
            "inet_service" => DataType::Port,
            "mark" => DataType::Mark,
            "ifname" => DataType::InterfaceName,
            "iface_index" => DataType::Interface,
            "ct_state" => DataType::State,
            "ct_status" => DataType::Status,
            "ct_dir" => DataType::Direction,
            "fib_addrtype" => DataType::AddressType,
            "nf_proto" => DataType::Family,
            "icmp_type" => DataType::IcmpType,
            "icmpv6_type" => DataType::Icmpv6Type,
            "icmp_code" | "icmpv6_code" | "icmpx_code" => DataType::IcmpCode,
            "tcp_flag" => DataType::TcpFlags,
            "arp_op" => DataType::ArpOperation,
            "ether_type" => DataType::Integer(16),
            "integer" => DataType::Integer(32),
            _ => return None,
        })
    }

    pub(crate) fn bits(self) -> u32 {
        match self {
            DataType::Ipv4
            | DataType::Mark
            | DataType::Interface
            | DataType::State
            | DataType::Status
            | DataType::AddressType => 32,
            DataType::Ipv6 | DataType::InterfaceName => 128,
            DataType::Port | DataType::ArpOperation => 16,
            DataType::Protocol
            | DataType::Direction
            | DataType::Family
            | DataType::IcmpType
            | DataType::Icmpv6Type
            | DataType::IcmpCode
            | DataType::TcpFlags => 8,
            DataType::Integer(bits) => bits,
        }
    }

    pub(crate) fn is_flags(self) -> bool {
        matches!(self, DataType::State | DataType::Status | DataType::TcpFlags)
    }

    pub(crate) fn largest(self) -> u128 {
        u128::MAX.checked_shr(128 - self.bits().min(128)).unwrap_or(0)
    }

    /// Returns a literal's values; `interface` returns an index.
    pub(crate) fn range(self, literal: &Expr, interface: &dyn Fn(&str) -> Option<u128>) -> Option<ValueRange> {
        match literal {
            Expr::Word(word) => self.word(word, interface),
            Expr::Prefix(address, length) => {
                let (first, _) = self.range(address, interface)?;
                let rest = self.bits().checked_sub(u32::from(*length))?;
                let low = u128::MAX.checked_shr(128 - rest).unwrap_or(0);
                Some((first & !low, first | low))
            }
            Expr::Range(first, last) => {
                let (first, last) = (self.range(first, interface)?.0, self.range(last, interface)?.1);
                (first <= last).then_some((first, last))
            }
            Expr::Flags(all) => {
                let mut bits = all.iter().map(|one| self.range(one, interface).map(|(bit, _)| bit));
                let bits = bits.try_fold(0, |all, bit| Some(all | bit?))?;
                Some((bits, bits))
            }
            Expr::Binary(operation, left, right) => {
                let (left, right) = (self.range(left, interface)?.0, self.range(right, interface)?.0);
                let value = operation.apply(left, right) & self.largest();
                Some((value, value))
            }
            _ => None,
        }
    }

    fn word(self, word: &str, interface: &dyn Fn(&str) -> Option<u128>) -> Option<ValueRange> {
        let single = |value: u128| (value <= self.largest()).then_some((value, value));
        let symbol = |known: &[(&str, u128)]| names::value(known, word).or_else(|| number(word));
        match self {
            DataType::Ipv4 => single(u128::from(u32::from(word.parse::<Ipv4Addr>().ok()?))),
            DataType::Ipv6 => single(u128::from(word.parse::<Ipv6Addr>().ok()?)),
            DataType::Protocol => single(u128::from(Protocol::parse(word)?.0)),
            DataType::InterfaceName => interface_name(word),
            DataType::Interface => match word {
                "missing" => Some((0, 0)),
                "exists" => Some((1, self.largest())),
                name => single(interface(name).or_else(|| number(name))?),
            },
            DataType::State => single(symbol(STATES)?),
            DataType::Status => single(symbol(STATUSES)?),
            DataType::Direction => single(symbol(DIRECTIONS)?),
            DataType::AddressType => single(symbol(ADDRESS_TYPES)?),
            DataType::Family => single(symbol(FAMILIES)?),
            DataType::IcmpType => single(symbol(ICMP_TYPES)?),
            DataType::Icmpv6Type => single(symbol(ICMPV6_TYPES)?),
            DataType::IcmpCode => single(symbol(ICMP_CODES)?),
            DataType::TcpFlags => single(symbol(TCP_FLAGS)?),
            DataType::ArpOperation => single(symbol(ARP_OPERATIONS)?),
            DataType::Port | DataType::Mark => single(number(word)?),
            DataType::Integer(_) => {
                single(symbol(&[("ip", 0x0800), ("arp", 0x0806), ("ip6", 0x86dd), ("vlan", 0x8100)])?)
            }
        }
    }
}

fn number(word: &str) -> Option<u128> {
    match word.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

pub(crate) fn name_bits(name: &str) -> u128 {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    u128::from_be_bytes(bytes)
}

fn interface_name(word: &str) -> Option<ValueRange> {
    let (start, any) = word.strip_suffix('*').map_or((word, false), |start| (start, true));
    if start.len() > 15 {
        return None;
    }
    let first = name_bits(start);
    let length = u32::try_from(start.len()).ok()?;
    let rest = u128::MAX.checked_shr(8 * length).unwrap_or(0);
    Some((first, if any { first | rest } else { first }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(kind: DataType, literal: &Expr) -> Option<ValueRange> {
        kind.range(literal, &|name| (name == "lo").then_some(1))
    }

    fn word(text: &str) -> Expr {
        Expr::Word(text.to_owned())
    }

    #[test]
    fn literals_are_ranges_of_numbers() {
        let prefix = Expr::Prefix(Box::new(word("10.244.0.0")), 16);
        assert_eq!(means(DataType::Ipv4, &prefix), Some((0x0af4_0000, 0x0af4_ffff)));
        assert_eq!(means(DataType::Ipv4, &Expr::Prefix(Box::new(word("0.0.0.0")), 0)), Some((0, 0xffff_ffff)));
        let everything = Expr::Prefix(Box::new(word("::")), 0);
        assert_eq!(means(DataType::Ipv6, &everything), Some((0, u128::MAX)));
        assert_eq!(means(DataType::State, &Expr::Flags(vec![word("established"), word("related")])), Some((6, 6)));
        assert_eq!(means(DataType::Interface, &word("lo")), Some((1, 1)));
        assert_eq!(means(DataType::Protocol, &word("ipv6-icmp")), Some((58, 58)));
        let ports = Expr::Range(Box::new(word("30000")), Box::new(word("32767")));
        assert_eq!(means(DataType::Port, &ports), Some((30000, 32767)));
    }

    #[test]
    fn interface_names_match_whole_unless_with_a_star() {
        let contains = |pattern: &str, name: &str| {
            let (first, last) = means(DataType::InterfaceName, &word(pattern)).unwrap();
            (first..=last).contains(&name_bits(name))
        };
        assert!(contains("cni*", "cni0") && contains("cni*", "cni") && !contains("cni*", "cn1"));
        assert!(contains("eth0", "eth0") && !contains("eth0", "eth01") && !contains("eth0", "eth"));
    }

    #[test]
    fn literals_of_another_type_have_no_values() {
        for (kind, text) in
            [(DataType::Ipv4, "fd00::1"), (DataType::Port, "65536"), (DataType::Port, "http"), (DataType::State, "old")]
        {
            assert_eq!(means(kind, &word(text)), None, "{text}");
        }
    }
}
