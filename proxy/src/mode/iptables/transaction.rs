//! What is sent to `iptables-restore --noflush`: per table, chains to rewrite and chains to remove.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::fragment::Chains;
use crate::kernel::iptables::Table;

/// One table's part. The kernel takes it as a whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChange {
    /// Chains whose whole content is replaced; those that do not exist are made.
    pub write: Chains,
    /// Chains to empty and remove.
    pub remove: Vec<String>,
}

impl TableChange {
    /// Nothing to send.
    pub fn is_empty(&self) -> bool {
        self.write.is_empty() && self.remove.is_empty()
    }

    /// Rules in it.
    pub fn rules(&self) -> usize {
        self.write.values().map(Vec::len).sum()
    }
}

/// A change of all tables of a family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// By table.
    pub tables: BTreeMap<Table, TableChange>,
}

impl Transaction {
    /// Nothing to send.
    pub fn is_empty(&self) -> bool {
        self.tables.values().all(TableChange::is_empty)
    }

    /// One table's part, made if need be.
    pub fn table(&mut self, table: Table) -> &mut TableChange {
        self.tables.entry(table).or_default()
    }

    /// The input of `iptables-restore`. Declaring a chain empties it, so a chain to remove is declared first: what
    /// it referred to is free then, and nothing else refers to it any more.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (table, change) in self.tables.iter().filter(|(_, change)| !change.is_empty()) {
            let _ = writeln!(text, "*{table}");
            for chain in change.write.keys().chain(&change.remove) {
                let _ = writeln!(text, ":{chain} - [0:0]");
            }
            for (chain, rules) in &change.write {
                for rule in rules {
                    let _ = writeln!(text, "-A {chain} {rule}");
                }
            }
            for chain in &change.remove {
                let _ = writeln!(text, "-X {chain}");
            }
            text.push_str("COMMIT\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_change_is_not_sent() {
        let mut transaction = Transaction::default();
        transaction.table(Table::Nat);
        assert!(transaction.is_empty());
        assert_eq!(transaction.text(), "");
    }

    #[test]
    fn removal_comes_after_everything_else() {
        let mut transaction = Transaction::default();
        let nat = transaction.table(Table::Nat);
        nat.write.insert("B".into(), vec!["-j ACCEPT".into()]);
        nat.remove.push("A".into());
        assert_eq!(transaction.text(), "*nat\n:B - [0:0]\n:A - [0:0]\n-A B -j ACCEPT\n-X A\nCOMMIT\n");
    }
}
