use std::fmt;

use crate::protocol::Family;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum RejectWith {
    /// An ICMP error, by its iptables name.
    Icmp(&'static str),
    TcpReset,
}

/// Name, type and code (net/ipv4/netfilter/ipt_REJECT.c).
const ICMP: [(&str, u8, u8); 7] = [
    ("icmp-net-unreachable", 3, 0),
    ("icmp-host-unreachable", 3, 1),
    ("icmp-proto-unreachable", 3, 2),
    ("icmp-port-unreachable", 3, 3),
    ("icmp-net-prohibited", 3, 9),
    ("icmp-host-prohibited", 3, 10),
    ("icmp-admin-prohibited", 3, 13),
];

/// Name, type and code (net/ipv6/netfilter/ip6t_REJECT.c).
const ICMPV6: [(&str, u8, u8); 6] = [
    ("icmp6-no-route", 1, 0),
    ("icmp6-adm-prohibited", 1, 1),
    ("icmp6-addr-unreachable", 1, 3),
    ("icmp6-port-unreachable", 1, 4),
    ("icmp6-policy-fail", 1, 5),
    ("icmp6-reject-route", 1, 6),
];

impl RejectWith {
    pub(super) fn parse(family: Family, text: &str) -> Option<RejectWith> {
        if matches!(text, "tcp-reset" | "tcp-rst") {
            return Some(RejectWith::TcpReset);
        }
        let known: &[(&'static str, u8, u8)] = if family == Family::V4 { &ICMP } else { &ICMPV6 };
        known.iter().find(|(name, ..)| *name == text).map(|(name, ..)| RejectWith::Icmp(name))
    }

    pub(crate) fn of_nft(family: Family, name: &str) -> Option<RejectWith> {
        let name = match (family, name) {
            (Family::V4, "prot-unreachable") => "icmp-proto-unreachable".to_owned(),
            (Family::V4, name) => format!("icmp-{name}"),
            (Family::V6, "admin-prohibited") => "icmp6-adm-prohibited".to_owned(),
            (Family::V6, name) => format!("icmp6-{name}"),
        };
        RejectWith::parse(family, &name).filter(|with| *with != RejectWith::TcpReset)
    }

    /// Returns REJECT's default.
    #[must_use]
    pub fn port_unreachable(family: Family) -> RejectWith {
        RejectWith::Icmp(if family == Family::V4 { "icmp-port-unreachable" } else { "icmp6-port-unreachable" })
    }

    /// Returns ICMP type and code; `None` for TCP resets.
    #[must_use]
    pub fn icmp(self) -> Option<(u8, u8)> {
        let RejectWith::Icmp(wanted) = self else {
            return None;
        };
        let all = ICMP.iter().chain(&ICMPV6);
        all.into_iter().find(|(name, ..)| *name == wanted).map(|(_, kind, code)| (*kind, *code))
    }
}

impl fmt::Display for RejectWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectWith::Icmp(name) => name,
            RejectWith::TcpReset => "tcp-reset",
        })
    }
}
