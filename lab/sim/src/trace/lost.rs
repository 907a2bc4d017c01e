//! Reasons of dropped packets.

use std::fmt;
use std::net::IpAddr;

use super::{NotModelled, RuleRef};
use crate::hook::Hook;
use crate::rules::TableName;

/// Why a packet was lost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// A rule dropped it.
    Rule(RuleRef),
    /// A chain's policy dropped it.
    Policy(TableName, Hook),
    /// A rule of nftables dropped it.
    NftRule(RuleRef),
    /// The policy of a base chain.
    NftPolicy(RuleRef),
    /// An unmodelled part of a rule: the result is unknown.
    NotModelled(Box<NotModelled>),
    /// There is no route.
    NoRoute,
    /// A black-hole route took it.
    Blackhole,
    /// The machine does not forward.
    NoForwarding,
    /// Loopback or an own address from outside.
    MartianSource,
    /// A loopback address without `route_localnet`.
    Loopback,
    /// The reverse path is another (`rp_filter`).
    ReversePath,
    /// No machine on the link has the next hop's address.
    NoNeighbour(IpAddr),
    /// A bridge port without hairpin mode.
    NoHairpin,
    /// Another connection has the tuple.
    Clash,
    /// IPVS: the server was removed.
    ServerGone,
    /// IPVS: the port of a connection in conntrack is reused.
    PortReused,
    /// No address to translate to.
    NoAddress,
    /// Broadcast and multicast are not modelled.
    Broadcast,
    /// It went round in circles.
    TooManyHops,
    /// The limit of rules in one walk.
    TooManyRules,
}

/// Why, in words.
impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            DropReason::Rule(rule) => format!("dropped by {}", rule.numbered()),
            DropReason::Policy(table, hook) => format!("dropped by the policy of {} in {table}", hook.chain()),
            DropReason::NftRule(rule) => format!("dropped by {}, {}", rule.place(), rule.numbered()),
            DropReason::NftPolicy(chain) => format!("dropped by the policy of {}", chain.place()),
            DropReason::NotModelled(asked) => format!("unknown: {}: {} {}", asked.rule.place(), asked.what, asked.why),
            DropReason::NoRoute => "no route".to_owned(),
            DropReason::Blackhole => "a black-hole route".to_owned(),
            DropReason::NoForwarding => "this machine does not forward".to_owned(),
            DropReason::MartianSource => "its source is one of this machine's own addresses".to_owned(),
            DropReason::Loopback => "loopback addresses stay inside (route_localnet)".to_owned(),
            DropReason::ReversePath => "the way back is another (rp_filter)".to_owned(),
            DropReason::NoNeighbour(hop) => format!("no machine on the link has {hop}"),
            DropReason::NoHairpin => {
                "it would leave by the port that it came by, which is not in hairpin mode".to_owned()
            }
            DropReason::Clash => "another connection has the tuple that its translation needs".to_owned(),
            DropReason::ServerGone => "IPVS: its destination is gone".to_owned(),
            DropReason::PortReused => "IPVS: its port is reused while conntrack knows the old connection".to_owned(),
            DropReason::NoAddress => "there is no address to translate it to".to_owned(),
            DropReason::Broadcast => "broadcast and multicast are not modelled further".to_owned(),
            DropReason::TooManyRules => "too many rules: the kernel would take minutes as well".to_owned(),
            DropReason::TooManyHops => "too many hops".to_owned(),
        };
        f.write_str(&why)
    }
}
