//! What is sent to `iptables-restore --noflush`: per table, chains to rewrite and chains to remove, and single rules in the
//! kernel's own chains.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Chains, names};
use crate::kernel::iptables::{Iptables, IptablesError, Table};

/// Rules in a transaction where the kernel takes no large ones: with the usual `net.core.wmem_max` of 212,992 bytes
/// about 480 rules with a comment were taken by iptables-nft 1.8.9.
const PART: usize = 200;

/// One table's part. The kernel takes it as a whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChange {
    /// Chains whose whole content is replaced; those that do not exist are made.
    pub write: Chains,
    /// Chains to empty and remove.
    pub remove: Vec<String>,
    /// Rules, each with its chain, to put before all others of it: the last one comes first.
    pub insert: Vec<(String, String)>,
    /// Rules, each with its chain, to delete once. It is an error of the kernel's if there is none.
    pub delete: Vec<(String, String)>,
}

impl TableChange {
    /// Nothing to send.
    pub fn is_empty(&self) -> bool {
        self.write.is_empty() && self.remove.is_empty() && self.insert.is_empty() && self.delete.is_empty()
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

    /// Brings the change to the kernel: in one transaction, or in several where it takes no larger ones.
    ///
    /// # Errors
    /// When the kernel refuses it; parts before may have been taken.
    pub fn send<K: Iptables>(&self, kernel: &mut K) -> Result<(), IptablesError> {
        match kernel.restore(&self.text()) {
            Err(IptablesError::TooLarge { .. }) => {
                self.parts(PART).iter().try_for_each(|part| kernel.restore(&part.text()))
            }
            result => result,
        }
    }

    /// The same change in several transactions of about `rules` rules, for a kernel that takes no larger ones. What is
    /// jumped to comes before what jumps to it, and removal last: a packet meets a service as it was or as it will be.
    /// A single chain is never split, so a part may be larger.
    fn parts(&self, rules: usize) -> Vec<Transaction> {
        let mut writes: Vec<(u8, Table, &String, &Vec<String>)> = Vec::new();
        for (table, change) in &self.tables {
            writes.extend(change.write.iter().map(|(chain, content)| (rank(chain), *table, chain, content)));
        }
        writes.sort_unstable();
        let mut parts = Vec::new();
        let mut part = Transaction::default();
        let mut size = 0;
        let mut full = |part: &mut Transaction, size: &mut usize, more: usize| {
            if *size > 0 && *size + more > rules {
                parts.push(std::mem::take(part));
                *size = 0;
            }
            *size += more;
        };
        for (_, table, chain, content) in writes {
            full(&mut part, &mut size, content.len() + 1);
            part.table(table).write.insert(chain.clone(), content.clone());
        }
        // The jumps are few: they are sent together.
        for (table, change) in &self.tables {
            full(&mut part, &mut size, change.insert.len() + change.delete.len());
            part.table(*table).insert.clone_from(&change.insert);
            part.table(*table).delete.clone_from(&change.delete);
        }
        // Emptied together, since they may jump to one another, then removed.
        let removals =
            self.tables.iter().flat_map(|(table, change)| change.remove.iter().map(move |chain| (*table, chain)));
        let removals: Vec<_> = removals.collect();
        for (table, chain) in &removals {
            full(&mut part, &mut size, 1);
            part.table(*table).write.insert((*chain).clone(), Vec::new());
        }
        full(&mut part, &mut size, rules);
        for (table, chain) in removals {
            full(&mut part, &mut size, 2);
            part.table(table).remove.push(chain.clone());
        }
        parts.push(part);
        parts.retain(|part| !part.is_empty());
        parts
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
            for (option, rules) in [("-D", &change.delete), ("-I", &change.insert)] {
                for (chain, rule) in rules {
                    let _ = writeln!(text, "{option} {chain} {rule}");
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

/// Where a chain stands in the order of jumps, targets first.
fn rank(chain: &str) -> u8 {
    match chain {
        names::MARK_MASQ | names::CANARY => 0,
        _ if chain.starts_with(names::SEP) => 1,
        _ if chain.starts_with(names::SVC) || chain.starts_with(names::SVL) => 2,
        _ if chain.starts_with(names::EXT) => 3,
        _ if chain.starts_with(names::FW) => 4,
        names::SERVICES => 6,
        _ => 5,
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
        nat.insert.push(("OUTPUT".into(), "-j B".into()));
        nat.delete.push(("OUTPUT".into(), "-j A".into()));
        let text = "*nat\n:B - [0:0]\n:A - [0:0]\n-A B -j ACCEPT\n-D OUTPUT -j A\n-I OUTPUT -j B\n-X A\nCOMMIT\n";
        assert_eq!(transaction.text(), text);
        let parts: Vec<String> = transaction.parts(1).iter().map(Transaction::text).collect();
        let expected = [
            "*nat\n:B - [0:0]\n-A B -j ACCEPT\nCOMMIT\n",
            "*nat\n-D OUTPUT -j A\n-I OUTPUT -j B\nCOMMIT\n",
            "*nat\n:A - [0:0]\nCOMMIT\n",
            "*nat\n:A - [0:0]\n-X A\nCOMMIT\n",
        ];
        assert_eq!(parts, expected);
    }
}
