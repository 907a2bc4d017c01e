//! What stands since the last sync, and the change that follows from a difference.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::layout;
use super::ledger::{Difference, Ledger, differing};
use super::shared::Shared;
use super::wanted::{Wanted, Way};
use crate::nftables::{Change, Name};
use crate::plan::NodePlan;

/// Kernels before 6.2 answer EBUSY to the deletion of a chain within the moment in which the last element that led there goes
/// (kubernetes/kubernetes#122604). What may be needed later does not hold up the sync either.
const SETTLE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct Sent {
    pub(super) node: NodePlan,
    pub(super) ledger: Ledger,
    /// The room of each set and map.
    sizes: BTreeMap<&'static str, u32>,
    /// Chains of service ports that stand.
    chains: BTreeSet<Name>,
    /// Sets of service ports that stand.
    sets: BTreeSet<Name>,
    /// Of the chains, those that an earlier proxy made and that were of no use to this one: its settings may have been others, and so the rules.
    foreign: BTreeSet<Name>,
    /// Of chains and sets, those that nothing leads to any more, and since when.
    unused: BTreeMap<Unused, Instant>,
    /// Chains that nothing leads to yet.
    spares: BTreeSet<Shared>,
    /// Those of them that are still to be made, and since when.
    missing: BTreeMap<Shared, Instant>,
    /// How often the chains are used that are there whatever the services, where that does not depend on them.
    pub(super) uses: Vec<(Name, usize)>,
}

/// Chains go before the sets that their rules name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unused {
    Chain(Name),
    Set(Name),
}

impl Sent {
    /// All that was wanted has been sent; of the ledger the caller knows.
    pub(super) fn all(wanted: &Wanted<'_>, way: Way, now: Instant) -> Sent {
        let mut chains: BTreeSet<Name> = wanted.chains.keys().cloned().collect();
        let mut sets: BTreeSet<Name> = wanted.sets.keys().cloned().collect();
        let mut foreign = BTreeSet::new();
        for unused in &way.unused {
            match unused {
                Unused::Chain(name) => {
                    chains.insert(name.clone());
                    foreign.insert(name.clone());
                }
                Unused::Set(name) => {
                    sets.insert(name.clone());
                }
            }
        }
        let unused = way.unused.into_iter().map(|unused| (unused, now)).collect();
        let (node, uses) = (wanted.node.clone(), wanted.uses());
        Sent {
            node,
            ledger: Ledger::default(),
            sizes: way.sizes,
            chains,
            sets,
            foreign,
            unused,
            spares: wanted.spares.clone(),
            missing: BTreeMap::new(),
            uses,
        }
    }

    /// Takes in the ranges that cluster IPs come from, and adds what that changes.
    pub(super) fn replace_service_ranges(&mut self, ranges: Vec<IpNet>, difference: &mut Difference) {
        let before = layout::service_cidrs(&self.node.service_ranges);
        let (gone, come) = differing(before, layout::service_cidrs(&ranges));
        self.node.service_ranges = ranges;
        difference.gone.extend(gone);
        difference.come.extend(come);
    }

    /// The change that brings the table from what was sent to the ledger's new state; `None` where there is no room for it.
    pub(super) fn change(&mut self, difference: Difference, now: Instant) -> Option<Change> {
        let Difference { gone, come, shared_gone, shared_come, chains_gone, chains_come, sets_gone, sets_come } =
            difference;
        for (set, size) in &self.sizes {
            let leaving = gone.iter().filter(|element| element.set == *set).count();
            if u32::try_from(self.ledger.count(set) + leaving).map_or(true, |most| most > *size) {
                return None;
            }
        }
        let mut change = Change { delete_elements: gone, add_elements: come, ..Change::default() };
        let numbers_changed = !shared_come.is_empty() || !shared_gone.is_empty();
        for shared in shared_come {
            self.missing.remove(&shared);
            self.unused.remove(&Unused::Chain(shared.name()));
            self.make(shared, &mut change);
        }
        for (name, chain) in chains_come {
            self.unused.remove(&Unused::Chain(name.clone()));
            self.foreign.remove(&name);
            if self.chains.insert(name.clone()) {
                change.add_chains.insert(name, chain);
            } else {
                change.write_rules.insert(name, chain.rules);
            }
        }
        for (name, set) in sets_come {
            self.unused.remove(&Unused::Set(name.clone()));
            if self.sets.insert(name.clone()) {
                change.add_sets.push((name, set));
            }
        }
        let chains = chains_gone.into_iter().map(Unused::Chain);
        self.unused.extend(chains.chain(sets_gone.into_iter().map(Unused::Set)).map(|unused| (unused, now)));
        if numbers_changed {
            self.replace_spares(&shared_gone, now);
        }
        Some(change)
    }

    /// Makes a chain, unless it stands. What is in it follows from what it is, where this proxy has made it.
    fn make(&mut self, shared: Shared, change: &mut Change) {
        let name = shared.name();
        if self.chains.insert(name.clone()) {
            change.add_chains.insert(name, shared.chain(&self.node));
        } else if self.foreign.remove(&name) {
            change.write_rules.insert(name, shared.chain(&self.node).rules);
        }
    }

    /// Other numbers of endpoints have other neighbours; `gone`: chains that nothing leads to any more.
    fn replace_spares(&mut self, gone: &BTreeSet<Shared>, now: Instant) {
        let spares = self.ledger.spares();
        let is_used = |shared: &Shared| self.ledger.uses(*shared);
        for shared in self.spares.iter().chain(gone).filter(|shared| !spares.contains(shared) && !is_used(shared)) {
            let name = shared.name();
            self.missing.remove(shared);
            if self.chains.contains(&name) {
                self.unused.insert(Unused::Chain(name), now);
            }
        }
        for shared in &spares {
            let name = shared.name();
            self.unused.remove(&Unused::Chain(name.clone()));
            if !self.chains.contains(&name) || self.foreign.contains(&name) {
                self.missing.entry(*shared).or_insert(now);
            }
        }
        self.spares = spares;
    }

    /// Deletes chains and sets that nothing has led to for a while, and makes chains that may be needed soon.
    pub(super) fn upkeep(&mut self, now: Instant) -> Change {
        let is_due = |since: &Instant| *since + SETTLE <= now;
        let due: Vec<Unused> =
            self.unused.iter().filter(|(_, since)| is_due(since)).map(|(unused, _)| unused.clone()).collect();
        let missing: Vec<Shared> =
            self.missing.iter().filter(|(_, since)| is_due(since)).map(|(shared, _)| *shared).collect();
        let mut change = Change::default();
        for shared in missing {
            self.missing.remove(&shared);
            self.make(shared, &mut change);
        }
        for unused in due {
            self.unused.remove(&unused);
            match unused {
                Unused::Chain(name) => {
                    self.chains.remove(&name);
                    self.foreign.remove(&name);
                    // Chains that lead to one another can go in any order once they are empty.
                    change.write_rules.insert(name.clone(), Vec::new());
                    change.delete_chains.push(name);
                }
                Unused::Set(name) => {
                    self.sets.remove(&name);
                    change.delete_sets.push(name);
                }
            }
        }
        change
    }

    /// When there will be something to do for [`Sent::upkeep`].
    pub(super) fn next_upkeep(&self) -> Option<Instant> {
        self.unused.values().chain(self.missing.values()).min().map(|since| *since + SETTLE)
    }
}
