//! One family's proxy: applies changes of objects, and syncs the kernel. Only the mode and its companions do I/O, so
//! tests replace them by fakes.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::companion::Companion;
use super::{Mode, Plans};
use crate::config::{Config, NodeAddresses};
use crate::habits::{self, Habit};
use crate::model::{Change, Family, ObjectKey, Protocol, ServiceAnnotation, ServicePortName};
use crate::mutants;
use crate::plan::affinity::AcrossPortsPolicy;
use crate::plan::conntrack_index::ConntrackIndex;
use crate::plan::ended_flows::EndedFlows;
use crate::plan::flow_fate::{FatePolicy, deletes_entries, memory};
use crate::plan::health::{HealthCheckTracker, ServiceCheck};
use crate::plan::ignored_annotations::IgnoredAnnotations;
use crate::plan::load_balancing::BalancingPolicy;
use crate::plan::lost_flows::TrackedPort;
use crate::plan::node::primary_address;
use crate::plan::other_machines::{PublishedAddresses, other_machines};
use crate::plan::service_port::PlanContext;
use crate::plan::source_ranges::limits_node_ports;
use crate::plan::stale_flows::{StaleFlowFilter, needs_conntrack_cleanup, servers};
use crate::plan::summary::PlanSummary;
use crate::plan::{NodePlan, ServicePortPlan, ServiceRanges, plan_node, plan_service_port, service_ranges};
use crate::ruleset::SyncReport;
use crate::state::claims::Dispute;
use crate::state::{ChangedPorts, State};

pub struct FamilyProxy<M> {
    config: Config,
    state: State,
    mode: M,
    companions: Vec<Box<dyn Companion>>,
    addresses: NodeAddresses,
    pending: ChangedPorts,
    records: PlanRecords,
    other_machines: BTreeSet<IpAddr>,
    conntrack_index: ConntrackIndex,
    ended_flows: EndedFlows,
    /// Whether flows have ended since [`FamilyProxy::take_ended`].
    has_ended: bool,
}

/// Records of plans as of the last sync.
#[derive(Default)]
struct PlanRecords {
    checks: HealthCheckTracker,
    summary: PlanSummary,
    published: PublishedAddresses,
    ignored_annotations: IgnoredAnnotations,
    /// TCP service ports of plans since the last successful sync, for modes that end flows by conntrack.
    tracked: BTreeMap<ServicePortName, Option<TrackedPort>>,
    tracks: bool,
}

impl PlanRecords {
    fn record(&mut self, name: &ServicePortName, plan: Option<&ServicePortPlan>) {
        self.checks.record(name, plan);
        self.summary.record(name, plan);
        self.published.record(name, plan);
        self.ignored_annotations.record(name, plan);
        if self.tracks && name.protocol == Protocol::Tcp {
            self.tracked.insert(name.clone(), plan.and_then(TrackedPort::of));
        }
    }
}

impl<M: Mode> FamilyProxy<M> {
    pub fn with_mode(config: Config, family: Family, mode: M) -> FamilyProxy<M> {
        FamilyProxy {
            state: State::new(family, config.node_name.clone()).with_external_ips(config.gates.service_external_ips),
            config,
            mode,
            companions: Vec::new(),
            addresses: NodeAddresses::default(),
            pending: ChangedPorts::default(),
            records: PlanRecords::default(),
            other_machines: BTreeSet::new(),
            conntrack_index: ConntrackIndex::default(),
            ended_flows: EndedFlows::default(),
            has_ended: false,
        }
    }

    pub fn with_companion(mut self, companion: impl Companion) -> FamilyProxy<M> {
        self.companions.push(Box::new(companion));
        self
    }

    /// May only be called before the first change.
    pub fn map_mode<N: Mode>(self, map: impl FnOnce(M) -> N) -> FamilyProxy<N> {
        let FamilyProxy { config, state, mode, companions, .. } = self;
        FamilyProxy { companions, ..FamilyProxy::with_mode(config, state.family(), map(mode)) }
    }

    pub fn family(&self) -> Family {
        self.state.family()
    }

    pub fn mode(&mut self) -> &mut M {
        &mut self.mode
    }

    pub fn companion<C: Companion>(&mut self) -> Option<&mut C> {
        self.companions.iter_mut().find_map(|companion| {
            let any: &mut dyn Any = &mut **companion;
            any.downcast_mut()
        })
    }

    /// Changes only memory; [`FamilyProxy::sync`] writes to the kernel.
    pub fn apply<'a>(&mut self, changes: impl IntoIterator<Item = &'a Change>) {
        let before = self.asked();
        for change in changes {
            self.state.apply(mutants::change(change).as_ref().unwrap_or(change));
        }
        self.pending.merge(self.state.take_changed());
        if self.asked() != before {
            self.mode.require_full_sync();
        }
        if self.state.take_other_machines_changed() {
            self.find_other_machines();
        }
    }

    /// Returns what Services' annotations add to the node's plan.
    fn asked(&self) -> (Option<Duration>, bool) {
        (memory(&self.config, &self.state), limits_node_ports(&self.config, &self.state))
    }

    /// Marks service ports as changed if another machine has taken or released an address that they publish.
    fn find_other_machines(&mut self) {
        let now = other_machines(&self.config, &self.state, &self.addresses);
        let before = std::mem::replace(&mut self.other_machines, now);
        let moved: BTreeSet<IpAddr> = before.symmetric_difference(&self.other_machines).copied().collect();
        if moved.is_empty() {
            return;
        }
        let ports = self.state.service_ports().filter(|port| port.external_addresses().any(|ip| moved.contains(&ip)));
        self.pending.service_ports.extend(ports.map(|port| port.name.clone()));
    }

    /// The next sync is full if the rules depend on the changed addresses. Returns whether [`FamilyProxy::follow_up`]
    /// has work to do.
    pub fn set_addresses(&mut self, addresses: &NodeAddresses) -> bool {
        // Equal addresses may still require a sync: another program may have removed bound addresses, or a link may
        // lack an address.
        if self.addresses == *addresses && addresses.of_services.is_none() && addresses.bare.is_empty() {
            return false;
        }
        let before = (self.node_plan(), std::mem::replace(&mut self.addresses, addresses.clone()));
        let now = self.node_plan();
        if now != before.0 || self.mode.depends_on(&now, &before.1, &self.addresses) {
            self.mode.require_full_sync();
        }
        self.find_other_machines();
        // Calls every companion; `any` would stop early.
        self.companions.iter_mut().filter_map(|companion| companion.addresses_changed(addresses).then_some(())).count()
            > 0
    }

    pub fn require_full_sync(&mut self) {
        self.mode.require_full_sync();
    }

    pub fn needs_full(&self) -> bool {
        self.mode.needs_full() || self.pending.node
    }

    pub fn is_due(&self) -> bool {
        self.mode.needs_full() || !self.pending.is_empty()
    }

    pub fn has_rest(&self) -> bool {
        !self.pending.is_empty()
    }

    pub fn look_ahead(&mut self) {
        self.mode.look_ahead();
    }

    pub fn take_much_forgotten(&mut self) -> bool {
        self.state.take_much_forgotten()
    }

    pub fn compact(&mut self) {
        self.state.compact();
        self.mode.compact();
    }

    /// See [`Mode::detect_flush`]; includes companions.
    pub fn detect_flush(&mut self) -> Result<Option<String>, M::Error> {
        let lost = self.mode.detect_flush()?;
        // The companions' objects exist only after the first full sync.
        if lost.is_some() || self.mode.needs_full() {
            return Ok(lost);
        }
        Ok(self.companions.iter_mut().find_map(|companion| companion.detect_flush()))
    }

    /// See [`Mode::follow_up`]; includes companions.
    pub fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, M::Error> {
        let of_companions: Vec<Instant> =
            self.companions.iter_mut().filter_map(|companion| companion.follow_up(now)).collect();
        let next = self.mode.follow_up(now)?;
        // A sync that is due may make a lost endpoint serve again. This is called again after it.
        let drained = if self.is_due() { None } else { self.end_drained(now) };
        Ok(next.into_iter().chain(of_companions).chain(drained).min())
    }

    fn end_drained(&mut self, now: Instant) -> Option<Instant> {
        self.has_ended |= self.ended_flows.advance(now);
        self.ended_flows.next()
    }

    /// Whether connections have ended since the last call, without a sync: [`FamilyProxy::stale_flows`] has changed.
    pub fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.has_ended)
    }

    /// Returns the checks that the last syncs changed. `None`: the check was removed.
    pub fn take_health_changes(&mut self) -> Vec<(ObjectKey, Option<ServiceCheck>)> {
        self.records.checks.take_changed()
    }

    pub fn take_disputes(&mut self) -> Vec<Dispute> {
        self.state.take_disputes()
    }

    pub fn refused(&self) -> &BTreeMap<ServicePortName, String> {
        self.mode.refused()
    }

    pub fn summary(&self) -> &PlanSummary {
        &self.records.summary
    }

    pub fn published_of_other_machines(&self) -> &PublishedAddresses {
        &self.records.published
    }

    pub fn ignored_annotations(&self) -> &IgnoredAnnotations {
        &self.records.ignored_annotations
    }

    pub fn service_ranges(&self) -> ServiceRanges {
        service_ranges(&self.config, self.state.node(), self.state.service_cidrs())
    }

    pub fn node_plan(&self) -> NodePlan {
        let service_ranges = self.service_ranges().dropped;
        let (lost_flows, limits_node_ports) = self.asked();
        let plan = plan_node(&self.config, self.family(), self.state.node(), &self.addresses);
        let mut plan = NodePlan { service_ranges, lost_flows, limits_node_ports, ..plan };
        mutants::node_plan(&mut plan);
        plan
    }

    pub fn count_triggers_since(&mut self, since: Timestamp) {
        self.state.count_triggers_since(since);
    }

    pub fn take_triggers(&mut self) -> impl Iterator<Item = Timestamp> + use<M> {
        self.state.take_triggers()
    }

    /// Syncs the kernel: partially if the kernel's state is known, else fully. After very many changes, a partial sync
    /// leaves some to the next sync, which is due at once.
    ///
    /// After an error, everything pending is part of the next sync, which is full unless the mode can repeat a part.
    pub fn sync(&mut self) -> Result<SyncReport, M::Error> {
        if self.needs_full() {
            let pending = std::mem::take(&mut self.pending);
            let report = self.full().inspect_err(|_| self.pending.node |= pending.node)?;
            let FamilyProxy { state, mode, addresses, conntrack_index, .. } = self;
            let ports = state.service_ports().filter(|port| needs_conntrack_cleanup(port.name.protocol));
            conntrack_index.record_all(ports.map(|port| {
                let servers = flow_servers(state, mode, addresses, &port.name);
                (port, servers)
            }));
            self.conntrack_index.add_previous(self.mode.take_previous_frontends());
            let tracked = std::mem::take(&mut self.records.tracked).into_iter();
            let tracked = tracked.filter_map(|(name, port)| Some((name, port?))).collect();
            self.ended_flows.replace_all(tracked, Instant::now());
            return Ok(report);
        }
        let mut pending = self.state.take_part(&mut self.pending);
        mutants::pending(&self.state, &mut pending.service_ports);
        if pending.service_cidrs {
            self.mode.set_service_ranges(self.service_ranges().dropped);
        }
        let report = self.partial(&pending.service_ports).inspect_err(|_| self.pending.merge(pending.clone()))?;
        for name in pending.service_ports.iter().filter(|name| needs_conntrack_cleanup(name.protocol)) {
            let port = self.state.service_port(name);
            self.conntrack_index.record(name, port.as_deref().map(|port| (port, self.servers(name))));
        }
        let tracked = std::mem::take(&mut self.records.tracked);
        self.ended_flows.replace(tracked.into_iter().collect(), Instant::now());
        Ok(report)
    }

    /// Returns the filter for stale conntrack entries, until [`FamilyProxy::conntrack_reconciled`].
    pub fn stale_flows(&self) -> Option<StaleFlowFilter> {
        if self.conntrack_index.due().is_empty() && !self.ended_flows.is_due() {
            return None;
        }
        let ports = self.conntrack_index.ports_due().into_iter().filter_map(|name| self.state.service_port(name));
        let ports = ports.map(|port| {
            let servers = self.servers(&port.name);
            (port, servers)
        });
        let flows = StaleFlowFilter::new(ports, &self.node_plan().node_ports, &self.addresses.local);
        Some(flows.only(self.conntrack_index.due()).and_ended(self.ended_flows.due()))
    }

    fn servers(&self, name: &ServicePortName) -> BTreeSet<SocketAddr> {
        flow_servers(&self.state, &self.mode, &self.addresses, name)
    }

    pub fn conntrack_reconciled(&mut self) {
        self.conntrack_index.clear_due();
        self.ended_flows.clear_due();
    }

    fn full(&mut self) -> Result<SyncReport, M::Error> {
        let node = self.node_plan();
        let FamilyProxy { config, state, addresses, other_machines, mode, companions, records, .. } = self;
        records.checks.retain(|name| state.service_port(name).is_some());
        (records.summary, records.published) = (PlanSummary::default(), PublishedAddresses::default());
        records.ignored_annotations = IgnoredAnnotations::default();
        records.tracked.clear();
        records.tracks = deletes_entries(config.mode) && node.lost_flows.is_some();
        let planner = Planner { config, state, addresses, other_machines };
        let plans = RecordingPlans { planner, records: RefCell::new(records) };
        companions.iter_mut().for_each(|companion| companion.full(addresses, &plans));
        mode.full(node, addresses, &plans)
    }

    fn partial(&mut self, pending: &BTreeSet<ServicePortName>) -> Result<SyncReport, M::Error> {
        let planner = self.planner();
        let mut changed: BTreeMap<ServicePortName, Option<ServicePortPlan>> =
            pending.iter().map(|name| (name.clone(), planner.plan(name))).collect();
        if habits::has(Habit::PartialSyncForgets) {
            let others = self.state.service_ports().filter(|port| !pending.contains(&port.name));
            changed.extend(others.map(|port| (port.name.clone(), None)));
        }
        changed.iter().for_each(|(name, plan)| self.records.record(name, plan.as_ref()));
        self.companions.iter_mut().for_each(|companion| companion.partial(&changed));
        self.mode.partial(changed)
    }

    pub fn plans(&self) -> Vec<ServicePortPlan> {
        self.planner().iter().collect()
    }

    fn planner(&self) -> Planner<'_> {
        let FamilyProxy { config, state, addresses, other_machines, .. } = self;
        Planner { config, state, addresses, other_machines }
    }
}

fn flow_servers<M: Mode>(
    state: &State,
    mode: &M,
    addresses: &NodeAddresses,
    name: &ServicePortName,
) -> BTreeSet<SocketAddr> {
    servers(name.protocol, &state.endpoints(name), &mode.relay_ports(name), &addresses.local)
}

struct Planner<'a> {
    config: &'a Config,
    state: &'a State,
    addresses: &'a NodeAddresses,
    other_machines: &'a BTreeSet<IpAddr>,
}

impl Planner<'_> {
    fn plan(&self, name: &ServicePortName) -> Option<ServicePortPlan> {
        let (mut port, mut endpoints) = (self.state.service_port(name)?, self.state.endpoints(name));
        mutants::inputs(self.state, &mut port, &mut endpoints);
        let context = PlanContext {
            node_name: &self.config.node_name,
            node: self.state.node(),
            primary: primary_address(self.config, self.state.family(), self.state.node(), self.addresses),
            masquerade_all: self.config.masquerade_all,
            other_machines: self.other_machines,
            affinity_across_ports: AcrossPortsPolicy::of(self.config),
            fates: FatePolicy::of(self.config),
            local_fallback: self.config.annotations.contains(&ServiceAnnotation::LocalFallback),
            source_ranges: self.config.annotations.contains(&ServiceAnnotation::SourceRanges),
            balancing: BalancingPolicy::of(self.config),
        };
        let mut plan = plan_service_port(&port, &endpoints, context);
        mutants::plan(self.state, &port, &endpoints, &mut plan);
        Some(plan)
    }

    fn iter(&self) -> impl Iterator<Item = ServicePortPlan> {
        self.state.service_ports().filter_map(|port| self.plan(&port.name))
    }
}

struct RecordingPlans<'a> {
    planner: Planner<'a>,
    records: RefCell<&'a mut PlanRecords>,
}

impl Plans for RecordingPlans<'_> {
    fn iter(&self) -> Box<dyn Iterator<Item = ServicePortPlan> + '_> {
        Box::new(self.planner.iter().inspect(|plan| self.records.borrow_mut().record(&plan.name, Some(plan))))
    }
}
