//! Statements: what a rule asks and does, from left to right.

use super::Expr;

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// No operator: equal, within, or, of flags, any of them.
    Implicit,
    /// `==`.
    Equal,
    /// `!=`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// `!`: none of these flags.
    Without,
}

/// Where a packet goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NftVerdict {
    /// This base chain is done with it.
    Accept,
    /// It is dropped.
    Drop,
    /// Back to the calling chain; in a base chain to its policy.
    Return,
    /// The next rule.
    Continue,
    /// In a chain, and then back.
    Jump(String),
    /// In a chain.
    Goto(String),
}

/// What a translation changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatKind {
    /// The source.
    Snat,
    /// The destination.
    Dnat,
    /// The source, to an address of the interface that it leaves by.
    Masquerade,
    /// The destination, to this machine.
    Redirect,
}

/// What a rule does to a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOperation {
    /// Puts an element in, if it is not there.
    Add,
    /// Puts an element in, or has its time begin anew.
    Update,
    /// Takes an element out.
    Delete,
}

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// Asks.
    Match {
        /// What of the packet.
        left: Expr,
        /// How.
        relation: Relation,
        /// Compared with this.
        right: Expr,
    },
    /// Decides.
    Verdict(NftVerdict),
    /// Decides by a map.
    VerdictMap {
        /// The key.
        key: Expr,
        /// [`Expr::Elements`] or [`Expr::SetRef`].
        map: Expr,
    },
    /// `meta mark set …`, `ct mark set …`.
    Set {
        /// What is changed.
        what: Expr,
        /// What it becomes.
        value: Expr,
    },
    /// `update @set { ip saddr timeout 3h }`.
    Element {
        /// What is done.
        operation: SetOperation,
        /// The set.
        set: String,
        /// The key.
        key: Expr,
        /// Data, in a map.
        data: Option<Expr>,
        /// In milliseconds; the set's, where there is none.
        timeout: Option<u64>,
    },
    /// `dnat to …`.
    Nat {
        /// What is translated.
        kind: NatKind,
        /// The family that is named: `dnat ip to`.
        family: Option<String>,
        /// Address, or address and port in one value.
        address: Option<Expr>,
        /// Port.
        port: Option<Expr>,
        /// `random`, `fully-random`, `persistent`.
        flags: Vec<String>,
    },
    /// `reject with icmp port-unreachable`: `None` is the default; else protocol (`icmp`, `icmpv6`, `icmpx`, `tcp`) and name.
    Reject(Option<(String, String)>),
    /// The connection is not tracked.
    Notrack,
    /// `limit rate over 10/second burst 5 packets`.
    Limit {
        /// Packets.
        rate: u64,
        /// Of so many milliseconds.
        per: u64,
        /// Packets at once.
        burst: u64,
        /// Matches what is beyond.
        over: bool,
    },
    /// Of no concern to a verdict (`counter`, `log`, `flow add @…`); its text.
    NoEffect(String),
    /// Not modelled; its text.
    Unknown(String),
}
