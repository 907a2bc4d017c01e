//! A change of a table, which is made as a whole or not at all.

use std::collections::BTreeMap;

use super::{Chain, Element, Name, Rule, Set};

/// What becomes of the table itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableChange {
    /// It is there, and stays.
    #[default]
    Keep,
    /// There is none of this name.
    Make,
    /// There is one of this name: it goes with everything in it, and a new one comes in the same moment.
    Replace,
}

/// What is changed, in the order in which it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The table itself.
    pub table: TableChange,
    /// Sets and maps that are not there.
    pub add_sets: Vec<(Name, Set)>,
    /// Chains that are not there.
    pub add_chains: BTreeMap<Name, Chain>,
    /// The rules that chains which are there have from now on.
    pub write_rules: BTreeMap<Name, Vec<Rule>>,
    /// Elements that are there.
    pub delete_elements: Vec<Element>,
    /// Elements that are not there, or are among those that go.
    pub add_elements: Vec<Element>,
    /// Chains that nothing leads to.
    pub delete_chains: Vec<Name>,
    /// Sets that no rule names.
    pub delete_sets: Vec<Name>,
}

impl Change {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.table == TableChange::Keep
            && self.add_sets.is_empty()
            && self.add_chains.is_empty()
            && self.write_rules.is_empty()
            && self.delete_elements.is_empty()
            && self.add_elements.is_empty()
            && self.delete_chains.is_empty()
            && self.delete_sets.is_empty()
    }

    /// Rules that are sent.
    pub fn rules(&self) -> usize {
        self.add_chains.values().map(|chain| chain.rules.len()).sum::<usize>()
            + self.write_rules.values().map(Vec::len).sum::<usize>()
    }
}
