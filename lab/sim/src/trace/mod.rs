//! What happened to a packet, step by step: data from which text ([`crate::render`]) and drawings can be made.

mod lost;
mod not_modelled;
mod rule;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use lost::DropReason;
pub use not_modelled::NotModelled;
pub use rule::RuleRef;

use crate::conntrack::TrackingState;
use crate::hook::Hook;
use crate::packet::Packet;
use crate::rules::target::RejectWith;
use crate::rules::{ChainPolicy, TableName};

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
    Tracked(TrackingState),
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
    NftChain(RuleRef),
    /// A rule of nftables matched, and this is what it does.
    NftMatched(RuleRef),
    /// A rule drew a number.
    Drawn {
        /// The rule.
        rule: RuleRef,
        /// What was drawn, from 0.
        number: u32,
        /// Below this.
        of: u32,
    },
    /// A policy other than ACCEPT decided.
    Policy(TableName, Hook, ChainPolicy),
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
    Lost(DropReason),
}

/// The whole way.
pub type Trace = Vec<Event>;
