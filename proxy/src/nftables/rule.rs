use std::net::{IpAddr, SocketAddr};
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

/// The last field of an endpoint map's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotNumber {
    /// A random number below this.
    Random(u32),
    /// A hash of fields, scaled to a number below `modulus`.
    Jhash { of: &'static [KeyField], modulus: u32, seed: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    Range {
        side: AddressSide,
        range: IpNet,
        negated: bool,
    },
    Interface {
        /// The whole name, or with `prefix` its first letters.
        name: String,
        prefix: bool,
        negated: bool,
    },
    Local(AddressSide),
    Protocol(Protocol),
    InSet {
        key: &'static [KeyField],
        set: Name,
        negated: bool,
    },
    New,
    Established,
    /// Established or new: not the kernel's own reset of a connection, which is related to it.
    NotRelated,
    /// The connection has had more than this many packets.
    MorePackets(u64),
    Offload(&'static str),
    /// The connection has destination NAT.
    Translated,
    /// The packet mark has this bit.
    Marked(u32),
    OneIn(u32),
    Mark(u32),
    Unmark(u32),
    /// Adds the source to a set, or renews its timeout.
    Remember {
        set: Name,
        /// In whole seconds.
        timeout: Duration,
    },
    Map {
        key: &'static [KeyField],
        map: &'static str,
    },
    /// Translates by a map. Without an element the next rule follows. Needs an earlier protocol match.
    TranslateBy {
        /// The key's fields before the number.
        key: &'static [KeyField],
        number: SlotNumber,
        map: &'static str,
    },
    /// Needs an earlier protocol match.
    Translate(SocketAddr),
    Masquerade,
    /// The source becomes this address, with a random port.
    SourceNat(IpAddr),
    Counter,
    /// Counts by the counter that the map has for the key; ends the rule without one. Needs an earlier protocol match.
    CountBy {
        key: &'static [KeyField],
        map: &'static str,
    },
    /// ICMP port unreachable.
    Reject,
    /// Answers with a TCP reset, which the connection's NAT translates. Needs an earlier protocol match.
    Reset,
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
