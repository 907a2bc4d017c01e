//! A table in memory, with the kernel's checks of references.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ListedChain, ListedSet, ListedTable, NftTable, NftTableError, RuleFingerprint, SetShape, TableQuery, TableState,
    encode,
};
use crate::model::Family;
use crate::nftables::change::TableAction;
use crate::nftables::{
    Chain, Element, ElementKey, ElementKind, ElementValue, Name, NftChange, NftVerdict, Rule, Set, Statement,
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FakeContent {
    pub counters: BTreeSet<Name>,
    pub sets: BTreeMap<Name, Set>,
    pub chains: BTreeMap<Name, Chain>,
    pub elements: BTreeMap<(&'static str, ElementKey), ElementValue>,
}

#[derive(Debug, Clone)]
pub struct FakeNftTable {
    family: Family,
    pub table: Option<FakeContent>,
    pub is_foreign: bool,
    pub changes: Vec<NftChange>,
    /// The number of next changes that fail.
    pub refuses: usize,
}

fn refused<T>(reason: impl Into<String>) -> Result<T, NftTableError> {
    Err(NftTableError { operation: "change the table".to_owned(), reason: reason.into() })
}

impl FakeNftTable {
    pub fn new(family: Family) -> FakeNftTable {
        FakeNftTable { family, table: None, is_foreign: false, changes: Vec::new(), refuses: 0 }
    }

    fn changed(&self, change: &NftChange) -> Result<FakeContent, NftTableError> {
        let mut content = match (change.table, &self.table) {
            (TableAction::Keep, Some(content)) => content.clone(),
            (TableAction::Keep, None) => return refused("there is no table"),
            (TableAction::Make, None) | (TableAction::Replace, Some(_)) => FakeContent::default(),
            (TableAction::Make, Some(_)) => return refused("there is a table"),
            (TableAction::Replace, None) => return refused("there is no table to replace"),
        };
        for name in &change.add_counters {
            if !content.counters.insert(name.clone()) {
                return refused(format!("the counter {name} is there"));
            }
        }
        for (name, set) in &change.add_sets {
            if content.sets.insert(name.clone(), set.clone()).is_some() {
                return refused(format!("the set {name} is there"));
            }
        }
        for (name, chain) in &change.add_chains {
            if content.chains.insert(name.clone(), chain.clone()).is_some() {
                return refused(format!("the chain {name} is there"));
            }
        }
        for (name, rules) in &change.write_rules {
            let Some(chain) = content.chains.get_mut(name) else { return refused(format!("there is no chain {name}")) };
            chain.rules.clone_from(rules);
        }
        for element in change.delete_first.iter().chain(&change.delete_elements) {
            if content.elements.remove(&(element.set, element.key)).is_none() {
                return refused(format!("{element:?} is not there"));
            }
        }
        for element in change.add_elements.iter().chain(&change.add_last) {
            content.add(element)?;
        }
        for name in &change.delete_chains {
            if content.chains.remove(name).is_none() {
                return refused(format!("there is no chain {name} to delete"));
            }
        }
        for name in &change.delete_sets {
            if content.sets.remove(name).is_none() {
                return refused(format!("there is no set {name} to delete"));
            }
            content.elements.retain(|(set, _), _| *set != &**name);
        }
        for name in &change.delete_counters {
            if !content.counters.remove(name) {
                return refused(format!("there is no counter {name} to delete"));
            }
        }
        content.check()?;
        Ok(content)
    }
}

impl FakeContent {
    fn add(&mut self, element: &Element) -> Result<(), NftTableError> {
        let Some(set) = self.sets.get(element.set) else { return refused(format!("there is no set {}", element.set)) };
        let fits = match (set.holds, &element.value) {
            (ElementKind::Keys, ElementValue::None) => !set.ranges,
            (ElementKind::Keys, ElementValue::To(_)) => set.ranges,
            (ElementKind::Verdicts, ElementValue::Verdict(_))
            | (ElementKind::Endpoints, ElementValue::Endpoint(_))
            | (ElementKind::Counters, ElementValue::Counter(_)) => true,
            _ => false,
        };
        if let ElementValue::To(last) = &element.value {
            // Only the last range that begins before the new range's end can overlap it.
            let before = self.elements.range(..=(element.set, *last)).next_back();
            let before = before.filter(|((set, _), _)| *set == element.set);
            if before.is_some_and(|(_, value)| matches!(value, ElementValue::To(end) if *end >= element.key)) {
                return refused(format!("{element:?} overlaps another range"));
            }
        }
        if !fits || self.elements.insert((element.set, element.key), element.value.clone()).is_some() {
            return refused(format!("{element:?} does not fit, or is there"));
        }
        Ok(())
    }

    fn targets(&self) -> impl Iterator<Item = &Name> {
        let of_rules = self.chains.values().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.statements);
        let of_rules = of_rules.filter_map(|statement| match statement {
            Statement::Verdict(verdict) => Some(verdict),
            _ => None,
        });
        let of_elements = self.elements.values().filter_map(|value| match value {
            ElementValue::Verdict(verdict) => Some(verdict),
            _ => None,
        });
        of_rules.chain(of_elements).filter_map(|verdict| match verdict {
            NftVerdict::Jump(chain) | NftVerdict::Goto(chain) => Some(chain),
            NftVerdict::Drop | NftVerdict::Return => None,
        })
    }

    fn named_sets(&self) -> BTreeSet<&str> {
        let statements = self.chains.values().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.statements);
        let named = statements.filter_map(|statement| match statement {
            Statement::InSet { set, .. } | Statement::Remember { set, .. } => Some(&**set),
            Statement::Map { map, .. } | Statement::TranslateBy { map, .. } | Statement::CountBy { map, .. } => {
                Some(*map)
            }
            _ => None,
        });
        named.collect()
    }

    fn check(&self) -> Result<(), NftTableError> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for (set, _) in self.elements.keys() {
            *counts.entry(set).or_default() += 1;
        }
        let is_full = |set: &&str| self.sets.get(*set).and_then(|set| set.size).is_some_and(|size| counts[set] > size);
        if let Some(set) = counts.keys().copied().find(is_full) {
            return refused(format!("the set {set} is full"));
        }
        if let Some(chain) = self.targets().find(|chain| !self.chains.contains_key(&***chain)) {
            return refused(format!("the chain {chain} is led to, and is not there"));
        }
        let missing = self.elements.values().find_map(|value| match value {
            ElementValue::Counter(name) if !self.counters.contains(name) => Some(name),
            _ => None,
        });
        if let Some(counter) = missing {
            return refused(format!("the counter {counter} is referred to, and is not there"));
        }
        if let Some(set) = self.named_sets().into_iter().find(|set| !self.sets.contains_key(*set)) {
            return refused(format!("the set {set} is named, and is not there"));
        }
        Ok(())
    }
}

impl NftTable for FakeNftTable {
    fn list(&mut self, query: TableQuery<'_>) -> Result<TableState, NftTableError> {
        let Some(content) = &self.table else { return Ok(TableState::Nothing) };
        if self.is_foreign {
            return Ok(TableState::Other);
        }
        let saved_chain = |chain: &Chain| ListedChain { base: chain.base, rules: self.fingerprints(&chain.rules) };
        let saved_set = |set: &Set| ListedSet { shape: self.shape(set), size: set.size };
        let asked = |set: &str| query.elements.iter().any(|(name, _)| *name == set);
        let elements = content.elements.iter().filter(|((set, _), _)| asked(set));
        Ok(TableState::Ours(ListedTable {
            counters: content.counters.iter().map(ToString::to_string).collect(),
            chains: content.chains.iter().map(|(name, chain)| (name.to_string(), saved_chain(chain))).collect(),
            sets: content.sets.iter().map(|(name, set)| (name.to_string(), saved_set(set))).collect(),
            elements: elements.map(|((set, key), value)| Element { set, key: *key, value: value.clone() }).collect(),
        }))
    }

    fn fill(&mut self, change: &NftChange, more: &mut dyn Iterator<Item = Element>) -> Result<(), NftTableError> {
        let mut change = change.clone();
        change.add_elements.extend(more);
        if self.refuses > 0 {
            self.refuses -= 1;
            return refused("a test says so");
        }
        self.table = Some(self.changed(&change)?);
        self.is_foreign = false;
        self.changes.push(change);
        Ok(())
    }

    fn reference_counts(&mut self, chains: &[&str]) -> Result<Vec<Option<usize>>, NftTableError> {
        let Some(content) = &self.table else { return Ok(vec![None; chains.len()]) };
        let uses = |name: &&str| {
            let chain = content.chains.get(*name)?;
            Some(chain.rules.len() + content.targets().filter(|target| &***target == *name).count())
        };
        Ok(chains.iter().map(uses).collect())
    }

    /// Always false, because tests may change the fields.
    fn is_untouched(&mut self) -> Result<bool, NftTableError> {
        Ok(false)
    }

    fn delete(&mut self) -> Result<bool, NftTableError> {
        Ok(self.table.take().is_some())
    }

    fn fingerprints(&self, rules: &[Rule]) -> Vec<RuleFingerprint> {
        encode::fingerprints(rules, self.family)
    }

    fn shape(&self, set: &Set) -> SetShape {
        encode::shape(set, self.family)
    }
}
