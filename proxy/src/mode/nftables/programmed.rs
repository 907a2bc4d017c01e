use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::desired_table::{DesiredTable, SyncPlan};
use super::layout;
use super::ledger::{ElementLedger, TableDifference, differing};
use super::shared_chains::SharedChain;
use crate::nftables::{Name, NftChange};
use crate::plan::NodePlan;

/// The delay before unused chains are deleted and spare chains are created. Kernels before 6.2 answer EBUSY right after
/// the last element that refers to a chain is deleted (kubernetes#122604); the delay also keeps this work out of syncs.
const SETTLE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct ProgrammedTable {
    pub(super) node: NodePlan,
    pub(super) ledger: ElementLedger,
    sizes: BTreeMap<&'static str, u32>,
    chains: BTreeSet<Name>,
    sets: BTreeSet<Name>,
    counters: BTreeSet<Name>,
    /// An earlier proxy's unused chains, whose rules may be outdated.
    inherited: BTreeSet<Name>,
    /// Unreferenced objects, with the time of the last reference.
    unused: BTreeMap<UnusedObject, Instant>,
    spares: BTreeSet<SharedChain>,
    /// Spare chains to create, with the time of the request.
    missing: BTreeMap<SharedChain, Instant>,
    pub(super) reference_counts: Vec<(Name, usize)>,
}

/// In order of deletion: chains before their rules' sets, sets before their elements' counters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UnusedObject {
    Chain(Name),
    Set(Name),
    Counter(Name),
}

impl ProgrammedTable {
    /// Returns the table after everything was sent. The caller sets the ledger.
    pub(super) fn all(wanted: &DesiredTable<'_>, sync_plan: SyncPlan, now: Instant) -> ProgrammedTable {
        let mut chains: BTreeSet<Name> = wanted.chains.keys().cloned().collect();
        let mut sets: BTreeSet<Name> = wanted.sets.keys().cloned().collect();
        let mut counters = wanted.counters.clone();
        let mut inherited = BTreeSet::new();
        for unused in &sync_plan.unused {
            match unused {
                UnusedObject::Chain(name) => {
                    chains.insert(name.clone());
                    inherited.insert(name.clone());
                }
                UnusedObject::Set(name) => {
                    sets.insert(name.clone());
                }
                UnusedObject::Counter(name) => {
                    counters.insert(name.clone());
                }
            }
        }
        let unused = sync_plan.unused.into_iter().map(|unused| (unused, now)).collect();
        let (node, reference_counts) = (wanted.node.clone(), wanted.reference_counts());
        ProgrammedTable {
            node,
            ledger: ElementLedger::default(),
            sizes: sync_plan.sizes,
            chains,
            sets,
            counters,
            inherited,
            unused,
            spares: wanted.spares.clone(),
            missing: BTreeMap::new(),
            reference_counts,
        }
    }

    pub(super) fn replace_service_ranges(&mut self, ranges: Vec<IpNet>, difference: &mut TableDifference) {
        let before = layout::service_cidrs(&self.node.service_ranges);
        let (removed, added) = differing(before, layout::service_cidrs(&ranges));
        self.node.service_ranges = ranges;
        difference.removed.extend(removed);
        difference.added.extend(added);
    }

    /// Returns the change to send. `None` if a set is too small.
    pub(super) fn change(&mut self, difference: TableDifference, now: Instant) -> Option<NftChange> {
        let TableDifference {
            removed,
            added,
            shared_removed,
            shared_added,
            chains_removed,
            chains_added,
            sets_removed,
            sets_added,
            counters_removed,
            counters_added,
        } = difference;
        for (set, size) in &self.sizes {
            let leaving = removed.iter().filter(|element| element.set == *set).count();
            if u32::try_from(self.ledger.count(set) + leaving).map_or(true, |most| most > *size) {
                return None;
            }
        }
        let mut change = NftChange { delete_elements: removed, add_elements: added, ..NftChange::default() };
        let numbers_changed = !shared_added.is_empty() || !shared_removed.is_empty();
        for shared in shared_added {
            self.missing.remove(&shared);
            self.unused.remove(&UnusedObject::Chain(shared.name()));
            self.make(shared, &mut change);
        }
        for (name, chain) in chains_added {
            self.unused.remove(&UnusedObject::Chain(name.clone()));
            self.inherited.remove(&name);
            if self.chains.insert(name.clone()) {
                change.add_chains.insert(name, chain);
            } else {
                change.write_rules.insert(name, chain.rules);
            }
        }
        for (name, set) in sets_added {
            self.unused.remove(&UnusedObject::Set(name.clone()));
            if self.sets.insert(name.clone()) {
                change.add_sets.push((name, set));
            }
        }
        for name in counters_added {
            self.unused.remove(&UnusedObject::Counter(name.clone()));
            if self.counters.insert(name.clone()) {
                change.add_counters.push(name);
            }
        }
        let chains = chains_removed.into_iter().map(UnusedObject::Chain);
        let sets = sets_removed.into_iter().map(UnusedObject::Set);
        let counters = counters_removed.into_iter().map(UnusedObject::Counter);
        self.unused.extend(chains.chain(sets).chain(counters).map(|unused| (unused, now)));
        if numbers_changed {
            self.replace_spares(&shared_removed, now);
        }
        Some(change)
    }

    fn make(&mut self, shared: SharedChain, change: &mut NftChange) {
        let name = shared.name();
        if self.chains.insert(name.clone()) {
            change.add_chains.insert(name, shared.chain(&self.node));
        } else if self.inherited.remove(&name) {
            change.write_rules.insert(name, shared.chain(&self.node).rules);
        }
    }

    /// Updates the spare chains. `removed`: chains now without references.
    fn replace_spares(&mut self, removed: &BTreeSet<SharedChain>, now: Instant) {
        let spares = self.ledger.spare_chains();
        let is_used = |shared: &SharedChain| self.ledger.is_referenced(*shared);
        for shared in self.spares.iter().chain(removed).filter(|shared| !spares.contains(shared) && !is_used(shared)) {
            let name = shared.name();
            self.missing.remove(shared);
            if self.chains.contains(&name) {
                self.unused.insert(UnusedObject::Chain(name), now);
            }
        }
        for shared in &spares {
            let name = shared.name();
            self.unused.remove(&UnusedObject::Chain(name.clone()));
            if !self.chains.contains(&name) || self.inherited.contains(&name) {
                self.missing.entry(*shared).or_insert(now);
            }
        }
        self.spares = spares;
    }

    /// Deletes unreferenced chains and sets, and adds spare chains.
    pub(super) fn garbage_collect(&mut self, now: Instant) -> NftChange {
        let is_due = |since: &Instant| *since + SETTLE <= now;
        let due: Vec<UnusedObject> =
            self.unused.iter().filter(|(_, since)| is_due(since)).map(|(unused, _)| unused.clone()).collect();
        let missing: Vec<SharedChain> =
            self.missing.iter().filter(|(_, since)| is_due(since)).map(|(shared, _)| *shared).collect();
        let mut change = NftChange::default();
        for shared in missing {
            self.missing.remove(&shared);
            self.make(shared, &mut change);
        }
        for unused in due {
            // Kernels release the counters of a deleted map's elements only after the transaction.
            if matches!(unused, UnusedObject::Counter(_)) && !change.delete_sets.is_empty() {
                continue;
            }
            self.unused.remove(&unused);
            match unused {
                UnusedObject::Chain(name) => {
                    self.chains.remove(&name);
                    self.inherited.remove(&name);
                    // Emptied chains can be deleted in any order.
                    change.write_rules.insert(name.clone(), Vec::new());
                    change.delete_chains.push(name);
                }
                UnusedObject::Set(name) => {
                    self.sets.remove(&name);
                    change.delete_sets.push(name);
                }
                UnusedObject::Counter(name) => {
                    self.counters.remove(&name);
                    change.delete_counters.push(name);
                }
            }
        }
        change
    }

    pub(super) fn next_garbage_collection(&self) -> Option<Instant> {
        self.unused.values().chain(self.missing.values()).min().map(|since| *since + SETTLE)
    }
}
