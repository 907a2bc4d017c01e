//! The events of a packet's path, for [`crate::render`] and [`crate::picture`].

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

/// An event on a packet's path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Event {
    /// A socket or the kernel sends a packet.
    Sent {
        host: Arc<str>,
        packet: Packet,
    },
    /// A machine receives a packet.
    Arrived {
        host: Arc<str>,
        /// A bridge, for its ports.
        interface: Arc<str>,
        port: Option<Arc<str>>,
        packet: Packet,
    },
    Hook(Hook),
    /// Conntrack state.
    Tracked(TrackingState),
    /// Its chain begins.
    Table(TableName),
    Matched(RuleRef),
    /// The result of a probabilistic rule.
    Chance {
        rule: RuleRef,
        /// It matched.
        held: bool,
        /// Numerator and denominator.
        share: (u64, u64),
    },
    /// This path's answer.
    Undecided {
        asked: Box<NotModelled>,
        holds: bool,
    },
    /// An unknown fact that an assumption decides.
    Assumed {
        name: Arc<str>,
        holds: bool,
    },
    /// A base chain begins.
    NftChain(RuleRef),
    NftMatched(RuleRef),
    /// A random number of `numgen` or a hash.
    Drawn {
        rule: RuleRef,
        number: u32,
        /// The modulus.
        of: u32,
    },
    /// A policy other than ACCEPT applied.
    Policy(TableName, Hook, ChainPolicy),
    Mark {
        from: u32,
        to: u32,
    },
    /// Rewritten packet.
    Translated {
        /// "DNAT", "SNAT", "un-DNAT", "IPVS".
        by: &'static str,
        /// Rewritten.
        packet: Packet,
    },
    /// A new or an existing connection.
    Scheduled {
        service: SocketAddr,
        scheduler: &'static str,
        server: SocketAddr,
        /// In a rotation.
        share: Option<(u64, u64)>,
    },
    Routed {
        /// `None`: this machine.
        interface: Option<Arc<str>>,
        next_hop: Option<IpAddr>,
    },
    /// The bridge forwards the packet.
    Bridged {
        /// Output port.
        port: Arc<str>,
    },
    /// A socket received the packet.
    Delivered {
        host: Arc<str>,
        packet: Packet,
    },
    /// No socket listens.
    Refused {
        host: Arc<str>,
        packet: Packet,
    },
    Rejected(RejectWith),
    Lost(DropReason),
}

/// The events of one direction in order.
pub type Trace = Vec<Event>;
