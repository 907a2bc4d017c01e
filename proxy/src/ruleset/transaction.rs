use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use super::{Chains, Rule, Table};

/// Applied as a whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChange {
    pub write: Chains,
    /// Chains of `write` that were missing or empty when last read or written.
    pub absent: BTreeSet<String>,
    pub remove: Vec<String>,
    /// Rules to insert, each at its chain's beginning: the last rule becomes the first.
    pub insert: Vec<(String, Rule)>,
    pub append: Vec<(String, Rule)>,
    /// Rules to delete, one copy each; a missing rule is an error.
    pub delete: Vec<(String, Rule)>,
}

impl TableChange {
    pub fn is_empty(&self) -> bool {
        let single = [&self.append, &self.insert, &self.delete];
        self.write.is_empty() && self.remove.is_empty() && single.iter().all(|rules| rules.is_empty())
    }

    pub fn rules(&self) -> usize {
        self.write.values().map(Vec::len).sum()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    pub tables: BTreeMap<Table, TableChange>,
}

impl Transaction {
    pub fn is_empty(&self) -> bool {
        self.tables.values().all(TableChange::is_empty)
    }

    pub fn table(&mut self, table: Table) -> &mut TableChange {
        self.tables.entry(table).or_default()
    }

    pub fn is_absent(&self, table: Table, chain: &str) -> bool {
        self.tables.get(&table).is_some_and(|change| change.absent.contains(chain))
    }

    pub fn append(&mut self, other: Transaction) {
        for (table, other) in other.tables {
            let TableChange { mut write, mut absent, mut remove, mut insert, mut append, mut delete } = other;
            let change = self.table(table);
            change.write.append(&mut write);
            change.absent.append(&mut absent);
            change.remove.append(&mut remove);
            change.insert.append(&mut insert);
            change.append.append(&mut append);
            change.delete.append(&mut delete);
        }
    }

    /// Returns the written chains, each before the chains that jump to it.
    pub fn writes(&self) -> Vec<(Table, &str, &[Rule])> {
        let mut writes: Vec<(usize, Table, &str, &[Rule])> = Vec::new();
        for (table, change) in &self.tables {
            let mut heights = JumpDepths { chains: &change.write, known: BTreeMap::new() };
            writes
                .extend(change.write.iter().map(|(chain, rules)| (heights.of(chain), *table, &chain[..], &rules[..])));
        }
        writes.sort_unstable_by_key(|(height, table, chain, _)| (*height, *table, *chain));
        writes.into_iter().map(|(_, table, chain, rules)| (table, chain, rules)).collect()
    }

    /// Splits the change into transactions of about `rules` rules, for a kernel that accepts no larger ones. A chain is
    /// written before the chains that jump to it, and removed last, so no packet meets a partly written service. Chains
    /// are never split.
    pub fn parts(&self, rules: usize) -> Vec<Transaction> {
        let writes = self.writes();
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
        for (table, chain, content) in writes {
            full(&mut part, &mut size, content.len() + 1);
            let into = part.table(table);
            if self.is_absent(table, chain) {
                into.absent.insert(chain.to_owned());
            }
            into.write.insert(chain.to_owned(), content.to_vec());
        }
        for (table, change) in &self.tables {
            full(&mut part, &mut size, change.append.len() + change.insert.len() + change.delete.len());
            part.table(*table).append.clone_from(&change.append);
            part.table(*table).insert.clone_from(&change.insert);
            part.table(*table).delete.clone_from(&change.delete);
        }
        // Removed chains are first emptied: they may jump to each other.
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

    /// Returns lines for `iptables-restore`. Declarations empty chains. Chains to remove are declared first, so that no
    /// rule refers to them or their targets.
    pub fn lines(&self) -> impl Iterator<Item = RestoreLine<'_>> {
        self.tables.iter().filter(|(_, change)| !change.is_empty()).flat_map(|(table, change)| {
            let declared = change.write.keys().chain(&change.remove).map(|chain| RestoreLine::Declared(chain));
            let written = change.write.iter().flat_map(|(chain, rules)| rules.iter().map(move |rule| (chain, rule)));
            let written = written.map(|(chain, rule)| RestoreLine::Rule("-A", chain, rule));
            let single = [("-A", &change.append), ("-D", &change.delete), ("-I", &change.insert)];
            let single = single.into_iter().flat_map(|(option, rules)| {
                rules.iter().map(move |(chain, rule)| RestoreLine::Rule(option, chain, rule))
            });
            let removed = change.remove.iter().map(|chain| RestoreLine::Removed(chain));
            std::iter::once(RestoreLine::Table(*table))
                .chain(declared)
                .chain(written)
                .chain(single)
                .chain(removed)
                .chain(std::iter::once(RestoreLine::Commit))
        })
    }

    pub fn text(&self) -> String {
        self.pieces(usize::MAX).collect()
    }

    /// Returns pieces of whole lines, at least `least` bytes each. Lazy: a large cluster's text takes tens of
    /// megabytes.
    pub fn pieces(&self, least: usize) -> impl Iterator<Item = String> {
        let mut lines = self.lines();
        std::iter::from_fn(move || {
            let mut piece = String::new();
            while piece.len() < least {
                let Some(line) = lines.next() else { break };
                let _ = writeln!(piece, "{line}");
            }
            Some(piece).filter(|piece| !piece.is_empty())
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub enum RestoreLine<'a> {
    Table(Table),
    Declared(&'a str),
    /// The option (`-A`, for example), the chain and the rule.
    Rule(&'static str, &'a str, &'a Rule),
    Removed(&'a str),
    Commit,
}

impl fmt::Display for RestoreLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreLine::Table(table) => write!(f, "*{table}"),
            RestoreLine::Declared(chain) => write!(f, ":{chain} - [0:0]"),
            RestoreLine::Rule(option, chain, rule) => write!(f, "{option} {chain} {rule}"),
            RestoreLine::Removed(chain) => write!(f, "-X {chain}"),
            RestoreLine::Commit => f.write_str("COMMIT"),
        }
    }
}

struct JumpDepths<'a> {
    chains: &'a Chains,
    known: BTreeMap<&'a str, usize>,
}

impl<'a> JumpDepths<'a> {
    /// Returns the longest path of jumps. Ends loops, which the kernel would refuse.
    fn of(&mut self, chain: &str) -> usize {
        if let Some(height) = self.known.get(chain) {
            return *height;
        }
        let Some((chain, rules)) = self.chains.get_key_value(chain) else { return 0 };
        self.known.insert(chain, 0);
        let targets = rules.iter().filter_map(|rule| rule.target.chain()).filter(|to| self.chains.contains_key(*to));
        let height = targets.collect::<Vec<_>>().into_iter().map(|to| self.of(to) + 1).max().unwrap_or(0);
        self.known.insert(chain, height);
        height
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::RuleTarget;

    #[test]
    fn an_empty_change_is_not_sent() {
        let mut transaction = Transaction::default();
        transaction.table(Table::Nat);
        assert!(transaction.is_empty());
        assert_eq!(transaction.text(), "");
    }

    #[test]
    fn chains_are_removed_last() {
        let mut transaction = Transaction::default();
        let nat = transaction.table(Table::Nat);
        nat.write.insert("B".into(), vec![Rule::new().target(RuleTarget::Accept)]);
        nat.remove.push("A".into());
        nat.insert.push(("OUTPUT".into(), Rule::new().jump("B")));
        nat.delete.push(("OUTPUT".into(), Rule::new().jump("A")));
        let text = "*nat\n:B - [0:0]\n:A - [0:0]\n-A B -j ACCEPT\n-D OUTPUT -j A\n-I OUTPUT -j B\n-X A\nCOMMIT\n";
        assert_eq!(transaction.text(), text);
        assert_eq!(transaction.pieces(1).collect::<Vec<_>>(), text.split_inclusive('\n').collect::<Vec<_>>());
        assert_eq!(transaction.pieces(8).next().as_deref(), Some("*nat\n:B - [0:0]\n"));
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
