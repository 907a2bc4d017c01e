//! The jumps from the kernel's own chains into ours: few, constant, and the only thing that touches chains of others.

use crate::ruleset::{ConnectionStates, Rule, Saved, Table, TableChange};

/// A rule in one of the kernel's chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// The table.
    pub table: Table,
    /// The kernel's chain.
    pub from: &'static str,
    /// Our chain.
    pub to: &'static str,
    /// Which packets jump.
    matches: &'static [On],
}

/// A match of a jump, in the order in which it stands in the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// The first packet of a connection.
    New,
    /// A packet to an address of the node.
    ToLocalAddress,
    /// Any packet; this comment stands beside.
    Comment(&'static str),
}

impl Jump {
    /// One of a mode's jumps.
    pub const fn new(table: Table, from: &'static str, to: &'static str, matches: &'static [On]) -> Jump {
        Jump { table, from, to, matches }
    }

    /// The rule.
    pub fn rule(&self) -> Rule {
        let with = |rule: Rule, one: &On| match one {
            On::New => rule.conntrack(ConnectionStates::NEW),
            On::ToLocalAddress => rule.to_local_address(),
            On::Comment(text) => rule.comment(text),
        };
        self.matches.iter().fold(Rule::new(), with).jump(self.to)
    }

    /// Whether it is among the rules of a dump.
    pub fn is_in(&self, saved: &Saved) -> bool {
        self.copies(saved) > 0
    }

    /// How many copies of it a dump holds.
    fn copies(&self, saved: &Saved) -> usize {
        let rules = saved.tables.get(&self.table).and_then(|table| table.chains.get(self.from));
        let text = self.rule().to_string();
        rules.map_or(0, |rules| rules.iter().filter(|rule| **rule == text).count())
    }

    /// Adds the deletion of every copy in the dump to a change of its table.
    pub fn delete_all(&self, saved: &Saved, change: &mut TableChange) {
        let rule = || (self.from.to_owned(), self.rule());
        change.delete.extend((0..self.copies(saved)).map(|_| rule()));
    }

    /// Whether the kernel could not tell the two.
    pub fn is_same_rule(&self, other: &Jump) -> bool {
        (self.table, self.from, self.to, self.matches) == (other.table, other.from, other.to, other.matches)
    }
}

/// The jumps of every mode of this proxy.
pub fn of_all_modes() -> impl Iterator<Item = &'static Jump> {
    use crate::mode::iptables_family::{iptables, ipvs, userspace};
    iptables::jumps::ALL.iter().chain(&ipvs::jumps::ALL).chain(&userspace::jumps::ALL)
}
