//! What a sync tells about itself.

use super::{Rule, Table, Transaction};

/// Rules of the proxy's own by table; mangle has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// In filter.
    pub filter: usize,
    /// In nat.
    pub nat: usize,
}

impl RuleCounts {
    pub(crate) fn of<'a>(chains: impl IntoIterator<Item = (Table, &'a Vec<Rule>)>) -> RuleCounts {
        let mut counts = RuleCounts::default();
        for (table, rules) in chains {
            counts.replace(table, 0, rules.len());
        }
        counts
    }

    /// So many rules of a table give way to so many others.
    pub(crate) fn replace(&mut self, table: Table, before: usize, after: usize) {
        let count = match table {
            Table::Filter => &mut self.filter,
            Table::Nat => &mut self.nat,
            Table::Mangle => return,
        };
        *count = *count + after - before;
    }
}

/// What a sync did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// The whole state was compared with the kernel's.
    pub full: bool,
    /// Rules sent.
    pub rules: usize,
    /// Chains removed.
    pub removed_chains: usize,
    /// Jumps put back into the kernel's chains.
    pub jumps: usize,
    /// Changes of other kernel objects than rules: set members, virtual servers and their destinations, addresses.
    pub changes: usize,
    /// Rules sent, by table; without those that only emptied a chain.
    pub sent: RuleCounts,
    /// Rules that are in the kernel now.
    pub total: RuleCounts,
}

impl Report {
    /// What sending this to the tables does.
    pub(crate) fn of(transaction: &Transaction) -> Report {
        let tables = || transaction.tables.values();
        Report {
            rules: tables().map(|table| table.rules() + table.write.values().filter(|r| r.is_empty()).count()).sum(),
            removed_chains: tables().map(|table| table.remove.len()).sum(),
            sent: RuleCounts::of(
                transaction
                    .tables
                    .iter()
                    .flat_map(|(table, change)| change.write.values().map(|rules| (*table, rules))),
            ),
            ..Report::default()
        }
    }

    /// Another transaction of the same sync.
    pub(crate) fn add(&mut self, other: &Report) {
        self.rules += other.rules;
        self.removed_chains += other.removed_chains;
        self.sent.filter += other.sent.filter;
        self.sent.nat += other.sent.nat;
    }

    /// Nothing was sent.
    pub fn is_empty(&self) -> bool {
        self.rules == 0 && self.removed_chains == 0 && self.jumps == 0 && self.changes == 0
    }
}
