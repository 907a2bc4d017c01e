use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use nf_tables::field::KeyField;

use super::Name;
use crate::model::Protocol;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSide {
    Source,
    Destination,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NftVerdict {
    Drop,
    Return,
    Jump(Name),
    Goto(Name),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    Range {
        side: AddressSide,
        range: IpNet,
        negated: bool,
    },
    Interface {
        /// The name, or its first letters.
        name: String,
        prefix: bool,
        negated: bool,
    },
    /// An address is local (`fib … type local`).
    Local(AddressSide),
    Protocol(Protocol),
    InSet {
        key: &'static [KeyField],
        set: Name,
        negated: bool,
    },
    /// `ct state new`.
    New,
    /// `ct state established`.
    Established,
    /// In both directions.
    MorePackets(u64),
    Offload(&'static str),
    /// The connection's destination was translated.
    Translated,
    /// These bits of the packet mark are set.
    Marked(u32),
    /// Matches one packet in so many, at random.
    OneIn(u32),
    Mark(u32),
    /// The bits are set.
    Unmark(u32),
    /// Adds the source to a set, or renews its timeout.
    Remember {
        set: Name,
        /// In whole seconds.
        timeout: Duration,
    },
    /// Without an element the next rule follows.
    Map {
        key: &'static [KeyField],
        map: &'static str,
    },
    /// Without an element the next rule follows. An earlier statement must match the protocol.
    TranslateBy {
        /// The last field is random.
        key: Vec<KeyField>,
        map: &'static str,
    },
    /// An earlier statement must match the protocol.
    Translate(SocketAddr),
    Masquerade,
    Counter,
    /// With ICMP port unreachable.
    Reject,
    Verdict(NftVerdict),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    pub statements: Vec<Statement>,
    pub comment: &'static str,
}

impl Rule {
    pub fn new(statements: impl IntoIterator<Item = Statement>) -> Rule {
        Rule { statements: statements.into_iter().collect(), comment: "" }
    }

    pub fn commented(self, comment: &'static str) -> Rule {
        Rule { comment, ..self }
    }
}
