use super::Expr;

/// Longer operators first.
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
    /// No operator: equality, membership or any flag.
    Implicit,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `!`: none of the flags.
    Without,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum NftVerdict {
    Accept,
    Drop,
    /// In base chains, applies the policy.
    Return,
    Continue,
    Jump(String),
    Goto(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum NatKind {
    Snat,
    Dnat,
    Masquerade,
    Redirect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SetOperation {
    Add,
    /// Adds an element, or restarts its timeout.
    Update,
    Delete,
}

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
    /// `counter name KEY map MAP`: counts by the element's counter; ends the rule without an element.
    CountBy {
        key: Expr,
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
        /// In milliseconds; `None`: the set's timeout.
        timeout: Option<u64>,
        /// `limit …`, `ct count …`: each new element has its own. None: the set's.
        statements: Vec<Statement>,
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
        /// Packets in the time `per`.
        rate: u64,
        /// In milliseconds.
        per: u64,
        /// Packets.
        burst: u64,
        /// Matches beyond the rate.
        over: bool,
    },
    /// `ct count over 20`.
    ConnectionCount {
        count: u32,
        /// Matches above the count.
        over: bool,
    },
    /// `counter`, `log`, `flow add @…`: no effect on verdicts.
    NoEffect(String),
    /// An unmodelled statement that only matches, such as `quota over 10 mbytes`.
    UnknownMatch {
        /// The name in assumptions.
        name: String,
        text: String,
    },
    /// Unmodelled text.
    Unknown(String),
}
