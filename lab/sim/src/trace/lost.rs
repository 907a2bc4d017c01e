use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::{NotModelled, RuleRef};
use crate::hook::Hook;
use crate::link_state::LinkState;
use crate::rules::TableName;

/// A drop's reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// An iptables rule dropped the packet.
    Rule(RuleRef),
    /// The policy of a built-in chain.
    Policy(TableName, Hook),
    /// An nftables rule dropped the packet.
    NftRule(RuleRef),
    /// The policy of an nftables base chain.
    NftPolicy(RuleRef),
    /// A rule's result is unknown.
    NotModelled(Box<NotModelled>),
    /// There is no route.
    NoRoute,
    /// A blackhole route matched.
    Blackhole,
    /// The machine does not forward what the interface receives; the name of the setting.
    NoForwarding(Arc<str>),
    /// A packet from outside has a loopback or own address as source.
    MartianSource,
    /// The destination is a loopback address, without `route_localnet`.
    Loopback,
    /// `rp_filter` of the interface dropped the packet.
    ReversePath {
        /// The input interface.
        interface: Arc<str>,
        /// Whether the route back must use that interface (1), or any (2).
        strict: bool,
    },
    /// The interface passes no packets.
    Link(Arc<str>, LinkState),
    /// The hop limit ends before the destination; the rule that set it.
    HopLimit(Option<RuleRef>),
    /// Rules stop the search for a neighbour.
    Discovery(Box<StoppedDiscovery>),
    /// No machine has the next hop.
    NoNeighbour(IpAddr),
    /// The packet would return through a port without hairpin mode.
    NoHairpin,
    /// Both bridge ports, input and output, are isolated.
    Isolated {
        /// The input port.
        from: Arc<str>,
        /// The output port.
        to: Arc<str>,
    },
    /// Another conntrack entry has the same tuple.
    Clash,
    /// IPVS: the server was removed.
    ServerGone,
    /// IPVS dropped a SYN with the ports of a known connection.
    PortReused,
    /// The interface has no address to translate to.
    NoAddress,
    /// Broadcast and multicast are not modelled.
    Broadcast,
    /// A forwarding loop.
    TooManyHops,
    /// The packet met more rules than the walk's limit.
    TooManyRules,
}

/// Neighbour discovery (RFC 4861) that rules stop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoppedDiscovery {
    /// The neighbour that is not found.
    pub address: IpAddr,
    /// Whether the advertisement is dropped, not the solicitation.
    pub advertisement: bool,
    /// Why the packet of neighbour discovery is dropped.
    pub why: DropReason,
}

impl fmt::Display for StoppedDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoppedDiscovery { address, advertisement, why } = self;
        let packet = if *advertisement { "advertisement" } else { "solicitation" };
        write!(f, "{address} is not found on its link, because the neighbour {packet} is ")?;
        match why {
            DropReason::HopLimit(Some(rule)) => {
                write!(f, "ignored: its hop limit, set by {}, is not 255", rule.numbered())
            }
            why => write!(f, "{why}"),
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            DropReason::Rule(rule) => format!("dropped by {}", rule.numbered()),
            DropReason::Policy(table, hook) => format!("dropped by the policy of {} in {table}", hook.chain()),
            DropReason::NftRule(rule) => format!("dropped by {}, {}", rule.place(), rule.numbered()),
            DropReason::NftPolicy(chain) => format!("dropped by the policy of {}", chain.place()),
            DropReason::NotModelled(asked) => {
                let place = asked.rule.as_ref().map(|rule| format!("{}: ", rule.place())).unwrap_or_default();
                format!("unknown: {place}{} {}", asked.what, asked.why)
            }
            DropReason::NoRoute => "no route".to_owned(),
            DropReason::Blackhole => "a black-hole route".to_owned(),
            DropReason::NoForwarding(setting) => format!("forwarding is disabled ({setting} = 0)"),
            DropReason::MartianSource => "the source is an own address of this machine".to_owned(),
            DropReason::Loopback => "loopback address without route_localnet".to_owned(),
            DropReason::ReversePath { interface, strict: true } => {
                format!("the route to the source does not use {interface} (rp_filter = 1)")
            }
            DropReason::ReversePath { interface, strict: false } => {
                format!("there is no route to the source (rp_filter of {interface} = 2)")
            }
            DropReason::Link(interface, state) => format!("interface {interface} {state}"),
            DropReason::HopLimit(Some(rule)) => format!("the hop limit ends here, set by {}", rule.numbered()),
            DropReason::HopLimit(None) => "the hop limit ends here".to_owned(),
            DropReason::Discovery(stopped) => stopped.to_string(),
            DropReason::NoNeighbour(hop) => format!("no machine on the link has {hop}"),
            DropReason::NoHairpin => "the output port is the input port, without hairpin mode".to_owned(),
            DropReason::Isolated { from, to } => format!("the bridge ports {from} and {to} are isolated"),
            DropReason::Clash => "another connection has the tuple of its translation".to_owned(),
            DropReason::ServerGone => "IPVS: the server was removed".to_owned(),
            DropReason::PortReused => "IPVS: the port of a connection in conntrack is reused".to_owned(),
            DropReason::NoAddress => "no address to translate to".to_owned(),
            DropReason::Broadcast => "broadcast and multicast are not modelled".to_owned(),
            DropReason::TooManyRules => "too many rules".to_owned(),
            DropReason::TooManyHops => "too many hops".to_owned(),
        };
        f.write_str(&why)
    }
}
