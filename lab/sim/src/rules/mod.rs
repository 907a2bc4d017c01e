//! One family's iptables rules. [`Rules::read`] is strict, [`Rules::read_any`] keeps unmodelled parts as text.
//! `Display` spells like `iptables-save`.

pub mod ct;
pub mod error;
pub mod external_targets;
pub mod header;
mod marks;
pub mod matches;
pub mod nat;
mod no_effect;
pub mod options;
mod print;
mod read;
mod reject;
mod rule_line;
pub mod target;
pub(crate) mod tokens;
pub(crate) mod unmodelled;

use std::fmt;

pub use error::{Problem, RuleReadError};
pub use header::{InterfacePattern, RuleHeader};
pub use matches::Match;
pub use target::RuleTarget;

use crate::protocol::Family;

/// A condition, possibly inverted by `!`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Test<T> {
    /// Inverted.
    pub not: bool,
    pub is: T,
}

impl<T> Test<T> {
    /// A condition without `!`.
    pub fn is(is: T) -> Test<T> {
        Test { not: false, is }
    }

    /// A condition with `!`.
    pub fn not(is: T) -> Test<T> {
        Test { not: true, is }
    }

    /// Applies `!`.
    pub(crate) fn judge(&self, found: bool) -> bool {
        found != self.not
    }

    pub(crate) fn negation(&self) -> &'static str {
        if self.not { " !" } else { "" }
    }
}

/// A table of iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum TableName {
    Raw,
    Mangle,
    Nat,
    Filter,
    Security,
}

impl TableName {
    /// In a packet's order.
    pub const ALL: [TableName; 5] =
        [TableName::Raw, TableName::Mangle, TableName::Nat, TableName::Filter, TableName::Security];

    /// The name in iptables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TableName::Raw => "raw",
            TableName::Mangle => "mangle",
            TableName::Nat => "nat",
            TableName::Filter => "filter",
            TableName::Security => "security",
        }
    }

    /// Chains at hooks.
    #[must_use]
    pub fn built_in(self) -> &'static [&'static str] {
        match self {
            TableName::Raw => &["PREROUTING", "OUTPUT"],
            TableName::Mangle => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
            TableName::Nat => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
            TableName::Filter | TableName::Security => &["INPUT", "FORWARD", "OUTPUT"],
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The policy of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ChainPolicy {
    Accept,
    Drop,
}

/// Packets and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RuleCounters {
    pub packets: u64,
    pub bytes: u64,
}

/// A rule with its comment or counters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Rule {
    /// From 1; 0: not read.
    pub line: usize,
    pub counters: Option<RuleCounters>,
    pub header: RuleHeader,
    /// The first failure ends the rule.
    pub matches: Vec<Match>,
    pub target: RuleTarget,
}

/// A chain with its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Chain {
    pub name: String,
    /// The policy of a built-in chain.
    pub policy: Option<ChainPolicy>,
    pub counters: Option<RuleCounters>,
    /// Built-in ones need none.
    pub declared: bool,
    pub rules: Vec<Rule>,
}

/// A table with its chains.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Table {
    pub name: TableName,
    /// Listed, then built-in ones.
    pub chains: Vec<Chain>,
}

/// The iptables rules of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Rules {
    pub family: Family,
    /// Missing ones accept.
    pub tables: Vec<Table>,
}

impl Rules {
    /// A ruleset without tables.
    #[must_use]
    pub fn empty(family: Family) -> Rules {
        Rules { family, tables: Vec::new() }
    }

    /// `iptables-save`'s output or `iptables-restore`'s input with `-A` and `-I`.
    pub fn read(family: Family, text: &str) -> Result<Rules, RuleReadError> {
        read::read(family, text, rule_line::UnknownPolicy::Refused)
    }

    /// Keeps [`Match::Unknown`] and [`RuleTarget::Unknown`]. Fails on unknown tables, undeclared chains, a missing
    /// `COMMIT`.
    pub fn read_any(family: Family, text: &str) -> Result<Rules, RuleReadError> {
        read::read(family, text, rule_line::UnknownPolicy::Kept)
    }

    /// Finds a table by name.
    #[must_use]
    pub fn table(&self, name: TableName) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// The number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.iter().flat_map(|table| &table.chains).map(|chain| chain.rules.len()).sum()
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
