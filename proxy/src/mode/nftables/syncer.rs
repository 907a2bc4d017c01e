use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use ipnet::IpNet;

use super::counters::CountedPorts;
use super::desired_table::{DesiredTable, SyncPlan};
use super::endpoint_index::EndpointIndex;
use super::found_elements::FoundElements;
use super::layout;
use super::ledger::ElementLedger;
use super::objects::{NftServiceObjects, render};
pub use super::probe::{hash_probe, probe};
use super::programmed::ProgrammedTable;
use crate::config::NodeAddresses;
use crate::kernel::nftables::{ListedTable, NftTable, NftTableError, TableQuery, TableState};
use crate::mode::Mode;
use crate::mode::Plans;
use crate::model::{Protocol, ServicePortName, ServiceSelection};
use crate::nftables::change::TableAction;
use crate::nftables::{Element, NftChange};
use crate::plan::lost_flows::{LostFlowChange, LostFlows, TrackedPort};
use crate::plan::node::node_port_addresses;
use crate::plan::stale_flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::SyncReport;

pub struct NftablesSyncer<K> {
    table: K,
    programmed: Option<ProgrammedTable>,
    /// The last known ledger, for endpoints to keep their indexes.
    numbers: ElementLedger,
    previous_frontends: BTreeSet<(Protocol, Frontend)>,
    service_ranges: Option<Vec<IpNet>>,
    lost_flows: LostFlows,
    /// The addresses of node ports, for elements of lost flows.
    node_addresses: Vec<IpAddr>,
    /// Whether a previous proxy's lost flows were read.
    adopted: bool,
    counted: CountedPorts,
}

enum FoundTable {
    Nothing,
    Other,
    Ours(ListedTable),
}

impl FoundTable {
    fn ours(&self) -> Option<&ListedTable> {
        match self {
            FoundTable::Ours(saved) => Some(saved),
            FoundTable::Nothing | FoundTable::Other => None,
        }
    }
}

impl<K: NftTable> NftablesSyncer<K> {
    pub fn new(table: K) -> NftablesSyncer<K> {
        NftablesSyncer {
            table,
            programmed: None,
            numbers: ElementLedger::default(),
            previous_frontends: BTreeSet::new(),
            service_ranges: None,
            lost_flows: LostFlows::default(),
            node_addresses: Vec::new(),
            adopted: false,
            counted: CountedPorts::default(),
        }
    }

    /// Counts the traffic of these Services.
    pub fn counting(self, selection: Option<ServiceSelection>) -> NftablesSyncer<K> {
        NftablesSyncer { counted: CountedPorts::of(selection), ..self }
    }

    /// The number of selected service ports without counters.
    pub fn left_out(&self) -> Arc<AtomicUsize> {
        self.counted.left_out()
    }

    pub fn table(&mut self) -> &mut K {
        &mut self.table
    }

    fn list(&mut self, node: &NodePlan) -> Result<(FoundTable, FoundElements), NftTableError> {
        let base_chains: Vec<&str> = layout::base_chains(node).collect();
        let sets = layout::sets(node, |_| 0);
        Ok(match self.table.list(TableQuery { base_chains: &base_chains, elements: &sets })? {
            TableState::Nothing => (FoundTable::Nothing, FoundElements::default()),
            TableState::Other => (FoundTable::Other, FoundElements::default()),
            TableState::Ours(mut saved) => {
                let found: FoundElements = std::mem::take(&mut saved.elements).into_iter().collect();
                (FoundTable::Ours(saved), found)
            }
        })
    }

    fn try_full(&mut self, node: &NodePlan, plans: &dyn Plans) -> Result<SyncReport, NftTableError> {
        let (before, found) = self.list(node)?;
        self.previous_frontends.extend(found.frontends());
        let numbers = std::mem::take(&mut self.numbers);
        if node.count_services {
            let counters = before.ours().into_iter().flat_map(|saved| &saved.counters).map(String::as_str);
            self.counted.replace_all(counters, plans.iter().map(|plan| plan.name));
            self.counted.report(node.family);
        }
        let nothing = EndpointIndex::default();
        let mut tracked = BTreeMap::new();
        let ledger: ElementLedger = plans
            .iter()
            .map(|plan| {
                let port = node.lost_flows.and_then(|_| TrackedPort::of(&plan));
                tracked.extend(port.map(|port| (plan.name.clone(), port)));
                let known = numbers.slots(&plan.name);
                let mut objects = render(&plan, node, known.unwrap_or(&nothing));
                objects.count(self.counted.admit(&plan.name));
                if known.is_none() {
                    found.number(&mut objects, &plan);
                }
                (plan.name, objects)
            })
            .collect();
        drop(numbers);
        let lost = self.lost_flows_of_all(tracked, &found);
        let wanted = DesiredTable::new(node, &ledger, &lost);
        let sync_plan = match before {
            FoundTable::Ours(saved) => wanted.change_of_ours(&self.table, saved, found),
            FoundTable::Other => wanted.create_table(TableAction::Replace),
            FoundTable::Nothing => wanted.create_table(TableAction::Make),
        };
        match Self::send(&mut self.table, &sync_plan, &wanted) {
            Ok(changes) => {
                let report =
                    SyncReport { full: true, rules: sync_plan.change.rules(), changes, ..SyncReport::default() };
                let mut programmed = ProgrammedTable::all(&wanted, sync_plan, Instant::now());
                programmed.ledger = ledger;
                self.programmed = Some(programmed);
                Ok(report)
            }
            Err(error) => {
                self.numbers = ledger;
                Err(error)
            }
        }
    }

    /// Records all service ports. Returns the elements of lost flows.
    fn lost_flows_of_all(
        &mut self,
        tracked: BTreeMap<ServicePortName, TrackedPort>,
        found: &FoundElements,
    ) -> Vec<Element> {
        let (now, lost) = (Instant::now(), &mut self.lost_flows);
        lost.replace_all(tracked, now);
        if !std::mem::replace(&mut self.adopted, true) {
            lost.adopt(found.lost_flows(), &self.node_addresses, now);
            lost.adopt_served(found.served(), now);
        }
        layout::lost_flows(&lost.reset().collect::<Vec<_>>(), &self.node_addresses)
    }

    fn add_lost_flows(&self, flows: &LostFlowChange, change: &mut NftChange) {
        change.delete_first.extend(layout::lost_flows(&flows.removed, &self.node_addresses));
        change.add_last.extend(layout::lost_flows(&flows.added, &self.node_addresses));
    }

    /// Returns the number of changed elements.
    fn send(table: &mut K, sync_plan: &SyncPlan, wanted: &DesiredTable<'_>) -> Result<usize, NftTableError> {
        let SyncPlan { change, refill, .. } = sync_plan;
        if !refill {
            table.commit(change)?;
            return Ok(change.elements());
        }
        let mut count = 0;
        table.fill(change, &mut wanted.elements().inspect(|_| count += 1))?;
        Ok(count)
    }
}

impl<K: NftTable> Mode for NftablesSyncer<K> {
    type Error = NftTableError;

    fn needs_full(&self) -> bool {
        self.programmed.is_none()
    }

    fn require_full_sync(&mut self) {
        if let Some(programmed) = self.programmed.take() {
            self.numbers = programmed.ledger;
        }
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        std::mem::take(&mut self.previous_frontends)
    }

    fn refused(&self) -> &BTreeMap<ServicePortName, String> {
        static NONE: BTreeMap<ServicePortName, String> = BTreeMap::new();
        &NONE
    }

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        node.lost_flows.is_some() && node_port_addresses(node, before) != node_port_addresses(node, after)
    }

    /// Checks only fixed chains: a flush affects them as well.
    fn detect_flush(&mut self) -> Result<Option<String>, NftTableError> {
        let Some(programmed) = &self.programmed else { return Ok(None) };
        if self.table.is_untouched()? {
            return Ok(None);
        }
        let names: Vec<&str> = programmed.reference_counts.iter().map(|(name, _)| &**name).collect();
        let found = self.table.reference_counts(&names)?;
        let lost = programmed.reference_counts.iter().zip(found).find(|((_, wanted), found)| Some(*wanted) != *found);
        Ok(lost.map(|((name, _), found)| match found {
            None => format!("the chain {name} of the table {}", layout::TABLE),
            Some(_) => format!("a rule of the chain {name} of the table {}", layout::TABLE),
        }))
    }

    fn compact(&mut self) {
        self.programmed = self.programmed.clone();
        self.numbers = self.numbers.clone();
    }

    fn full(
        &mut self,
        node: NodePlan,
        addresses: &NodeAddresses,
        plans: &dyn Plans,
    ) -> Result<SyncReport, NftTableError> {
        self.require_full_sync();
        self.node_addresses = node_port_addresses(&node, addresses);
        self.service_ranges = None;
        self.try_full(&node, plans)
    }

    fn set_service_ranges(&mut self, ranges: Vec<IpNet>) {
        self.service_ranges = Some(ranges);
    }

    fn partial(
        &mut self,
        changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>,
    ) -> Result<SyncReport, NftTableError> {
        let Some(mut programmed) = self.programmed.take() else { return Ok(SyncReport::default()) };
        let tracks = programmed.node.lost_flows.is_some();
        let tracked = |(name, plan): (&ServicePortName, &Option<ServicePortPlan>)| {
            (name.clone(), plan.as_ref().and_then(TrackedPort::of))
        };
        let tracked = if tracks { changed.iter().map(tracked).collect() } else { Vec::new() };
        let render = |(name, plan): (ServicePortName, Option<ServicePortPlan>)| {
            let nothing = EndpointIndex::default();
            let before = programmed.ledger.slots(&name).unwrap_or(&nothing);
            let mut objects: Option<NftServiceObjects> = plan.map(|plan| render(&plan, &programmed.node, before));
            match &mut objects {
                Some(objects) => objects.count(self.counted.admit(&name)),
                None => self.counted.remove(&name),
            }
            (name, objects)
        };
        let rendered = changed.into_iter().map(render).collect();
        self.counted.report(programmed.node.family);
        let mut difference = programmed.ledger.replace(rendered);
        if let Some(ranges) = self.service_ranges.take() {
            programmed.replace_service_ranges(ranges, &mut difference);
        }
        let lost = self.lost_flows.replace(tracked, Instant::now());
        let Some(mut change) = programmed.change(difference, Instant::now()) else {
            // A set is full: the next sync enlarges it.
            self.numbers = programmed.ledger;
            return Err(NftTableError {
                operation: format!("add elements to the table {}", layout::TABLE),
                reason: "the table is full; the next sync replaces the table with a larger one".to_owned(),
            });
        };
        self.add_lost_flows(&lost, &mut change);
        if let Err(error) = self.table.commit(&change) {
            self.numbers = programmed.ledger;
            return Err(error);
        }
        let report = SyncReport { rules: change.rules(), changes: change.elements(), ..SyncReport::default() };
        self.programmed = Some(programmed);
        Ok(report)
    }

    fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, NftTableError> {
        let Some(programmed) = &mut self.programmed else { return Ok(None) };
        let mut change = programmed.garbage_collect(now);
        let mut next = programmed.next_garbage_collection();
        if let Some(memory) = programmed.node.lost_flows {
            let lost = self.lost_flows.advance(now, memory);
            self.add_lost_flows(&lost, &mut change);
            next = next.into_iter().chain(self.lost_flows.next(memory)).min();
        }
        if let Err(error) = self.table.commit(&change) {
            self.require_full_sync();
            return Err(error);
        }
        Ok(next)
    }
}
