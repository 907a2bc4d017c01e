use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::endpoint_index::EndpointIndex;
use super::objects::{AffinityObjects, NftServiceObjects};
use super::shared_chains::SharedChain;
use crate::model::ServicePortName;
use crate::nftables::{Chain, Element, ElementKey, Name, Set};

#[derive(Debug, Clone, Default)]
pub(super) struct ElementLedger {
    ports: BTreeMap<ServicePortName, NftServiceObjects>,
    /// Elements that service ports may share, with reference counts.
    in_common: BTreeMap<(&'static str, ElementKey), u32>,
    /// Reference counts of shared chains.
    shared: HashMap<SharedChain, u32>,
    /// Reference counts of sets that the ports of a Service share.
    shared_sets: HashMap<Name, u32>,
    counts: ElementCounts,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ElementCounts(Vec<(&'static str, usize)>);

impl ElementCounts {
    fn add(&mut self, set: &'static str, more: usize) {
        match self.0.iter_mut().find(|(name, _)| *name == set) {
            Some((_, count)) => *count += more,
            None => self.0.push((set, more)),
        }
    }

    fn remove(&mut self, set: &str) {
        if let Some((_, count)) = self.0.iter_mut().find(|(name, _)| *name == set) {
            *count = count.saturating_sub(1);
        }
    }

    fn get(&self, set: &str) -> usize {
        self.0.iter().find(|(name, _)| *name == set).map_or(0, |(_, count)| *count)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TableDifference {
    pub(super) removed: Vec<Element>,
    pub(super) added: Vec<Element>,
    pub(super) shared_removed: BTreeSet<SharedChain>,
    pub(super) shared_added: BTreeSet<SharedChain>,
    pub(super) chains_removed: BTreeSet<Name>,
    pub(super) chains_added: BTreeMap<Name, Chain>,
    pub(super) sets_removed: BTreeSet<Name>,
    pub(super) sets_added: BTreeMap<Name, Set>,
    pub(super) counters_removed: BTreeSet<Name>,
    pub(super) counters_added: BTreeSet<Name>,
}

/// Fills the maps in sorted order, which is cheapest.
impl FromIterator<(ServicePortName, NftServiceObjects)> for ElementLedger {
    fn from_iter<I: IntoIterator<Item = (ServicePortName, NftServiceObjects)>>(ports: I) -> ElementLedger {
        let mut ledger = ElementLedger { ports: ports.into_iter().collect(), ..ElementLedger::default() };
        let ElementLedger { ports, in_common, shared, shared_sets, counts } = &mut ledger;
        for objects in ports.values() {
            for element in objects.common_elements() {
                *in_common.entry((element.set, element.key)).or_default() += 1;
            }
            objects.own_elements().for_each(|element| counts.add(element.set, 1));
            objects.shared().for_each(|one| *shared.entry(one).or_default() += 1);
            let sets = objects.own().into_iter().flat_map(|own| own.shared_sets.keys());
            sets.for_each(|set| *shared_sets.entry(set.clone()).or_default() += 1);
        }
        in_common.keys().for_each(|(set, _)| counts.add(set, 1));
        ledger
    }
}

impl ElementLedger {
    pub(super) fn slots(&self, name: &ServicePortName) -> Option<&EndpointIndex> {
        self.ports.get(name).map(|objects| &objects.slots)
    }

    pub(super) fn own(&self) -> impl Iterator<Item = &AffinityObjects> {
        self.ports.values().filter_map(NftServiceObjects::own)
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = &Name> {
        self.ports.values().flat_map(NftServiceObjects::counters)
    }

    pub(super) fn count(&self, set: &str) -> usize {
        self.counts.get(set)
    }

    pub(super) fn elements(&self) -> impl Iterator<Item = Element> {
        let in_common = self.in_common.keys().map(|(set, key)| Element::of(set, *key));
        in_common.chain(self.ports.values().flat_map(NftServiceObjects::own_elements))
    }

    pub(super) fn shared(&self) -> impl Iterator<Item = SharedChain> {
        self.shared.keys().copied()
    }

    pub(super) fn is_referenced(&self, shared: SharedChain) -> bool {
        self.shared.contains_key(&shared)
    }

    /// Returns chains that the next change of endpoints probably needs.
    pub(super) fn spare_chains(&self) -> BTreeSet<SharedChain> {
        let neighbours = self.shared().flat_map(SharedChain::neighbours);
        neighbours.filter(|neighbour| !self.shared.contains_key(neighbour)).collect()
    }

    /// Replaces service ports' objects, at a cost independent of others.
    pub(super) fn replace(&mut self, changed: Vec<(ServicePortName, Option<NftServiceObjects>)>) -> TableDifference {
        let mut update = LedgerUpdate::default();
        for (name, objects) in changed {
            let old = self.ports.remove(&name);
            if let Some(new) = &objects {
                self.count_new(new, &mut update);
            }
            if let Some(old) = &old {
                self.count_old(old, &mut update);
            }
            let counters = |objects: &Option<NftServiceObjects>| -> Vec<Name> {
                objects.iter().flat_map(NftServiceObjects::counters).cloned().collect()
            };
            update.counters_before.extend(counters(&old));
            update.counters_after.extend(counters(&objects));
            old.iter().filter_map(NftServiceObjects::own).for_each(|own| update.own_before.extend(own));
            objects.iter().filter_map(NftServiceObjects::own).for_each(|own| update.own_after.extend(own));
            if let Some(new) = objects {
                self.ports.insert(name, new);
            }
        }
        let difference = update.difference(&mut self.shared);
        difference.removed.iter().for_each(|element| self.counts.remove(element.set));
        difference.added.iter().for_each(|element| self.counts.add(element.set, 1));
        difference
    }

    fn count_new(&mut self, new: &NftServiceObjects, update: &mut LedgerUpdate) {
        update.after.extend(new.own_elements());
        for element in new.common_elements() {
            let uses = self.in_common.entry((element.set, element.key)).or_default();
            *uses += 1;
            if *uses == 1 {
                update.after.push(element);
            }
        }
        for shared in new.shared() {
            let uses = self.shared.entry(shared).or_default();
            *uses += 1;
            if *uses == 1 {
                update.shared_added.insert(shared);
            }
        }
        for (name, set) in new.own().into_iter().flat_map(|own| &own.shared_sets) {
            let uses = self.shared_sets.entry(name.clone()).or_default();
            *uses += 1;
            // Another port of the update may have released the set.
            if *uses == 1 && !update.sets_removed.remove(name) {
                update.sets_added.insert(name.clone(), set.clone());
            }
        }
    }

    fn count_old(&mut self, old: &NftServiceObjects, update: &mut LedgerUpdate) {
        update.before.extend(old.own_elements());
        for element in old.common_elements() {
            let place = (element.set, element.key);
            if let Some(uses) = self.in_common.get_mut(&place) {
                *uses -= 1;
                if *uses == 0 {
                    self.in_common.remove(&place);
                    update.before.push(element);
                }
            }
        }
        for shared in old.shared() {
            if let Some(uses) = self.shared.get_mut(&shared) {
                *uses -= 1;
                if *uses == 0 {
                    update.shared_unused.insert(shared);
                }
            }
        }
        for name in old.own().into_iter().flat_map(|own| own.shared_sets.keys()) {
            if let Some(uses) = self.shared_sets.get_mut(name) {
                *uses -= 1;
                if *uses == 0 {
                    self.shared_sets.remove(name);
                    if update.sets_added.remove(name).is_none() {
                        update.sets_removed.insert(name.clone());
                    }
                }
            }
        }
    }
}

#[derive(Default)]
struct LedgerUpdate {
    before: Vec<Element>,
    after: Vec<Element>,
    shared_added: BTreeSet<SharedChain>,
    shared_unused: BTreeSet<SharedChain>,
    own_before: AffinityObjects,
    own_after: AffinityObjects,
    /// Of the sets that ports share.
    sets_added: BTreeMap<Name, Set>,
    sets_removed: BTreeSet<Name>,
    counters_before: BTreeSet<Name>,
    counters_after: BTreeSet<Name>,
}

impl LedgerUpdate {
    fn difference(self, uses: &mut HashMap<SharedChain, u32>) -> TableDifference {
        let LedgerUpdate { mut before, mut after, mut shared_added, shared_unused, .. } = self;
        let LedgerUpdate { own_before, own_after, counters_before, counters_after, .. } = self;
        let LedgerUpdate { sets_added: shared_sets_added, sets_removed: shared_sets_removed, .. } = self;
        let mut shared_removed = BTreeSet::new();
        for shared in shared_unused {
            if uses.get(&shared) == Some(&0) {
                uses.remove(&shared);
                if !shared_added.remove(&shared) {
                    shared_removed.insert(shared);
                }
            } else {
                shared_added.remove(&shared);
            }
        }
        let missing = |name: &&Name| !own_after.chains.contains_key(*name);
        let chains_removed = own_before.chains.keys().filter(missing).cloned().collect();
        let missing = |name: &&Name| !own_after.sets.contains_key(*name);
        let sets_removed = own_before.sets.keys().filter(missing).cloned().chain(shared_sets_removed).collect();
        let (mut chains_added, mut sets_added) = (own_after.chains, own_after.sets);
        chains_added.retain(|name, chain| own_before.chains.get(name) != Some(chain));
        sets_added.retain(|name, _| !own_before.sets.contains_key(name));
        sets_added.extend(shared_sets_added);
        before.sort_unstable();
        after.sort_unstable();
        let (removed, added) = differing(before, after);
        TableDifference {
            removed,
            added,
            shared_removed,
            shared_added,
            chains_removed,
            chains_added,
            sets_removed,
            sets_added,
            counters_removed: &counters_before - &counters_after,
            counters_added: &counters_after - &counters_before,
        }
    }
}

/// Returns the elements only in `before`, and those only in `after`. Both are sorted.
pub(super) fn differing(before: Vec<Element>, after: Vec<Element>) -> (Vec<Element>, Vec<Element>) {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    loop {
        match (before.peek(), after.peek()) {
            (Some(old), Some(new)) if old == new => drop((before.next(), after.next())),
            (Some(old), Some(new)) if old < new => removed.extend(before.next()),
            (Some(_), None) => removed.extend(before.next()),
            (_, Some(_)) => added.extend(after.next()),
            (None, None) => return (removed, added),
        }
    }
}
