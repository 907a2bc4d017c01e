//! The jumps from the kernel's own chains into ours: few, constant, and the only thing that touches chains of others.

use super::saved::Saved;
use super::transaction::TableChange;
use crate::kernel::iptables::Table;

/// A rule in one of the kernel's chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// The table.
    pub table: Table,
    /// The kernel's chain.
    pub from: &'static str,
    /// The rule, as `iptables-save` prints it.
    pub rule: &'static str,
    /// Our chain.
    pub to: &'static str,
}

impl Jump {
    /// One of a mode's jumps.
    pub const fn new(table: Table, from: &'static str, to: &'static str, rule: &'static str) -> Jump {
        Jump { table, from, rule, to }
    }

    /// Whether it is among the rules of a dump.
    pub fn is_in(&self, saved: &Saved) -> bool {
        self.copies(saved) > 0
    }

    /// How many copies of it a dump holds.
    fn copies(&self, saved: &Saved) -> usize {
        let rules = saved.tables.get(&self.table).and_then(|table| table.chains.get(self.from));
        rules.map_or(0, |rules| rules.iter().filter(|rule| *rule == self.rule).count())
    }

    /// Adds the deletion of every copy in the dump to a change of its table.
    pub fn delete_all(&self, saved: &Saved, change: &mut TableChange) {
        let rule = || (self.from.to_owned(), self.rule.to_owned());
        change.delete.extend((0..self.copies(saved)).map(|_| rule()));
    }

    /// Whether the kernel could not tell the two.
    pub fn is_same_rule(&self, other: &Jump) -> bool {
        (self.table, self.from, self.rule) == (other.table, other.from, other.rule)
    }
}

/// The jumps of every mode of this proxy.
pub fn of_all_modes() -> impl Iterator<Item = &'static Jump> {
    use crate::mode::{iptables, ipvs, userspace};
    iptables::jumps::ALL.iter().chain(&ipvs::jumps::ALL).chain(&userspace::jumps::ALL)
}
