//! A change of the tables: chains to rewrite and chains to remove, and single rules in the kernel's own chains.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use super::{Chains, Rule, Table};

/// One table's part. The kernel takes it as a whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChange {
    /// Chains whose whole content is replaced; those that do not exist are made.
    pub write: Chains,
    /// Those of them that were not there, or empty, when the tables were last read or written.
    pub absent: BTreeSet<String>,
    /// Chains to empty and remove.
    pub remove: Vec<String>,
    /// Rules, each with its chain, to put before all others of it: the last one comes first.
    pub insert: Vec<(String, Rule)>,
    /// Rules, each with its chain, to put behind all others of it.
    pub append: Vec<(String, Rule)>,
    /// Rules, each with its chain, to delete once. It is an error of the kernel's if there is none.
    pub delete: Vec<(String, Rule)>,
}

impl TableChange {
    /// Nothing to send.
    pub fn is_empty(&self) -> bool {
        let single = [&self.append, &self.insert, &self.delete];
        self.write.is_empty() && self.remove.is_empty() && single.iter().all(|rules| rules.is_empty())
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

    /// Whether a chain was not there, or empty, when the tables were last read or written.
    pub fn is_absent(&self, table: Table, chain: &str) -> bool {
        self.tables.get(&table).is_some_and(|change| change.absent.contains(chain))
    }

    /// Another change, of other chains, in the same transaction.
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

    /// The chains to write, in the order of jumps: what is jumped to comes before what jumps to it.
    pub fn writes(&self) -> Vec<(Table, &str, &[Rule])> {
        let mut writes: Vec<(usize, Table, &str, &[Rule])> = Vec::new();
        for (table, change) in &self.tables {
            let mut heights = Heights { chains: &change.write, known: BTreeMap::new() };
            writes
                .extend(change.write.iter().map(|(chain, rules)| (heights.of(chain), *table, &chain[..], &rules[..])));
        }
        writes.sort_unstable_by_key(|(height, table, chain, _)| (*height, *table, *chain));
        writes.into_iter().map(|(_, table, chain, rules)| (table, chain, rules)).collect()
    }

    /// The same change in several transactions of about `rules` rules, for a kernel that takes no larger ones. What is
    /// jumped to comes before what jumps to it, and removal last: a packet meets a service as it was or as it will be.
    /// A single chain is never split, so a part may be larger.
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
        // Single rules are few: they are sent together.
        for (table, change) in &self.tables {
            full(&mut part, &mut size, change.append.len() + change.insert.len() + change.delete.len());
            part.table(*table).append.clone_from(&change.append);
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

    /// The lines of `iptables-restore`'s input. Declaring a chain empties it, so a chain to remove is declared first: what
    /// it referred to is free then, and nothing else refers to it any more.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.tables.iter().filter(|(_, change)| !change.is_empty()).flat_map(|(table, change)| {
            let declared = change.write.keys().chain(&change.remove).map(|chain| Line::Declared(chain));
            let written = change.write.iter().flat_map(|(chain, rules)| rules.iter().map(move |rule| (chain, rule)));
            let written = written.map(|(chain, rule)| Line::Rule("-A", chain, rule));
            let single = [("-A", &change.append), ("-D", &change.delete), ("-I", &change.insert)];
            let single = single
                .into_iter()
                .flat_map(|(option, rules)| rules.iter().map(move |(chain, rule)| Line::Rule(option, chain, rule)));
            let removed = change.remove.iter().map(|chain| Line::Removed(chain));
            std::iter::once(Line::Table(*table))
                .chain(declared)
                .chain(written)
                .chain(single)
                .chain(removed)
                .chain(std::iter::once(Line::Commit))
        })
    }

    /// The input of `iptables-restore`.
    pub fn text(&self) -> String {
        self.pieces(usize::MAX).collect()
    }

    /// The same in pieces of whole lines, each as soon as it has `least` bytes. They are made as they are asked for: the text
    /// of a large cluster is tens of megabytes.
    pub fn pieces(&self, least: usize) -> impl Iterator<Item = String> {
        let mut lines = self.lines();
        std::iter::from_fn(move || {
            let mut piece = String::new();
            while piece.len() < least {
                let Some(line) = lines.next() else { break };
                // Writing into a String cannot fail.
                let _ = writeln!(piece, "{line}");
            }
            Some(piece).filter(|piece| !piece.is_empty())
        })
    }
}

/// One line of `iptables-restore`'s input.
#[derive(Debug, Clone, Copy)]
pub enum Line<'a> {
    /// A table's part begins.
    Table(Table),
    /// A chain is made, or emptied.
    Declared(&'a str),
    /// An option, a chain and the rule that it appends, inserts or deletes there.
    Rule(&'static str, &'a str, &'a Rule),
    /// A chain is deleted.
    Removed(&'a str),
    /// The part is taken as a whole.
    Commit,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Table(table) => write!(f, "*{table}"),
            Line::Declared(chain) => write!(f, ":{chain} - [0:0]"),
            Line::Rule(option, chain, rule) => write!(f, "{option} {chain} {rule}"),
            Line::Removed(chain) => write!(f, "-X {chain}"),
            Line::Commit => f.write_str("COMMIT"),
        }
    }
}

/// How far chains are from the ends of jumps: what is jumped to is lower than what jumps to it.
struct Heights<'a> {
    chains: &'a Chains,
    known: BTreeMap<&'a str, usize>,
}

impl<'a> Heights<'a> {
    /// 0 for a chain that jumps to no other one of these. A loop, which the kernel would refuse, ends where it began.
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
    use crate::ruleset::Target;

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
        nat.write.insert("B".into(), vec![Rule::new().target(Target::Accept)]);
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
