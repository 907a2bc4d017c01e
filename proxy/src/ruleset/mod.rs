//! iptables rules, chains and tables as values, and their changes; no I/O.

mod matches;
mod report;
mod rule;
mod saved;
mod target;
mod transaction;

use std::collections::BTreeMap;
use std::fmt;

pub use matches::{AddressTypeSide, ConnectionStates, Match, Not, SetDirection};
pub use report::{RuleCounts, SyncReport};
pub use rule::{InputInterface, Rule};
pub use saved::{SavedTable, SavedTables, target_of};
pub use target::RuleTarget;
pub use transaction::{RestoreLine, TableChange, Transaction};

pub type Chains = BTreeMap<String, Vec<Rule>>;

pub type Tables = BTreeMap<Table, Chains>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// The first table: a frontend that loses its last backend must be rejected before its translation ends.
    Filter,
    Mangle,
    Nat,
}

impl Table {
    pub const ALL: [Table; 3] = [Table::Filter, Table::Mangle, Table::Nat];

    pub fn as_str(self) -> &'static str {
        match self {
            Table::Filter => "filter",
            Table::Mangle => "mangle",
            Table::Nat => "nat",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
