//! Reasons for the loss of a packet.

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
    /// The policy of a base chain of nftables dropped it.
    NftPolicy(RuleRef),
    /// It reached a rule that asks for something that is not modelled: what becomes of it cannot be said.
    NotModelled(Box<NotModelled>),
    /// There is no route.
    NoRoute,
    /// A black-hole route took it.
    Blackhole,
    /// The machine does not forward.
    NoForwarding,
    /// A source that cannot come from outside: one of the machine's own, or loopback.
    MartianSource,
    /// A loopback destination from outside, or a loopback source to the outside, without `route_localnet`.
    Loopback,
    /// The reverse path is another (`rp_filter`).
    ReversePath,
    /// Nobody on the link has the next hop's address.
    NoNeighbour(IpAddr),
    /// It would leave the bridge through the port by which it came, and the port's hairpin mode is off.
    NoHairpin,
    /// Another connection has the tuple that this one's translation needs.
    Clash,
    /// IPVS drops what belongs to a destination that is gone.
    ServerGone,
    /// IPVS drops the first packet that reuses the port of a connection which connection tracking still knows.
    PortReused,
    /// There is no address that it could be translated to.
    NoAddress,
    /// To a broadcast or multicast address: not modelled further.
    Broadcast,
    /// It went round in circles.
    TooManyHops,
    /// It met more rules in one table than are walked.
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
