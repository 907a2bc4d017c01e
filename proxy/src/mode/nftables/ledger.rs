//! What was sent last, by service port, and what a change of some of them changes in the table.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::layout;
use super::objects::{ServiceObjects, Slots};
use super::shared::Shared;
use crate::model::ServicePortName;
use crate::nftables::{Chain, Element, Key, Name, Set};

/// Sets in which service ports may have the same elements.
const IN_COMMON: [&str; 2] = [layout::CLUSTER_IPS, layout::HAIRPINS];

/// What was sent.
#[derive(Default)]
pub(super) struct Ledger {
    ports: HashMap<ServicePortName, ServiceObjects>,
    /// How many service ports have each of the elements that several may have.
    in_common: HashMap<(&'static str, Key), u32>,
    /// How many have each of the chains.
    shared: HashMap<Shared, u32>,
    /// Elements of each set.
    elements: BTreeMap<&'static str, usize>,
}

/// What changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) gone: Vec<Element>,
    pub(super) come: Vec<Element>,
    pub(super) shared_gone: BTreeSet<Shared>,
    pub(super) shared_come: BTreeSet<Shared>,
    pub(super) chains_gone: BTreeSet<Name>,
    /// Chains that come or have other rules now.
    pub(super) chains_come: BTreeMap<Name, Chain>,
    pub(super) sets_gone: BTreeSet<Name>,
    pub(super) sets_come: BTreeMap<Name, Set>,
}

impl Ledger {
    /// The numbers that a service port's endpoints have.
    pub(super) fn slots(&self, name: &ServicePortName) -> Option<&Slots> {
        self.ports.get(name).map(|objects| &objects.slots)
    }

    /// All service ports.
    pub(super) fn objects(&self) -> impl Iterator<Item = &ServiceObjects> {
        self.ports.values()
    }

    /// Elements that are there now, of a set.
    pub(super) fn count(&self, set: &str) -> usize {
        self.elements.get(set).copied().unwrap_or_default()
    }

    /// Elements that stand, each once.
    pub(super) fn elements(&self) -> impl Iterator<Item = Element> {
        let own = self.ports.values().flat_map(|objects| &objects.elements);
        let own = own.filter(|element| !IN_COMMON.contains(&element.set)).cloned();
        own.chain(self.in_common.keys().map(|(set, key)| Element::of(set, *key)))
    }

    /// Chains that service ports share, each once.
    pub(super) fn shared(&self) -> impl Iterator<Item = Shared> {
        self.shared.keys().copied()
    }

    /// Takes in what service ports are from now on (`None`: gone), and says what that changes.
    pub(super) fn replace(&mut self, changed: Vec<(ServicePortName, Option<ServiceObjects>)>) -> Difference {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut difference = Difference::default();
        let (mut chains_before, mut sets_before) = (BTreeMap::new(), BTreeMap::new());
        for (name, objects) in changed {
            let old = self.ports.remove(&name).unwrap_or_default();
            let new = objects.as_ref();
            self.count_common(
                old.elements.iter(),
                new.into_iter().flat_map(|new| &new.elements),
                &mut before,
                &mut after,
            );
            for shared in new.into_iter().flat_map(|new| &new.shared) {
                let uses = self.shared.entry(*shared).or_default();
                *uses += 1;
                if *uses == 1 {
                    difference.shared_come.insert(*shared);
                }
            }
            for shared in &old.shared {
                if let Some(uses) = self.shared.get_mut(shared) {
                    *uses -= 1;
                }
            }
            chains_before.extend(old.chains);
            sets_before.extend(old.sets);
            if let Some(new) = objects {
                difference.chains_come.extend(new.chains.iter().map(|(name, chain)| (name.clone(), chain.clone())));
                difference.sets_come.extend(new.sets.iter().map(|(name, set)| (name.clone(), set.clone())));
                self.ports.insert(name, new);
            }
        }
        let unused: Vec<Shared> =
            self.shared.iter().filter(|(_, uses)| **uses == 0).map(|(shared, _)| *shared).collect();
        for shared in unused {
            self.shared.remove(&shared);
            if !difference.shared_come.remove(&shared) {
                difference.shared_gone.insert(shared);
            }
        }
        let come = &difference.chains_come;
        difference.chains_gone = chains_before.keys().filter(|name| !come.contains_key(*name)).cloned().collect();
        difference.chains_come.retain(|name, chain| chains_before.get(name) != Some(chain));
        let come = &difference.sets_come;
        difference.sets_gone = sets_before.keys().filter(|name| !come.contains_key(*name)).cloned().collect();
        difference.sets_come.retain(|name, _| !sets_before.contains_key(name));
        before.sort_unstable();
        after.sort_unstable();
        (difference.gone, difference.come) = differing(before, after);
        for element in &difference.gone {
            let count = self.elements.entry(element.set).or_default();
            *count = count.saturating_sub(1);
        }
        for element in &difference.come {
            *self.elements.entry(element.set).or_default() += 1;
        }
        difference
    }

    /// Of elements that several may have, those that nobody has any more and those that nobody had.
    fn count_common<'a>(
        &mut self,
        old: impl Iterator<Item = &'a Element>,
        new: impl Iterator<Item = &'a Element>,
        before: &mut Vec<Element>,
        after: &mut Vec<Element>,
    ) {
        for element in new {
            if IN_COMMON.contains(&element.set) {
                let uses = self.in_common.entry((element.set, element.key)).or_default();
                *uses += 1;
                if *uses > 1 {
                    continue;
                }
            }
            after.push(element.clone());
        }
        for element in old {
            if IN_COMMON.contains(&element.set)
                && let Some(uses) = self.in_common.get_mut(&(element.set, element.key))
            {
                *uses -= 1;
                if *uses > 0 {
                    continue;
                }
                self.in_common.remove(&(element.set, element.key));
            }
            before.push(element.clone());
        }
    }
}

/// What is in the one only, and in the other only; both are sorted.
pub(super) fn differing(before: Vec<Element>, after: Vec<Element>) -> (Vec<Element>, Vec<Element>) {
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    loop {
        match (before.peek(), after.peek()) {
            (Some(old), Some(new)) if old == new => drop((before.next(), after.next())),
            (Some(old), Some(new)) if old < new => gone.extend(before.next()),
            (Some(_), None) => gone.extend(before.next()),
            (_, Some(_)) => come.extend(after.next()),
            (None, None) => return (gone, come),
        }
    }
}
