//! A table in memory, as strict as the kernel's: what is deleted must be there, what is led to must exist, what is led to cannot go.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fingerprint, Look, NftTable, NftTableError, Saved, SavedChain, SavedSet, Shape, Standing, encode};
use crate::model::Family;
use crate::nftables::change::TableAction;
use crate::nftables::{
    Chain, Element, ElementKey, ElementKind, ElementValue, Name, NftChange, NftVerdict, Rule, Set, Statement,
};

/// What is in a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Sets and maps.
    pub sets: BTreeMap<Name, Set>,
    /// Chains.
    pub chains: BTreeMap<Name, Chain>,
    /// Elements.
    pub elements: BTreeMap<(&'static str, ElementKey), ElementValue>,
}

/// The fake. Fields are open for tests to look at and to tamper with.
#[derive(Debug, Clone)]
pub struct Fake {
    family: Family,
    /// The table, if there is one.
    pub table: Option<Content>,
    /// It is another program's.
    pub is_foreign: bool,
    /// Every change that was taken.
    pub changes: Vec<NftChange>,
    /// The next changes are refused.
    pub refuses: usize,
}

fn refused<T>(reason: impl Into<String>) -> Result<T, NftTableError> {
    Err(NftTableError { operation: "change the table".to_owned(), reason: reason.into() })
}

impl Fake {
    /// Without a table.
    pub fn new(family: Family) -> Fake {
        Fake { family, table: None, is_foreign: false, changes: Vec::new(), refuses: 0 }
    }

    fn changed(&self, change: &NftChange) -> Result<Content, NftTableError> {
        let mut content = match (change.table, &self.table) {
            (TableAction::Keep, Some(content)) => content.clone(),
            (TableAction::Keep, None) => return refused("there is no table"),
            (TableAction::Make, None) | (TableAction::Replace, Some(_)) => Content::default(),
            (TableAction::Make, Some(_)) => return refused("there is a table"),
            (TableAction::Replace, None) => return refused("there is no table to replace"),
        };
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
        for element in &change.delete_elements {
            if content.elements.remove(&(element.set, element.key)).is_none() {
                return refused(format!("{element:?} is not there"));
            }
        }
        for element in &change.add_elements {
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
        }
        content.check()?;
        Ok(content)
    }
}

impl Content {
    fn add(&mut self, element: &Element) -> Result<(), NftTableError> {
        let Some(set) = self.sets.get(element.set) else { return refused(format!("there is no set {}", element.set)) };
        let fits = match (set.holds, &element.value) {
            (ElementKind::Keys, ElementValue::None) => !set.ranges,
            (ElementKind::Keys, ElementValue::To(_)) => set.ranges,
            (ElementKind::Verdicts, ElementValue::Verdict(_)) | (ElementKind::Endpoints, ElementValue::Endpoint(_)) => {
                true
            }
            _ => false,
        };
        if let ElementValue::To(last) = &element.value {
            // The last range that begins before the end of this one is the only one that may overlap it, as none of the others do.
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

    /// What is led to, by rules and by elements.
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

    /// The sets that rules name.
    fn named_sets(&self) -> BTreeSet<&str> {
        let statements = self.chains.values().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.statements);
        let named = statements.filter_map(|statement| match statement {
            Statement::InSet { set, .. } | Statement::Remember { set, .. } => Some(&**set),
            Statement::Map { map, .. } | Statement::TranslateBy { map, .. } => Some(*map),
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
        if let Some(set) = self.named_sets().into_iter().find(|set| !self.sets.contains_key(*set)) {
            return refused(format!("the set {set} is named, and is not there"));
        }
        Ok(())
    }
}

impl NftTable for Fake {
    fn look(&mut self, look: Look<'_>) -> Result<Standing, NftTableError> {
        let Some(content) = &self.table else { return Ok(Standing::Nothing) };
        if self.is_foreign {
            return Ok(Standing::Other);
        }
        let saved_chain = |chain: &Chain| SavedChain { base: chain.base, rules: self.fingerprints(&chain.rules) };
        let saved_set = |set: &Set| SavedSet { shape: self.shape(set), size: set.size };
        let asked = |set: &str| look.elements.iter().any(|(name, _)| *name == set);
        let elements = content.elements.iter().filter(|((set, _), _)| asked(set));
        Ok(Standing::Ours(Saved {
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

    fn uses(&mut self, chains: &[&str]) -> Result<Vec<Option<usize>>, NftTableError> {
        let Some(content) = &self.table else { return Ok(vec![None; chains.len()]) };
        let uses = |name: &&str| {
            let chain = content.chains.get(*name)?;
            Some(chain.rules.len() + content.targets().filter(|target| &***target == *name).count())
        };
        Ok(chains.iter().map(uses).collect())
    }

    /// Tests tamper with it, so there is no knowing.
    fn is_untouched(&mut self) -> Result<bool, NftTableError> {
        Ok(false)
    }

    fn delete(&mut self) -> Result<bool, NftTableError> {
        Ok(self.table.take().is_some())
    }

    fn fingerprints(&self, rules: &[Rule]) -> Vec<Fingerprint> {
        encode::fingerprints(rules, self.family)
    }

    fn shape(&self, set: &Set) -> Shape {
        encode::shape(set, self.family)
    }
}
