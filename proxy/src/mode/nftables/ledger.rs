//! What was sent last, by service port, and what a change of some of them changes in the table.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::objects::{Own, ServiceObjects};
use super::shared::Shared;
use super::slots::Slots;
use crate::model::ServicePortName;
use crate::nftables::{Chain, Element, Key, Name, Set};

/// What was sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    ports: BTreeMap<ServicePortName, ServiceObjects>,
    /// How many service ports have each of the elements that several may have.
    in_common: BTreeMap<(&'static str, Key), u32>,
    /// How many times each of the chains is led to that several may lead to.
    shared: HashMap<Shared, u32>,
    counts: Counts,
}

/// Elements of each set; there is a handful of sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Counts(Vec<(&'static str, usize)>);

impl Counts {
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

/// Names come in order and each once: that is the cheapest way to fill it.
impl FromIterator<(ServicePortName, ServiceObjects)> for Ledger {
    fn from_iter<I: IntoIterator<Item = (ServicePortName, ServiceObjects)>>(ports: I) -> Ledger {
        let mut ledger = Ledger { ports: ports.into_iter().collect(), ..Ledger::default() };
        let Ledger { ports, in_common, shared, counts } = &mut ledger;
        for objects in ports.values() {
            for element in objects.in_common() {
                *in_common.entry((element.set, element.key)).or_default() += 1;
            }
            objects.alone().for_each(|element| counts.add(element.set, 1));
            objects.shared().for_each(|one| *shared.entry(one).or_default() += 1);
        }
        in_common.keys().for_each(|(set, _)| counts.add(set, 1));
        ledger
    }
}

impl Ledger {
    /// The numbers that a service port's endpoints have.
    pub(super) fn slots(&self, name: &ServicePortName) -> Option<&Slots> {
        self.ports.get(name).map(|objects| &objects.slots)
    }

    /// Chains and sets of service ports alone.
    pub(super) fn own(&self) -> impl Iterator<Item = &Own> {
        self.ports.values().filter_map(ServiceObjects::own)
    }

    /// Elements that are there now, of a set.
    pub(super) fn count(&self, set: &str) -> usize {
        self.counts.get(set)
    }

    /// Elements that stand, each once.
    pub(super) fn elements(&self) -> impl Iterator<Item = Element> {
        let in_common = self.in_common.keys().map(|(set, key)| Element::of(set, *key));
        in_common.chain(self.ports.values().flat_map(ServiceObjects::alone))
    }

    /// Chains that service ports share, each once.
    pub(super) fn shared(&self) -> impl Iterator<Item = Shared> {
        self.shared.keys().copied()
    }

    /// Whether something leads to a chain.
    pub(super) fn uses(&self, shared: Shared) -> bool {
        self.shared.contains_key(&shared)
    }

    /// Chains that nothing leads to, and that are likely to be needed. The cost is that of the numbers of endpoints that there are.
    pub(super) fn spares(&self) -> BTreeSet<Shared> {
        let neighbours = self.shared().flat_map(Shared::neighbours);
        neighbours.filter(|neighbour| !self.shared.contains_key(neighbour)).collect()
    }

    /// Takes in what service ports are from now on (`None`: gone), and says what that changes. The cost is that of these service ports, whatever
    /// the number of others.
    pub(super) fn replace(&mut self, changed: Vec<(ServicePortName, Option<ServiceObjects>)>) -> Difference {
        let mut exchange = Exchange::default();
        for (name, objects) in changed {
            let old = self.ports.remove(&name);
            if let Some(new) = &objects {
                self.count_new(new, &mut exchange);
            }
            if let Some(old) = &old {
                self.count_old(old, &mut exchange);
            }
            if let Some(own) = old.as_ref().and_then(ServiceObjects::own) {
                exchange.own_before.chains.extend(own.chains.iter().map(|(name, chain)| (name.clone(), chain.clone())));
                exchange.own_before.sets.extend(own.sets.iter().map(|(name, set)| (name.clone(), set.clone())));
            }
            if let Some(own) = objects.as_ref().and_then(ServiceObjects::own) {
                exchange.own_after.chains.extend(own.chains.iter().map(|(name, chain)| (name.clone(), chain.clone())));
                exchange.own_after.sets.extend(own.sets.iter().map(|(name, set)| (name.clone(), set.clone())));
            }
            if let Some(new) = objects {
                self.ports.insert(name, new);
            }
        }
        let difference = exchange.difference(&mut self.shared);
        difference.gone.iter().for_each(|element| self.counts.remove(element.set));
        difference.come.iter().for_each(|element| self.counts.add(element.set, 1));
        difference
    }

    fn count_new(&mut self, new: &ServiceObjects, exchange: &mut Exchange) {
        exchange.after.extend(new.alone());
        for element in new.in_common() {
            let uses = self.in_common.entry((element.set, element.key)).or_default();
            *uses += 1;
            if *uses == 1 {
                exchange.after.push(element);
            }
        }
        for shared in new.shared() {
            let uses = self.shared.entry(shared).or_default();
            *uses += 1;
            if *uses == 1 {
                exchange.shared_come.insert(shared);
            }
        }
    }

    fn count_old(&mut self, old: &ServiceObjects, exchange: &mut Exchange) {
        exchange.before.extend(old.alone());
        for element in old.in_common() {
            let place = (element.set, element.key);
            if let Some(uses) = self.in_common.get_mut(&place) {
                *uses -= 1;
                if *uses == 0 {
                    self.in_common.remove(&place);
                    exchange.before.push(element);
                }
            }
        }
        for shared in old.shared() {
            if let Some(uses) = self.shared.get_mut(&shared) {
                *uses -= 1;
                if *uses == 0 {
                    exchange.shared_unused.insert(shared);
                }
            }
        }
    }
}

/// What service ports had, and what they have.
#[derive(Default)]
struct Exchange {
    before: Vec<Element>,
    after: Vec<Element>,
    shared_come: BTreeSet<Shared>,
    /// At some moment nothing led there; others may since.
    shared_unused: BTreeSet<Shared>,
    own_before: Own,
    own_after: Own,
}

impl Exchange {
    fn difference(self, uses: &mut HashMap<Shared, u32>) -> Difference {
        let Exchange { mut before, mut after, mut shared_come, shared_unused, own_before, own_after } = self;
        let mut shared_gone = BTreeSet::new();
        for shared in shared_unused {
            if uses.get(&shared) == Some(&0) {
                uses.remove(&shared);
                if !shared_come.remove(&shared) {
                    shared_gone.insert(shared);
                }
            } else {
                // It was led to before, and is again.
                shared_come.remove(&shared);
            }
        }
        let missing = |name: &&Name| !own_after.chains.contains_key(*name);
        let chains_gone = own_before.chains.keys().filter(missing).cloned().collect();
        let missing = |name: &&Name| !own_after.sets.contains_key(*name);
        let sets_gone = own_before.sets.keys().filter(missing).cloned().collect();
        let (mut chains_come, mut sets_come) = (own_after.chains, own_after.sets);
        chains_come.retain(|name, chain| own_before.chains.get(name) != Some(chain));
        sets_come.retain(|name, _| !own_before.sets.contains_key(name));
        before.sort_unstable();
        after.sort_unstable();
        let (gone, come) = differing(before, after);
        Difference { gone, come, shared_gone, shared_come, chains_gone, chains_come, sets_gone, sets_come }
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
