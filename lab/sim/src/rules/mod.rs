//! One family's iptables rules. [`Rules::read`] is strict, [`Rules::read_any`] keeps unmodelled parts as text.
//! `Display` prints like `iptables-save`.

pub mod ct;
pub mod error;
pub mod external_targets;
pub mod header;
mod hop_limit;
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
    /// Inverted by `!`.
    pub not: bool,
    pub is: T,
}

impl<T> Test<T> {
    /// Returns a condition without `!`.
    pub fn is(is: T) -> Test<T> {
        Test { not: false, is }
    }

    /// Returns a condition with `!`.
    pub fn not(is: T) -> Test<T> {
        Test { not: true, is }
    }

    pub(crate) fn judge(&self, found: bool) -> bool {
        found != self.not
    }

    pub(crate) fn negation(&self) -> &'static str {
        if self.not { " !" } else { "" }
    }
}

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
    /// All tables in the order that packets pass.
    pub const ALL: [TableName; 5] =
        [TableName::Raw, TableName::Mangle, TableName::Nat, TableName::Filter, TableName::Security];

    /// Returns the name in iptables.
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

    /// Returns the built-in chains.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ChainPolicy {
    Accept,
    Drop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RuleCounters {
    pub packets: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Rule {
    /// Counted from 1; 0 without listing.
    pub line: usize,
    pub counters: Option<RuleCounters>,
    pub header: RuleHeader,
    /// The first match that fails ends the rule.
    pub matches: Vec<Match>,
    pub target: RuleTarget,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Chain {
    pub name: String,
    /// The policy of a built-in chain.
    pub policy: Option<ChainPolicy>,
    pub counters: Option<RuleCounters>,
    /// Whether a `:` line declares the chain.
    pub declared: bool,
    pub rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Table {
    pub name: TableName,
    /// Listed chains, then unlisted built-in chains.
    pub chains: Vec<Chain>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Rules {
    pub family: Family,
    /// Missing tables accept all packets.
    pub tables: Vec<Table>,
}

impl Rules {
    /// Returns rules without tables.
    #[must_use]
    pub fn empty(family: Family) -> Rules {
        Rules { family, tables: Vec::new() }
    }

    /// Reads `iptables-save`'s output or `iptables-restore`'s input with `-A` and `-I`.
    pub fn read(family: Family, text: &str) -> Result<Rules, RuleReadError> {
        read::read(family, text, rule_line::UnknownPolicy::Refused)
    }

    /// Like [`Rules::read`], but keeps unmodelled parts as [`Match::Unknown`] and [`RuleTarget::Unknown`]. Fails on
    /// unknown tables, undeclared chains, a missing `COMMIT`.
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
