use std::collections::{BTreeMap, BTreeSet};

use super::found_elements::FoundElements;
use super::layout;
use super::ledger::ElementLedger;
use super::objects::AffinityObjects;
use super::programmed::UnusedObject;
use super::shared_chains::SharedChain;
use crate::kernel::nftables::{ListedTable, NftTable};
use crate::nftables::change::TableAction;
use crate::nftables::{Chain, Element, Name, NftChange, Set};
use crate::plan::NodePlan;

/// The least size of a new set, in elements.
const ROOM: u32 = 4096;

pub(super) struct DesiredTable<'a> {
    pub(super) node: &'a NodePlan,
    ledger: &'a ElementLedger,
    lost_flows: &'a [Element],
    pub(super) fixed: Vec<(Name, Chain)>,
    pub(super) chains: BTreeMap<Name, Chain>,
    /// Chains that no element refers to yet.
    pub(super) spares: BTreeSet<SharedChain>,
    pub(super) sets: BTreeMap<Name, Set>,
    pub(super) counters: BTreeSet<Name>,
}

pub(super) struct SyncPlan {
    pub(super) change: NftChange,
    /// Whether the sync adds every element, besides those in `change`.
    pub(super) refill: bool,
    pub(super) sizes: BTreeMap<&'static str, u32>,
    pub(super) unused: BTreeSet<UnusedObject>,
}

impl<'a> DesiredTable<'a> {
    pub(super) fn new(node: &'a NodePlan, ledger: &'a ElementLedger, lost_flows: &'a [Element]) -> DesiredTable<'a> {
        let spares = ledger.spare_chains();
        let shared = ledger.shared().chain(spares.iter().copied());
        let mut objects = AffinityObjects {
            chains: shared.map(|shared| (shared.name(), shared.chain(node))).collect(),
            ..AffinityObjects::default()
        };
        ledger.own().for_each(|own| objects.extend(own));
        let AffinityObjects { chains, mut sets, shared_sets } = objects;
        sets.extend(shared_sets);
        let counters = ledger.counters().cloned().collect();
        DesiredTable { node, ledger, lost_flows, fixed: layout::chains(node), chains, spares, sets, counters }
    }

    pub(super) fn elements(&self) -> impl Iterator<Item = Element> + use<'a> {
        self.ledger.elements().chain(layout::elements(self.node)).chain(self.lost_flows.iter().cloned())
    }

    fn all_chains(&self) -> impl Iterator<Item = (&Name, &Chain)> {
        self.chains.iter().chain(self.fixed.iter().map(|(name, chain)| (name, chain)))
    }

    pub(super) fn change_of_ours<K: NftTable>(&self, table: &K, saved: ListedTable, found: FoundElements) -> SyncPlan {
        match self.fitting_sizes(table, &saved, &found) {
            Some(sizes) => self.difference(table, saved, found, sizes),
            None => self.create_table(TableAction::Replace),
        }
    }

    /// Returns the existing sets' sizes. `None` if the existing table's types, sizes or base chains do not fit.
    fn fitting_sizes<K: NftTable>(
        &self,
        table: &K,
        saved: &ListedTable,
        found: &FoundElements,
    ) -> Option<BTreeMap<&'static str, u32>> {
        let mut sizes = BTreeMap::new();
        for (name, set) in layout::sets(self.node, |_| 0) {
            let Some(there) = saved.sets.get(name) else {
                if layout::is_optional(name) {
                    continue;
                }
                return None;
            };
            if there.shape != table.shape(&set) || set.size.is_some() != there.size.is_some() {
                return None;
            }
            if let Some(size) = there.size {
                // Within a batch the kernel counts both deleted and added elements.
                let most = self.ledger.count(name) + found.count(name);
                if u32::try_from(most).map_or(true, |most| most > size) {
                    return None;
                }
                sizes.insert(name, size);
            }
        }
        for (name, set) in &self.sets {
            if saved.sets.get(&**name).is_some_and(|there| there.shape != table.shape(set)) {
                return None;
            }
        }
        for (name, chain) in &self.fixed {
            if saved.chains.get(&**name).is_some_and(|there| there.base != chain.base) {
                return None;
            }
        }
        Some(sizes)
    }

    pub(super) fn create_table(&self, table: TableAction) -> SyncPlan {
        let room = |name: &str| {
            let twice = u32::try_from(self.ledger.count(name).saturating_mul(2)).unwrap_or(u32::MAX);
            twice.max(ROOM).checked_next_power_of_two().unwrap_or(u32::MAX)
        };
        let sets = layout::sets(self.node, room);
        let sizes = sets.iter().filter_map(|(name, set)| Some((*name, set.size?))).collect();
        let own = self.sets.iter().map(|(name, set)| (name.clone(), set.clone()));
        let change = NftChange {
            table,
            add_counters: self.counters.iter().cloned().collect(),
            add_sets: sets.into_iter().map(|(name, set)| (name.into(), set)).chain(own).collect(),
            add_chains: self.all_chains().map(|(name, chain)| (name.clone(), chain.clone())).collect(),
            ..NftChange::default()
        };
        SyncPlan { change, refill: true, sizes, unused: BTreeSet::new() }
    }

    fn difference<K: NftTable>(
        &self,
        table: &K,
        mut saved: ListedTable,
        found: FoundElements,
        sizes: BTreeMap<&'static str, u32>,
    ) -> SyncPlan {
        let mut change = NftChange::default();
        for (name, chain) in self.all_chains() {
            match saved.chains.remove(&**name) {
                None => drop(change.add_chains.insert(name.clone(), chain.clone())),
                Some(there) if there.rules != table.fingerprints(&chain.rules) => {
                    change.write_rules.insert(name.clone(), chain.rules.clone());
                }
                Some(_) => {}
            }
        }
        for (name, set) in layout::sets(self.node, |_| 0) {
            if saved.sets.remove(name).is_none() {
                change.add_sets.push((name.into(), set));
            }
        }
        for (name, set) in &self.sets {
            if saved.sets.remove(&**name).is_none() {
                change.add_sets.push((name.clone(), set.clone()));
            }
        }
        let missing = self.counters.iter().filter(|name| !saved.counters.remove(&***name));
        change.add_counters = missing.cloned().collect();
        let (removed, added) = found.differing(self.elements());
        let is_lost_flow = |element: &Element| element.set == layout::LOST_FLOWS;
        (change.delete_first, change.delete_elements) = removed.into_iter().partition(is_lost_flow);
        (change.add_last, change.add_elements) = added.into_iter().partition(is_lost_flow);
        let chains = saved.chains.into_keys().map(|name| UnusedObject::Chain(name.into()));
        let sets = saved.sets.into_keys().map(|name| UnusedObject::Set(name.into()));
        let counters = saved.counters.into_iter().map(|name| UnusedObject::Counter(name.into()));
        SyncPlan { change, refill: false, sizes, unused: chains.chain(sets).chain(counters).collect() }
    }

    /// Returns, for chains to which no element refers, the number of their rules plus the rules that jump to them.
    pub(super) fn reference_counts(&self) -> Vec<(Name, usize)> {
        use crate::nftables::{NftVerdict, Statement};
        let jumps = |to: &Name| {
            let statements = self.fixed.iter().flat_map(|(_, chain)| &chain.rules).flat_map(|rule| &rule.statements);
            let leads = |statement: &Statement| matches!(statement, Statement::Verdict(NftVerdict::Jump(chain) | NftVerdict::Goto(chain)) if chain == to);
            statements.filter(|statement| leads(statement)).count()
        };
        let constant = self.fixed.iter().filter(|(name, _)| !layout::is_target_of_elements(name));
        constant.map(|(name, chain)| (name.clone(), chain.rules.len() + jumps(name))).collect()
    }
}
