//! A table's change, applied as a whole or not at all.

use std::collections::BTreeMap;

use super::{Chain, Element, Name, Rule, Set};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableAction {
    #[default]
    Keep,
    Make,
    /// Deletes and creates the table in one transaction.
    Replace,
}

/// Fields are in sending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NftChange {
    pub table: TableAction,
    /// Counters that do not exist; they begin at zero.
    pub add_counters: Vec<Name>,
    pub add_sets: Vec<(Name, Set)>,
    pub add_chains: BTreeMap<Name, Chain>,
    /// Existing chains with their new rules.
    pub write_rules: BTreeMap<Name, Vec<Rule>>,
    /// Deleted before other elements change.
    pub delete_first: Vec<Element>,
    pub delete_elements: Vec<Element>,
    /// Elements that do not exist, or are in `delete_elements`.
    pub add_elements: Vec<Element>,
    /// Added after other elements have changed.
    pub add_last: Vec<Element>,
    pub delete_chains: Vec<Name>,
    pub delete_sets: Vec<Name>,
    /// Counters to which no element refers.
    pub delete_counters: Vec<Name>,
}

impl NftChange {
    pub fn is_empty(&self) -> bool {
        self.table == TableAction::Keep
            && self.add_counters.is_empty()
            && self.add_sets.is_empty()
            && self.add_chains.is_empty()
            && self.write_rules.is_empty()
            && self.delete_first.is_empty()
            && self.delete_elements.is_empty()
            && self.add_elements.is_empty()
            && self.add_last.is_empty()
            && self.delete_chains.is_empty()
            && self.delete_sets.is_empty()
            && self.delete_counters.is_empty()
    }

    /// Returns how many elements are added and deleted.
    pub fn elements(&self) -> usize {
        let all = [&self.delete_first, &self.delete_elements, &self.add_elements, &self.add_last];
        all.into_iter().map(Vec::len).sum()
    }

    pub fn rules(&self) -> usize {
        self.add_chains.values().map(|chain| chain.rules.len()).sum::<usize>()
            + self.write_rules.values().map(Vec::len).sum::<usize>()
    }
}
