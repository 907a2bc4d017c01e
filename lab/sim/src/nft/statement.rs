use super::Expr;

/// Longer ones first.
pub(super) const RELATIONS: [(&str, Relation); 7] = [
    ("==", Relation::Equal),
    ("!=", Relation::NotEqual),
    ("<=", Relation::LessOrEqual),
    (">=", Relation::GreaterOrEqual),
    ("<", Relation::Less),
    (">", Relation::Greater),
    ("!", Relation::Without),
];
pub(crate) const NAT_KINDS: [(&str, NatKind); 4] = [
    ("snat", NatKind::Snat),
    ("dnat", NatKind::Dnat),
    ("masquerade", NatKind::Masquerade),
    ("redirect", NatKind::Redirect),
];
pub(super) const SET_OPERATIONS: [(&str, SetOperation); 3] =
    [("add", SetOperation::Add), ("update", SetOperation::Update), ("delete", SetOperation::Delete)];
/// Milliseconds.
pub(super) const LIMIT_UNITS: [(&str, u64); 5] =
    [("second", 1000), ("minute", 60_000), ("hour", 3_600_000), ("day", 86_400_000), ("week", 604_800_000)];

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Relation {
    /// Equality, membership, any flag.
    Implicit,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `!`: no flag.
    Without,
}

/// A verdict statement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum NftVerdict {
    Accept,
    Drop,
    /// Base chains: the policy.
    Return,
    Continue,
    Jump(String),
    Goto(String),
}

/// The kind of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum NatKind {
    Snat,
    Dnat,
    Masquerade,
    Redirect,
}

/// An operation on a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SetOperation {
    /// Adds a new element.
    Add,
    /// Adds an element, or restarts its timeout.
    Update,
    Delete,
}

/// Condition or effect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Statement {
    /// A comparison.
    Match {
        left: Expr,
        relation: Relation,
        right: Expr,
    },
    Verdict(NftVerdict),
    /// `KEY vmap MAP`.
    VerdictMap {
        key: Expr,
        /// [`Expr::Elements`] or [`Expr::SetRef`].
        map: Expr,
    },
    /// `meta mark set …`, `ct mark set …`.
    Set {
        what: Expr,
        value: Expr,
    },
    /// `update @set { ip saddr timeout 3h }`.
    Element {
        operation: SetOperation,
        set: String,
        key: Expr,
        /// Map data.
        data: Option<Expr>,
        /// Milliseconds; `None`: the set's.
        timeout: Option<u64>,
    },
    /// `dnat to …`.
    Nat {
        kind: NatKind,
        /// `dnat ip to`.
        family: Option<String>,
        /// Address, or address and port.
        address: Option<Expr>,
        port: Option<Expr>,
        /// `random`, `fully-random`, `persistent`.
        flags: Vec<String>,
    },
    /// `reject with icmp port-unreachable`: protocol and name; `None` is the default.
    Reject(Option<(String, String)>),
    Notrack,
    /// `limit rate over 10/second burst 5 packets`.
    Limit {
        /// Packets ...
        rate: u64,
        /// ... per so many milliseconds.
        per: u64,
        /// Packets.
        burst: u64,
        /// Matches beyond the rate.
        over: bool,
    },
    /// `counter`, `log`, `flow add @…`: no effect on verdicts.
    NoEffect(String),
    /// Unmodelled text.
    Unknown(String),
}
