//! What happened to a packet, step by step: data from which text ([`render`]) and drawings can be made.

mod nft_rule;
mod not_modelled;
mod picture;
mod rule;
mod sentence;
mod text;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use nft_rule::NftRule;
pub use not_modelled::{AnyRule, NotModelled};
pub use picture::{draw, draw_outcomes};
pub use rule::RuleRef;
pub use sentence::{broken, verdict};
pub use text::{render, render_tree};

use crate::conntrack::Tracked;
use crate::packet::Packet;
use crate::rules::target::RejectWith;
use crate::rules::{Policy, TableName};

/// A place in the kernel where packets meet rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// As it comes in.
    Prerouting,
    /// On its way to a socket here.
    Input,
    /// On its way through.
    Forward,
    /// From a socket here.
    Output,
    /// As it leaves.
    Postrouting,
}

impl Hook {
    /// The built-in chain of that name.
    #[must_use]
    pub fn chain(self) -> &'static str {
        match self {
            Hook::Prerouting => "PREROUTING",
            Hook::Input => "INPUT",
            Hook::Forward => "FORWARD",
            Hook::Output => "OUTPUT",
            Hook::Postrouting => "POSTROUTING",
        }
    }
}

/// Why a packet was lost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lost {
    /// A rule dropped it.
    Rule(RuleRef),
    /// A chain's policy dropped it.
    Policy(TableName, Hook),
    /// A rule of nftables dropped it.
    NftRule(NftRule),
    /// The policy of a base chain of nftables dropped it.
    NftPolicy(NftRule),
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

/// One step of a packet's way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A packet sets out from a socket, or from the kernel itself.
    Sent {
        /// The machine.
        host: Arc<str>,
        /// The packet.
        packet: Packet,
    },
    /// It comes in.
    Arrived {
        /// The machine.
        host: Arc<str>,
        /// The interface that rules see.
        interface: Arc<str>,
        /// The bridge port, if it came by one.
        port: Option<Arc<str>>,
        /// The packet.
        packet: Packet,
    },
    /// Rules are met.
    Hook(Hook),
    /// Connection tracking has its say.
    Tracked(Tracked),
    /// A chain with rules is entered at its table's turn.
    Table(TableName),
    /// A rule matched, and this is what it does.
    Matched(RuleRef),
    /// A rule asked chance: whether it held, with what share.
    Chance {
        /// The rule.
        rule: RuleRef,
        /// Whether it held.
        held: bool,
        /// The share of what happened.
        share: (u64, u64),
    },
    /// A rule asked something that cannot be said, and the walk went on with one of the answers.
    Undecided {
        /// What was asked.
        asked: Box<NotModelled>,
        /// The answer that was taken.
        holds: bool,
    },
    /// A rule asked something that an assumption decides.
    Assumed {
        /// The assumption's name.
        name: Arc<str>,
        /// The answer.
        holds: bool,
    },
    /// A base chain of nftables that has rules is entered.
    NftChain(NftRule),
    /// A rule of nftables matched, and this is what it does.
    NftMatched(NftRule),
    /// A rule drew a number.
    Drawn {
        /// The rule.
        rule: NftRule,
        /// What was drawn, from 0.
        number: u32,
        /// Below this.
        of: u32,
    },
    /// A policy other than ACCEPT decided.
    Policy(TableName, Hook, Policy),
    /// The mark changed.
    Mark {
        /// Before.
        from: u32,
        /// After.
        to: u32,
    },
    /// The packet is another now.
    Translated {
        /// By whom: "DNAT", "SNAT", "un-DNAT", "IPVS".
        by: &'static str,
        /// As it is now.
        packet: Packet,
    },
    /// IPVS has chosen, or remembered.
    Scheduled {
        /// The virtual service.
        service: SocketAddr,
        /// The scheduler's name.
        scheduler: &'static str,
        /// The destination.
        server: SocketAddr,
        /// Its share of a round; none if chance has no part in it.
        share: Option<(u64, u64)>,
    },
    /// The routing decision.
    Routed {
        /// The interface; none is this machine itself.
        interface: Option<Arc<str>>,
        /// The neighbour.
        next_hop: Option<IpAddr>,
    },
    /// It stays in the bridge.
    Bridged {
        /// The port that it leaves by.
        port: Arc<str>,
    },
    /// A socket took it.
    Delivered {
        /// The machine.
        host: Arc<str>,
        /// The packet as the socket sees it.
        packet: Packet,
    },
    /// It reached a machine, and nothing waits there.
    Refused {
        /// The machine.
        host: Arc<str>,
        /// The packet.
        packet: Packet,
    },
    /// It was rejected.
    Rejected(RejectWith),
    /// It was lost.
    Lost(Lost),
}

/// The whole way.
pub type Trace = Vec<Event>;
