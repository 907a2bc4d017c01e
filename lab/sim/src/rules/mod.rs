//! Rules of one address family: what `iptables-save` prints, as data that can be changed and printed again.
//!
//! [`Rules::read`] is strict: a match, target or option that is not modelled is an error that names table, line and
//! text. [`Rules::read_any`] keeps it as text. Everything that is read can be printed ([`std::fmt::Display`]) in
//! `iptables-save`'s own spelling, so that a tool may take rules, change one, and hand the text on. What lives here knows
//! nothing of packets; walking them is `walk`'s, on a compiled form.

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

/// Something that a rule asks of a packet, or its opposite (`!`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Test<T> {
    /// Whether the opposite is asked.
    pub not: bool,
    /// What is asked.
    pub is: T,
}

impl<T> Test<T> {
    /// Asks for exactly this.
    pub fn is(is: T) -> Test<T> {
        Test { not: false, is }
    }

    /// Asks for anything but this.
    pub fn not(is: T) -> Test<T> {
        Test { not: true, is }
    }

    /// The result for a packet of which `found` holds.
    pub(crate) fn judge(&self, found: bool) -> bool {
        found != self.not
    }

    pub(crate) fn negation(&self) -> &'static str {
        if self.not { " !" } else { "" }
    }
}

/// A table of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableName {
    /// Before connection tracking.
    Raw,
    /// Marks and the like.
    Mangle,
    /// Address translation; sees only what opens a connection.
    Nat,
    /// Accept, drop, reject.
    Filter,
    /// For mandatory access control.
    Security,
}

impl TableName {
    /// All tables.
    pub const ALL: [TableName; 5] =
        [TableName::Raw, TableName::Mangle, TableName::Nat, TableName::Filter, TableName::Security];

    /// As iptables calls it.
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

    /// The built-in chains, which the kernel calls.
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

/// What a built-in chain does with a packet that reaches its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainPolicy {
    /// Let it pass.
    Accept,
    /// Drop it.
    Drop,
}

/// Packets and bytes that a rule or a chain has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleCounters {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Line of the text that it was read from, counted from 1; 0 for a rule that was made.
    pub line: usize,
    /// Its counters, if the text had them.
    pub counters: Option<RuleCounters>,
    /// What stands before the first `-m`.
    pub header: RuleHeader,
    /// The matches, in order: the first that fails ends the rule, and what follows has no side effect.
    pub matches: Vec<Match>,
    /// What happens to a packet that all of it matches.
    pub target: RuleTarget,
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// The policy of a built-in chain.
    pub policy: Option<ChainPolicy>,
    /// Its counters.
    pub counters: Option<RuleCounters>,
    /// Whether the text declared it. Built-in chains exist undeclared.
    pub declared: bool,
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Which.
    pub name: TableName,
    /// All chains: those of the text in its order, then the built-in ones that it left out.
    pub chains: Vec<Chain>,
}

/// All rules of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Which family.
    pub family: Family,
    /// The tables, in the order of the text; a table that is missing lets everything pass.
    pub tables: Vec<Table>,
}

impl Rules {
    /// No rules at all.
    #[must_use]
    pub fn empty(family: Family) -> Rules {
        Rules { family, tables: Vec::new() }
    }

    /// Reads what `iptables-save` or `ip6tables-save` printed, with or without counters, or what `iptables-restore`
    /// would take: `-I` puts a rule at its place, later than all rules that the text had put there before.
    ///
    /// # Errors
    /// The first line that is not understood in full.
    pub fn read(family: Family, text: &str) -> Result<Rules, RuleReadError> {
        read::read(family, text, rule_line::UnknownPolicy::Refused)
    }

    /// Reads the same and keeps what is not modelled as text: a match, target, option or value becomes a [`Match::Unknown`] or
    /// a [`RuleTarget::Unknown`], which is printed as it stood. Whether it matters is known when a packet gets there.
    ///
    /// # Errors
    /// The first line that is none of a dump's: a table that there is not, a chain that was not declared, a missing `COMMIT`.
    pub fn read_any(family: Family, text: &str) -> Result<Rules, RuleReadError> {
        read::read(family, text, rule_line::UnknownPolicy::Kept)
    }

    /// A table.
    #[must_use]
    pub fn table(&self, name: TableName) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.iter().flat_map(|table| &table.chains).map(|chain| chain.rules.len()).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
