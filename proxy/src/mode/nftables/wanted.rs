//! Everything that is wanted, and the way there from what stands.

use std::collections::{BTreeMap, BTreeSet};

use super::found::Found;
use super::layout;
use super::ledger::Ledger;
use super::sent::Unused;
use super::shared::Shared;
use crate::kernel::nftables::{NftTable, Saved};
use crate::nftables::change::TableChange;
use crate::nftables::{Chain, Change, Element, Name, Set};
use crate::plan::NodePlan;

/// Room for elements in each set and map of a new table, at least.
const ROOM: u32 = 4096;

/// Everything that is wanted but elements, which the ledger has.
pub(super) struct Wanted<'a> {
    pub(super) node: &'a NodePlan,
    ledger: &'a Ledger,
    pub(super) fixed: Vec<(Name, Chain)>,
    /// Chains of service ports, those that they have in common as well.
    pub(super) chains: BTreeMap<Name, Chain>,
    /// Those of them that nothing leads to yet.
    pub(super) spares: BTreeSet<Shared>,
    /// Sets of service ports.
    pub(super) sets: BTreeMap<Name, Set>,
}

/// What is to be sent, and what will stand then.
pub(super) struct Way {
    pub(super) change: Change,
    /// All elements come, besides those of the change.
    pub(super) fills: bool,
    /// The room of sets.
    pub(super) sizes: BTreeMap<&'static str, u32>,
    /// What stands and nothing leads to any more.
    pub(super) unused: BTreeSet<Unused>,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(node: &'a NodePlan, ledger: &'a Ledger) -> Wanted<'a> {
        let spares = ledger.spares();
        let shared = ledger.shared().chain(spares.iter().copied());
        let mut chains: BTreeMap<Name, Chain> = shared.map(|shared| (shared.name(), shared.chain(node))).collect();
        let mut sets = BTreeMap::new();
        for own in ledger.own() {
            chains.extend(own.chains.iter().map(|(name, chain)| (name.clone(), chain.clone())));
            sets.extend(own.sets.iter().map(|(name, set)| (name.clone(), set.clone())));
        }
        Wanted { node, ledger, fixed: layout::chains(node), chains, spares, sets }
    }

    /// All elements, each once.
    pub(super) fn elements(&self) -> impl Iterator<Item = Element> + use<'a> {
        self.ledger.elements().chain(layout::elements(self.node))
    }

    fn all_chains(&self) -> impl Iterator<Item = (&Name, &Chain)> {
        self.chains.iter().chain(self.fixed.iter().map(|(name, chain)| (name, chain)))
    }

    /// From our own table, as it stands, to what is wanted.
    pub(super) fn change_of_ours<K: NftTable>(&self, table: &K, saved: Saved, found: Found) -> Way {
        match self.fitting_sizes(table, &saved, &found) {
            Some(sizes) => self.difference(table, saved, found, sizes),
            None => self.anew(TableChange::Replace),
        }
    }

    /// The room that the sets which stand have, if they are those that are wanted, with room enough, and base chains are where they should be.
    fn fitting_sizes<K: NftTable>(
        &self,
        table: &K,
        saved: &Saved,
        found: &Found,
    ) -> Option<BTreeMap<&'static str, u32>> {
        let mut sizes = BTreeMap::new();
        for (name, set) in layout::sets(|_| 0) {
            let there = saved.sets.get(name)?;
            if there.shape != table.shape(&set) || set.size.is_some() != there.size.is_some() {
                return None;
            }
            if let Some(size) = there.size {
                // What goes and what comes in one batch are both counted.
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

    /// A new table.
    pub(super) fn anew(&self, table: TableChange) -> Way {
        let room = |name: &str| {
            let twice = u32::try_from(self.ledger.count(name).saturating_mul(2)).unwrap_or(u32::MAX);
            twice.max(ROOM).checked_next_power_of_two().unwrap_or(u32::MAX)
        };
        let sets = layout::sets(room);
        let sizes = sets.iter().filter_map(|(name, set)| Some((*name, set.size?))).collect();
        let own = self.sets.iter().map(|(name, set)| (name.clone(), set.clone()));
        let change = Change {
            table,
            add_sets: sets.into_iter().map(|(name, set)| (name.into(), set)).chain(own).collect(),
            add_chains: self.all_chains().map(|(name, chain)| (name.clone(), chain.clone())).collect(),
            ..Change::default()
        };
        Way { change, fills: true, sizes, unused: BTreeSet::new() }
    }

    fn difference<K: NftTable>(
        &self,
        table: &K,
        mut saved: Saved,
        found: Found,
        sizes: BTreeMap<&'static str, u32>,
    ) -> Way {
        let mut change = Change::default();
        for (name, chain) in self.all_chains() {
            match saved.chains.remove(&**name) {
                None => drop(change.add_chains.insert(name.clone(), chain.clone())),
                Some(there) if there.rules != table.fingerprints(&chain.rules) => {
                    change.write_rules.insert(name.clone(), chain.rules.clone());
                }
                Some(_) => {}
            }
        }
        let shared = layout::sets(|_| 0);
        saved.sets.retain(|name, _| shared.iter().all(|(shared, _)| *shared != &**name));
        for (name, set) in &self.sets {
            if saved.sets.remove(&**name).is_none() {
                change.add_sets.push((name.clone(), set.clone()));
            }
        }
        (change.delete_elements, change.add_elements) = found.differing(self.elements());
        let chains = saved.chains.into_keys().map(|name| Unused::Chain(name.into()));
        let sets = saved.sets.into_keys().map(|name| Unused::Set(name.into()));
        Way { change, fills: false, sizes, unused: chains.chain(sets).collect() }
    }

    /// How often chains are used by rules, their own and those that lead there; of chains that no element leads to.
    pub(super) fn uses(&self) -> Vec<(Name, usize)> {
        use crate::nftables::{Statement, Verdict};
        let jumps = |to: &Name| {
            let statements = self.fixed.iter().flat_map(|(_, chain)| &chain.rules).flat_map(|rule| &rule.statements);
            let leads = |statement: &Statement| matches!(statement, Statement::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) if chain == to);
            statements.filter(|statement| leads(statement)).count()
        };
        let constant = self.fixed.iter().filter(|(name, _)| !layout::is_led_to_by_elements(name));
        constant.map(|(name, chain)| (name.clone(), chain.rules.len() + jumps(name))).collect()
    }
}
