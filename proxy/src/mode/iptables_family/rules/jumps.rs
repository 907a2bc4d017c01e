//! The jumps to the proxy's chains: its only rules in built-in chains.

use crate::ruleset::{ConnectionStates, Rule, SavedTables, Table, TableChange};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    pub table: Table,
    pub from: &'static str,
    pub to: &'static str,
    matches: &'static [JumpMatch],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JumpMatch {
    New,
    ToLocalAddress,
    /// Matches every packet, with a comment.
    Comment(&'static str),
}

impl Jump {
    pub const fn new(table: Table, from: &'static str, to: &'static str, matches: &'static [JumpMatch]) -> Jump {
        Jump { table, from, to, matches }
    }

    pub fn rule(&self) -> Rule {
        let with = |rule: Rule, one: &JumpMatch| match one {
            JumpMatch::New => rule.conntrack(ConnectionStates::NEW),
            JumpMatch::ToLocalAddress => rule.to_local_address(),
            JumpMatch::Comment(text) => rule.comment(text),
        };
        self.matches.iter().fold(Rule::new(), with).jump(self.to)
    }

    pub fn is_in(&self, saved: &SavedTables) -> bool {
        self.copies(saved) > 0
    }

    fn copies(&self, saved: &SavedTables) -> usize {
        let rules = saved.tables.get(&self.table).and_then(|table| table.chains.get(self.from));
        let text = self.rule().to_string();
        rules.map_or(0, |rules| rules.iter().filter(|rule| **rule == text).count())
    }

    pub fn delete_all(&self, saved: &SavedTables, change: &mut TableChange) {
        let rule = || (self.from.to_owned(), self.rule());
        change.delete.extend((0..self.copies(saved)).map(|_| rule()));
    }

    pub fn is_same_rule(&self, other: &Jump) -> bool {
        (self.table, self.from, self.to, self.matches) == (other.table, other.from, other.to, other.matches)
    }
}

pub fn of_all_modes() -> impl Iterator<Item = &'static Jump> {
    use crate::mode::iptables_family::{iptables, ipvs, userspace};
    iptables::jumps::ALL.iter().chain(&ipvs::jumps::ALL).chain(&userspace::jumps::ALL)
}
