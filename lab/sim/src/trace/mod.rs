//! The events of a packet's path, for [`crate::render`] and [`crate::picture`].

mod element;
mod lost;
mod not_modelled;
mod rule;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use element::ElementRef;
pub use lost::{DropReason, StoppedDiscovery};
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
    Sent {
        host: Arc<str>,
        packet: Packet,
    },
    Arrived {
        host: Arc<str>,
        /// The input interface; the bridge if a port received the packet.
        interface: Arc<str>,
        port: Option<Arc<str>>,
        packet: Packet,
    },
    /// An ARP packet that is lost, or that depends on an unknown fact.
    Arp {
        host: Arc<str>,
        /// A reply otherwise.
        request: bool,
        sender: IpAddr,
        target: IpAddr,
    },
    Hook(Hook),
    Tracked(TrackingState),
    Table(TableName),
    Matched(RuleRef),
    /// The result of a probabilistic rule.
    Chance {
        rule: RuleRef,
        /// Whether the rule's draw succeeded.
        held: bool,
        share: (u64, u64),
    },
    /// This path assumes an answer to an unknown fact.
    Undecided {
        asked: Box<NotModelled>,
        holds: bool,
    },
    /// An unknown fact that an assumption decides.
    Assumed {
        name: Arc<str>,
        holds: bool,
    },
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
    Translated {
        /// "DNAT", "SNAT", "un-DNAT", "IPVS".
        by: &'static str,
        packet: Packet,
    },
    /// IPVS chose a server, or found its connection.
    Scheduled {
        service: SocketAddr,
        scheduler: &'static str,
        server: SocketAddr,
        /// The server's share of a rotation.
        share: Option<(u64, u64)>,
    },
    Routed {
        /// The output interface; `None` for this machine.
        interface: Option<Arc<str>>,
        next_hop: Option<IpAddr>,
    },
    Bridged {
        port: Arc<str>,
    },
    Delivered {
        host: Arc<str>,
        packet: Packet,
    },
    Refused {
        host: Arc<str>,
        packet: Packet,
    },
    Rejected(RejectWith),
    Lost(DropReason),
}

/// The events of one direction in order.
pub type Trace = Vec<Event>;
