//! Brings the table to what is wanted: everything against what stands (full), or what changed against what was sent last (partial).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ipnet::IpNet;

use super::found::Found;
use super::layout;
use super::ledger::Ledger;
use super::objects::{ServiceObjects, render};
pub use super::probe::probe;
use super::sent::Sent;
use super::slots::Slots;
use super::wanted::{Wanted, Way};
use crate::config::NodeAddresses;
use crate::kernel::nftables::{Look, NftTable, NftTableError, Saved, Standing};
use crate::mode::Mode;
use crate::mode::Plans;
use crate::model::{Protocol, ServicePortName};
use crate::nftables::Change;
use crate::nftables::change::TableChange;
use crate::plan::flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::Report;

/// One family's table.
pub struct Syncer<K> {
    table: K,
    sent: Option<Sent>,
    /// Numbers that endpoints had before the table's state was doubted.
    numbers: Ledger,
    previous_frontends: BTreeSet<(Protocol, Frontend)>,
    /// Those that the next partial sync sends.
    service_ranges: Option<Vec<IpNet>>,
}

/// What stood before a full sync.
enum Before {
    Nothing,
    Other,
    Ours(Saved),
}

impl<K: NftTable> Syncer<K> {
    /// Knows nothing of the kernel's state yet.
    pub fn new(table: K) -> Syncer<K> {
        Syncer {
            table,
            sent: None,
            numbers: Ledger::default(),
            previous_frontends: BTreeSet::new(),
            service_ranges: None,
        }
    }

    /// The kernel adapter, for tests.
    pub fn table(&mut self) -> &mut K {
        &mut self.table
    }

    fn look(&mut self) -> Result<(Before, Found), NftTableError> {
        let base_chains: Vec<&str> = layout::base_chains().collect();
        let sets = layout::sets(|_| 0);
        Ok(match self.table.look(Look { base_chains: &base_chains, elements: &sets })? {
            Standing::Nothing => (Before::Nothing, Found::default()),
            Standing::Other => (Before::Other, Found::default()),
            Standing::Ours(mut saved) => {
                let found: Found = std::mem::take(&mut saved.elements).into_iter().collect();
                (Before::Ours(saved), found)
            }
        })
    }

    fn try_full(&mut self, node: &NodePlan, plans: &dyn Plans) -> Result<Report, NftTableError> {
        let (before, found) = self.look()?;
        self.previous_frontends.extend(found.frontends());
        let numbers = std::mem::take(&mut self.numbers);
        let nothing = Slots::default();
        let ledger: Ledger = plans
            .iter()
            .map(|plan| {
                let known = numbers.slots(&plan.name);
                let mut objects = render(&plan, node, known.unwrap_or(&nothing));
                if known.is_none() {
                    found.number(&mut objects, &plan);
                }
                (plan.name, objects)
            })
            .collect();
        drop(numbers);
        let wanted = Wanted::new(node, &ledger);
        let way = match before {
            Before::Ours(saved) => wanted.change_of_ours(&self.table, saved, found),
            Before::Other => wanted.anew(TableChange::Replace),
            Before::Nothing => wanted.anew(TableChange::Make),
        };
        match Self::send(&mut self.table, &way, &wanted) {
            Ok(changes) => {
                let report = Report { full: true, rules: way.change.rules(), changes, ..Report::default() };
                let mut sent = Sent::all(&wanted, way, Instant::now());
                sent.ledger = ledger;
                self.sent = Some(sent);
                Ok(report)
            }
            Err(error) => {
                self.numbers = ledger;
                Err(error)
            }
        }
    }

    /// How many elements were changed.
    fn send(table: &mut K, way: &Way, wanted: &Wanted<'_>) -> Result<usize, NftTableError> {
        let Way { change, fills, .. } = way;
        if !fills {
            table.commit(change)?;
            return Ok(elements(change));
        }
        let mut count = 0;
        table.fill(change, &mut wanted.elements().inspect(|_| count += 1))?;
        Ok(count)
    }
}

fn elements(change: &Change) -> usize {
    change.add_elements.len() + change.delete_elements.len()
}

impl<K: NftTable> Mode for Syncer<K> {
    type Error = NftTableError;

    fn needs_full(&self) -> bool {
        self.sent.is_none()
    }

    fn require_full_sync(&mut self) {
        if let Some(sent) = self.sent.take() {
            self.numbers = sent.ledger;
        }
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        std::mem::take(&mut self.previous_frontends)
    }

    fn refused(&self) -> &BTreeMap<ServicePortName, String> {
        static NONE: BTreeMap<ServicePortName, String> = BTreeMap::new();
        &NONE
    }

    /// A look at the chains that are there whatever the services: what empties or removes the table takes them along.
    fn detect_flush(&mut self) -> Result<Option<String>, NftTableError> {
        let Some(sent) = &self.sent else { return Ok(None) };
        if self.table.is_untouched()? {
            return Ok(None);
        }
        let names: Vec<&str> = sent.uses.iter().map(|(name, _)| &**name).collect();
        let found = self.table.uses(&names)?;
        let lost = sent.uses.iter().zip(found).find(|((_, wanted), found)| Some(*wanted) != *found);
        Ok(lost.map(|((name, _), found)| match found {
            None => format!("the chain {name} of the table {}", layout::TABLE),
            Some(_) => format!("a rule of the chain {name} of the table {}", layout::TABLE),
        }))
    }

    fn compact(&mut self) {
        self.sent = self.sent.clone();
        self.numbers = self.numbers.clone();
    }

    fn full(&mut self, node: NodePlan, _: &NodeAddresses, plans: &dyn Plans) -> Result<Report, NftTableError> {
        self.require_full_sync();
        self.service_ranges = None;
        self.try_full(&node, plans)
    }

    fn set_service_ranges(&mut self, ranges: Vec<IpNet>) {
        self.service_ranges = Some(ranges);
    }

    fn partial(
        &mut self,
        changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>,
    ) -> Result<Report, NftTableError> {
        let Some(mut sent) = self.sent.take() else { return Ok(Report::default()) };
        let render = |(name, plan): (ServicePortName, Option<ServicePortPlan>)| {
            let nothing = Slots::default();
            let before = sent.ledger.slots(&name).unwrap_or(&nothing);
            let objects: Option<ServiceObjects> = plan.map(|plan| render(&plan, &sent.node, before));
            (name, objects)
        };
        let rendered = changed.into_iter().map(render).collect();
        let mut difference = sent.ledger.replace(rendered);
        if let Some(ranges) = self.service_ranges.take() {
            sent.replace_service_ranges(ranges, &mut difference);
        }
        let Some(change) = sent.change(difference, Instant::now()) else {
            // A full sync makes a table with more room; until then the state is not known.
            self.numbers = sent.ledger;
            return Err(NftTableError {
                operation: format!("add elements to the table {}", layout::TABLE),
                reason: "there is no more room in it: it will be replaced by a larger one".to_owned(),
            });
        };
        if let Err(error) = self.table.commit(&change) {
            self.numbers = sent.ledger;
            return Err(error);
        }
        let report = Report { rules: change.rules(), changes: elements(&change), ..Report::default() };
        self.sent = Some(sent);
        Ok(report)
    }

    fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, NftTableError> {
        let Some(sent) = &mut self.sent else { return Ok(None) };
        let change = sent.upkeep(now);
        let next = sent.next_upkeep();
        if let Err(error) = self.table.commit(&change) {
            self.require_full_sync();
            return Err(error);
        }
        Ok(next)
    }
}
