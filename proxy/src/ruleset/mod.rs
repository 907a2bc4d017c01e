//! Rules, chains and tables of the packet filter as values, and a change of them. No word of Kubernetes, and no I/O: the adapters
//! in [`crate::kernel`] write the values down, as text for the iptables commands or as netlink messages.

mod matches;
mod report;
mod rule;
mod saved;
mod target;
mod transaction;

use std::collections::BTreeMap;
use std::fmt;

pub use matches::{AddressType, ConnectionStates, Direction, Match, Not};
pub use report::{Report, RuleCounts};
pub use rule::{Interface, Rule};
pub use saved::{Saved, SavedTable, target_of};
pub use target::Target;
pub use transaction::{Line, TableChange, Transaction};

/// Rules by chain.
pub type Chains = BTreeMap<String, Vec<Rule>>;

/// Chains by table.
pub type Tables = BTreeMap<Table, Chains>;

/// A table that the proxy uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// filter: what is refused, dropped, let through. First in a transaction: a frontend that loses its last backend
    /// must refuse before it stops delivering.
    Filter,
    /// mangle: the canary, and in IPVS mode what the node itself may not send.
    Mangle,
    /// nat: who goes where.
    Nat,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 3] = [Table::Filter, Table::Mangle, Table::Nat];

    /// iptables' word for it.
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
