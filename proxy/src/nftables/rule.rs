//! Rules.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use nf_tables::field::Field;

use super::Name;
use crate::model::Protocol;

/// Which address of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// Where a packet goes on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Nowhere.
    Drop,
    /// Behind this chain.
    Return,
    /// In another chain, and then in this one.
    Jump(Name),
    /// In another chain.
    Goto(Name),
}

/// A part of a rule: a match, or something that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// An address lies in a range, or (`negated`) does not.
    Range {
        /// Which address.
        side: Side,
        /// The range.
        range: IpNet,
        /// Not in it.
        negated: bool,
    },
    /// The packet came in by an interface.
    Interface {
        /// Its name, or how the name begins.
        name: String,
        /// The name begins so.
        prefix: bool,
        /// It did not.
        negated: bool,
    },
    /// An address is one of this node's (`fib … type local`).
    Local(Side),
    /// The transport protocol.
    Protocol(Protocol),
    /// What these fields hold is in a set, or (`negated`) is not.
    InSet {
        /// The fields.
        key: &'static [Field],
        /// The set.
        set: Name,
        /// Not in it.
        negated: bool,
    },
    /// The packet begins a connection.
    New,
    /// The packet belongs to a connection that has been answered.
    Established,
    /// The connection has had more packets than this, in both directions.
    MorePackets(u64),
    /// The connection's next packets go by this flowtable.
    Offload(&'static str),
    /// The connection's destination was translated.
    Translated,
    /// These bits are set in the packet's mark.
    Marked(u32),
    /// One of so many, drawn anew each time, is the first.
    OneIn(u32),
    /// Sets these bits in the packet's mark.
    Mark(u32),
    /// Turns these bits, which are set, off.
    Unmark(u32),
    /// The source is put into a set, or stays there, for this time from now on.
    Remember {
        /// The set.
        set: Name,
        /// Whole seconds.
        timeout: Duration,
    },
    /// The verdict that a map has for what these fields hold; the next rule, where it has none.
    Map {
        /// The fields.
        key: &'static [Field],
        /// The map.
        map: &'static str,
    },
    /// The destination becomes what a map has for these fields; the next rule, where it has nothing. The protocol must be known by then.
    TranslateBy {
        /// The fields; the last one is drawn.
        key: Vec<Field>,
        /// The map.
        map: &'static str,
    },
    /// The destination becomes this. The protocol must be known by then.
    Translate(SocketAddr),
    /// The source becomes the node's, with a port drawn at random.
    Masquerade,
    /// Counts packets and bytes.
    Counter,
    /// Refused with an ICMP message that the port is unreachable.
    Reject,
    /// A verdict.
    Verdict(Verdict),
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// From left to right.
    pub statements: Vec<Statement>,
    /// What it is for; empty: nothing.
    pub comment: &'static str,
}

impl Rule {
    /// A rule without a comment.
    pub fn new(statements: impl IntoIterator<Item = Statement>) -> Rule {
        Rule { statements: statements.into_iter().collect(), comment: "" }
    }

    /// With a comment.
    pub fn commented(self, comment: &'static str) -> Rule {
        Rule { comment, ..self }
    }
}
