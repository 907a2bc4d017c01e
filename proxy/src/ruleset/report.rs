use super::{Rule, Table, Transaction};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleCounts {
    pub filter: usize,
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

    pub(crate) fn replace(&mut self, table: Table, before: usize, after: usize) {
        let count = match table {
            Table::Filter => &mut self.filter,
            Table::Nat => &mut self.nat,
            Table::Mangle => return,
        };
        *count = *count + after - before;
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncReport {
    pub full: bool,
    pub rules: usize,
    pub removed_chains: usize,
    /// Jumps inserted into or removed from built-in chains.
    pub jumps: usize,
    /// Changed elements, set members, virtual servers, destinations and addresses.
    pub changes: usize,
    /// Sent rules, without those that only emptied a chain.
    pub sent: RuleCounts,
    pub total: RuleCounts,
}

impl SyncReport {
    pub(crate) fn of(transaction: &Transaction) -> SyncReport {
        let tables = || transaction.tables.values();
        SyncReport {
            rules: tables().map(|table| table.rules() + table.write.values().filter(|r| r.is_empty()).count()).sum(),
            removed_chains: tables().map(|table| table.remove.len()).sum(),
            sent: RuleCounts::of(
                transaction
                    .tables
                    .iter()
                    .flat_map(|(table, change)| change.write.values().map(|rules| (*table, rules))),
            ),
            ..SyncReport::default()
        }
    }

    pub(crate) fn add(&mut self, other: &SyncReport) {
        self.rules += other.rules;
        self.removed_chains += other.removed_chains;
        self.sent.filter += other.sent.filter;
        self.sent.nat += other.sent.nat;
    }

    pub fn is_empty(&self) -> bool {
        self.rules == 0 && self.removed_chains == 0 && self.jumps == 0 && self.changes == 0
    }
}
