//! One address family's proxy: state in, syncs out. Everything but what its mode asks of the kernel is pure, so the whole
//! of it runs against a fake.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use jiff::Timestamp;

use super::Mode;
use super::rules::report::Report;
use crate::config::{Config, NodeAddresses};
use crate::model::{Family, Protocol, ServicePortName};
use crate::plan::flows::{Flows, Frontend, is_judged};
use crate::plan::node::primary_addresses;
use crate::plan::service_port::Surroundings;
use crate::plan::tally::Tally;
use crate::plan::{HealthCheck, NodePlan, ServicePortPlan, plan_node, plan_service_port};
use crate::source::Change;
use crate::state::{Changed, State};

/// One family's proxy.
pub struct FamilyProxy<M> {
    config: Config,
    state: State,
    mode: M,
    addresses: NodeAddresses,
    pending: Changed,
    health_checks: BTreeMap<ServicePortName, HealthCheck>,
    tally: Tally,
    /// Frontends of datagram protocols whose flows may still be around.
    frontends: BTreeSet<(Protocol, Frontend)>,
    flows_due: bool,
}

impl<M: Mode> FamilyProxy<M> {
    /// A proxy that knows of no object yet.
    pub fn with_mode(config: Config, family: Family, mode: M) -> FamilyProxy<M> {
        FamilyProxy {
            state: State::new(family, config.node_name.clone()),
            config,
            mode,
            addresses: NodeAddresses::default(),
            pending: Changed::default(),
            health_checks: BTreeMap::new(),
            tally: Tally::default(),
            frontends: BTreeSet::new(),
            flows_due: false,
        }
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.state.family()
    }

    /// Takes changes in; nothing is written before [`FamilyProxy::sync`].
    pub fn apply<'a>(&mut self, changes: impl IntoIterator<Item = &'a Change>) {
        for change in changes {
            self.state.apply(change);
        }
        self.pending.merge(self.state.take_changed());
    }

    /// The node's addresses as they are now; if they are others than before, the next sync is a full one.
    pub fn set_addresses(&mut self, addresses: &NodeAddresses) {
        if self.addresses != *addresses {
            self.addresses = addresses.clone();
            self.mode.doubt();
        }
    }

    /// Somebody else may have written to the kernel: the next sync compares everything.
    pub fn doubt(&mut self) {
        self.mode.doubt();
    }

    /// Whether the next sync is a full one.
    pub fn needs_full(&self) -> bool {
        self.mode.needs_full() || self.pending.node
    }

    /// Whether a sync would have anything to do.
    pub fn is_due(&self) -> bool {
        self.mode.needs_full() || !self.pending.is_empty()
    }

    /// What somebody else has taken away, in words.
    ///
    /// # Errors
    /// When the kernel refuses something.
    pub fn lost(&mut self) -> Result<Option<String>, M::Error> {
        self.mode.lost()
    }

    /// Looks after what goes on after a sync; when to come again.
    ///
    /// # Errors
    /// When the kernel refuses something.
    pub fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, M::Error> {
        self.mode.follow_up(now)
    }

    /// The health checks that service ports ask for, as of the last sync.
    pub fn health_checks(&self) -> &BTreeMap<ServicePortName, HealthCheck> {
        &self.health_checks
    }

    /// How service ports stand, as of the last sync.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What holds for all of the node's services.
    pub fn node_plan(&self) -> NodePlan {
        plan_node(&self.config, self.family(), self.state.node(), &self.addresses)
    }

    /// From now on, the times of what led to changes of endpoints are kept for [`FamilyProxy::take_triggers`], unless
    /// they are earlier than `since`.
    pub fn count_triggers_since(&mut self, since: Timestamp) {
        self.state.count_triggers_since(since);
    }

    /// When that happened which the last changes of endpoints follow from; to be asked after a sync.
    pub fn take_triggers(&mut self) -> impl Iterator<Item = Timestamp> + use<M> {
        self.state.take_triggers()
    }

    /// The mode.
    pub fn mode(&mut self) -> &mut M {
        &mut self.mode
    }

    /// Brings the kernel to the state: a partial sync where that is known to do, else a full one.
    ///
    /// # Errors
    /// When the kernel refuses something; everything that was pending is then part of the next sync, which is full.
    pub fn sync(&mut self) -> Result<Report, M::Error> {
        let pending = std::mem::take(&mut self.pending);
        let full = self.mode.needs_full() || pending.node;
        let flows_due = full || pending.service_ports.iter().any(|name| is_judged(name.protocol));
        let report = if full { self.full() } else { self.partial(pending) }?;
        self.flows_due |= flows_due;
        Ok(report)
    }

    /// Where flows may lead, if they must be looked at: rules changed that conntrack's entries do not follow. Asked again
    /// until [`FamilyProxy::flows_judged`] is told.
    pub fn flows_due(&mut self) -> Option<Flows> {
        if !self.flows_due {
            return None;
        }
        self.frontends.extend(self.mode.take_found());
        let node = self.node_plan();
        let ports = self.state.service_ports().filter(|port| is_judged(port.name.protocol));
        let mode = &self.mode;
        let ports = ports.map(|port| (port, self.state.endpoints(&port.name), mode.relay_ports(&port.name)));
        Some(Flows::new(ports, &node.node_ports, &self.addresses.local).after(self.frontends.iter().copied()))
    }

    /// Stale flows are gone.
    pub fn flows_judged(&mut self, flows: &Flows) {
        self.flows_due = false;
        self.frontends = flows.frontends().collect();
    }

    fn partial(&mut self, pending: Changed) -> Result<Report, M::Error> {
        let changed: BTreeMap<ServicePortName, Option<ServicePortPlan>> =
            pending.service_ports.into_iter().map(|name| (name.clone(), self.plan_one(&name))).collect();
        for (name, plan) in &changed {
            self.note(name, plan.as_ref());
        }
        self.mode.partial(changed)
    }

    /// The plans of all service ports.
    pub fn plans(&self) -> Vec<ServicePortPlan> {
        self.state.service_ports().filter_map(|port| self.plan_one(&port.name)).collect()
    }

    fn full(&mut self) -> Result<Report, M::Error> {
        let plans = self.plans();
        self.health_checks.clear();
        self.tally = Tally::default();
        for plan in &plans {
            self.note(&plan.name, Some(plan));
        }
        let node = self.node_plan();
        self.mode.full(node, &self.addresses, &plans)
    }

    fn note(&mut self, name: &ServicePortName, plan: Option<&ServicePortPlan>) {
        self.tally.note(name, plan);
        match plan.and_then(|plan| plan.health_check.clone()) {
            Some(check) => self.health_checks.insert(name.clone(), check),
            None => self.health_checks.remove(name),
        };
    }

    fn plan_one(&self, name: &ServicePortName) -> Option<ServicePortPlan> {
        let port = self.state.service_port(name)?;
        let primary = primary_addresses(&self.config, self.family(), self.state.node(), &self.addresses);
        let around = Surroundings {
            node_name: &self.config.node_name,
            node: self.state.node(),
            primary: &primary,
            masquerade_all: self.config.masquerade_all,
        };
        Some(plan_service_port(port, &self.state.endpoints(name), around))
    }
}
