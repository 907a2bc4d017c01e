//! One address family's proxy: state in, syncs out. Everything but what its mode asks of the kernel is pure, so the whole
//! of it runs against a fake.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use jiff::Timestamp;

use super::Mode;
use super::Plans;
use crate::config::{Config, NodeAddresses};
use crate::model::{Change, Family, ObjectKey, ServicePortName};
use crate::plan::flows::{StaleFlowFilter, needs_conntrack_cleanup, servers};
use crate::plan::frontends::ConntrackFrontends;
use crate::plan::health::{Checks, ServiceCheck};
use crate::plan::node::primary_address;
use crate::plan::other_machines::{Published, other_machines};
use crate::plan::service_port::NodeContext;
use crate::plan::tally::Tally;
use crate::plan::{NodePlan, ServicePortPlan, ServiceRanges, plan_node, plan_service_port, service_ranges};
use crate::ruleset::Report;
use crate::state::claims::Dispute;
use crate::state::{ChangedPorts, State};

/// One family's proxy.
pub struct FamilyProxy<M> {
    config: Config,
    state: State,
    mode: M,
    addresses: NodeAddresses,
    pending: ChangedPorts,
    checks: Checks,
    tally: Tally,
    other_machines: BTreeSet<IpAddr>,
    published: Published,
    conntrack_frontends: ConntrackFrontends,
}

impl<M: Mode> FamilyProxy<M> {
    /// A proxy that knows of no object yet.
    pub fn with_mode(config: Config, family: Family, mode: M) -> FamilyProxy<M> {
        FamilyProxy {
            state: State::new(family, config.node_name.clone()).with_external_ips(config.gates.service_external_ips),
            config,
            mode,
            addresses: NodeAddresses::default(),
            pending: ChangedPorts::default(),
            checks: Checks::default(),
            tally: Tally::default(),
            other_machines: BTreeSet::new(),
            published: Published::default(),
            conntrack_frontends: ConntrackFrontends::default(),
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
        if self.state.take_other_machines_changed() {
            self.find_other_machines();
        }
    }

    /// Service ports that publish an address which became another machine's, or is no longer, are part of the next sync.
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

    /// The node's addresses as they are now. If what follows from them is another than before, the next sync is a full one:
    /// pods that come and go bring addresses along which no rule depends on. Returns whether [`FamilyProxy::follow_up`] has something to do.
    pub fn set_addresses(&mut self, addresses: &NodeAddresses) -> bool {
        // The same addresses again may mean something: a sync has bound addresses in between, and another program has removed them; or a
        // link still has no address.
        if self.addresses == *addresses && addresses.of_services.is_none() && addresses.bare.is_empty() {
            return false;
        }
        let before = (self.node_plan(), std::mem::replace(&mut self.addresses, addresses.clone()));
        let now = self.node_plan();
        if now != before.0 || self.mode.depends_on(&now, &before.1, &self.addresses) {
            self.mode.require_full_sync();
        }
        self.find_other_machines();
        self.mode.addresses_changed(&self.addresses)
    }

    /// Another program may have written to the kernel: the next sync compares everything.
    pub fn require_full_sync(&mut self) {
        self.mode.require_full_sync();
    }

    /// Whether the next sync is a full one.
    pub fn needs_full(&self) -> bool {
        self.mode.needs_full() || self.pending.node
    }

    /// Whether a sync would have anything to do.
    pub fn is_due(&self) -> bool {
        self.mode.needs_full() || !self.pending.is_empty()
    }

    /// Whether the last sync has left something to the next one.
    pub fn has_rest(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Reads in advance what the first sync has to know.
    pub fn look_ahead(&mut self) {
        self.mode.look_ahead();
    }

    /// Whether so much was forgotten since the last call that [`FamilyProxy::compact`] is worth while.
    pub fn take_much_forgotten(&mut self) -> bool {
        self.state.take_much_forgotten()
    }

    /// Moves what is kept of a large cluster to new memory ([`compact`](crate::kernel::memory::compact)).
    pub fn compact(&mut self) {
        self.state.compact();
        self.mode.compact();
    }

    /// What another program has taken away, in words.
    ///
    /// # Errors
    /// When the kernel refuses something.
    pub fn detect_flush(&mut self) -> Result<Option<String>, M::Error> {
        self.mode.detect_flush()
    }

    /// Looks after what goes on after a sync; when to come again.
    ///
    /// # Errors
    /// When the kernel refuses something.
    pub fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, M::Error> {
        self.mode.follow_up(now)
    }

    /// The Services whose health checks have changed since this was last asked for, as of the last sync: what they answer, or
    /// nothing where there is none any more.
    pub fn take_health_changes(&mut self) -> Vec<(ObjectKey, Option<ServiceCheck>)> {
        self.checks.take_changed()
    }

    /// What Services ask for and others have, as far as that changed since it was last asked for.
    pub fn take_disputes(&mut self) -> Vec<Dispute> {
        self.state.take_disputes()
    }

    /// Service ports of which the kernel refuses rules, and why, as of the last sync.
    pub fn refused(&self) -> &BTreeMap<ServicePortName, String> {
        self.mode.refused()
    }

    /// How service ports stand, as of the last sync.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Service ports that publish addresses of other machines, as of the last sync.
    pub fn published_of_other_machines(&self) -> &Published {
        &self.published
    }

    /// The ranges that cluster IPs come from.
    pub fn service_ranges(&self) -> ServiceRanges {
        service_ranges(&self.config, self.state.node(), self.state.service_cidrs())
    }

    /// What holds for all of the node's services.
    pub fn node_plan(&self) -> NodePlan {
        let service_ranges = self.service_ranges().dropped;
        NodePlan { service_ranges, ..plan_node(&self.config, self.family(), self.state.node(), &self.addresses) }
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

    /// Brings the kernel to the state: a partial sync where that is known to do, else a full one. Where very much has changed a partial sync
    /// leaves a rest to the next one, which is due at once.
    ///
    /// # Errors
    /// When the kernel refuses something; everything that was pending is then part of the next sync, which is full unless
    /// the mode can repeat a part.
    pub fn sync(&mut self) -> Result<Report, M::Error> {
        if self.needs_full() {
            let pending = std::mem::take(&mut self.pending);
            let report = self.full().inspect_err(|_| self.pending.node |= pending.node)?;
            let FamilyProxy { state, mode, addresses, conntrack_frontends, .. } = self;
            let ports = state.service_ports().filter(|port| needs_conntrack_cleanup(port.name.protocol));
            conntrack_frontends.note_all(ports.map(|port| {
                let (endpoints, relays) = (state.endpoints(&port.name), mode.relay_ports(&port.name));
                let servers = servers(port.name.protocol, &endpoints, &relays, &addresses.local);
                (port, servers)
            }));
            self.conntrack_frontends.found(self.mode.take_previous_frontends());
            return Ok(report);
        }
        let pending = self.state.take_part(&mut self.pending);
        if pending.service_cidrs {
            self.mode.set_service_ranges(self.service_ranges().dropped);
        }
        let report = self.partial(&pending.service_ports).inspect_err(|_| self.pending.merge(pending.clone()))?;
        for name in pending.service_ports.iter().filter(|name| needs_conntrack_cleanup(name.protocol)) {
            let port = self.state.service_port(name);
            self.conntrack_frontends.note(name, port.as_deref().map(|port| (port, self.servers(name))));
        }
        Ok(report)
    }

    /// Where flows may lead, if they must be looked at: service ports changed that conntrack's entries do not follow. Asked
    /// again until [`FamilyProxy::conntrack_reconciled`] is called.
    pub fn stale_flows(&self) -> Option<StaleFlowFilter> {
        if self.conntrack_frontends.due().is_empty() {
            return None;
        }
        let ports = self.conntrack_frontends.ports_due().into_iter().filter_map(|name| self.state.service_port(name));
        let ports = ports.map(|port| {
            let servers = self.servers(&port.name);
            (port, servers)
        });
        let flows = StaleFlowFilter::new(ports, &self.node_plan().node_ports, &self.addresses.local);
        Some(flows.only(self.conntrack_frontends.due()))
    }

    fn servers(&self, name: &ServicePortName) -> BTreeSet<SocketAddr> {
        servers(name.protocol, &self.state.endpoints(name), &self.mode.relay_ports(name), &self.addresses.local)
    }

    /// Stale flows are gone.
    pub fn conntrack_reconciled(&mut self) {
        self.conntrack_frontends.judged();
    }

    fn partial(&mut self, pending: &BTreeSet<ServicePortName>) -> Result<Report, M::Error> {
        let changed: BTreeMap<ServicePortName, Option<ServicePortPlan>> =
            pending.iter().map(|name| (name.clone(), self.plan_one(name))).collect();
        for (name, plan) in &changed {
            self.tally.note(name, plan.as_ref());
            self.checks.note(name, plan.as_ref());
            self.published.note(name, plan.as_ref());
        }
        self.mode.partial(changed)
    }

    /// The plans of all service ports.
    pub fn plans(&self) -> Vec<ServicePortPlan> {
        self.planner().iter().collect()
    }

    fn planner(&self) -> Planner<'_> {
        let FamilyProxy { config, state, addresses, other_machines, .. } = self;
        Planner { config, state, addresses, other_machines }
    }

    fn full(&mut self) -> Result<Report, M::Error> {
        let node = self.node_plan();
        let planner = Planner {
            config: &self.config,
            state: &self.state,
            addresses: &self.addresses,
            other_machines: &self.other_machines,
        };
        self.checks.keep(|name| planner.state.service_port(name).is_some());
        (self.tally, self.published) = (Tally::default(), Published::default());
        let plans = Noted {
            planner,
            checks: RefCell::new(&mut self.checks),
            tally: RefCell::new(&mut self.tally),
            published: RefCell::new(&mut self.published),
        };
        self.mode.full(node, &self.addresses, &plans)
    }

    fn plan_one(&self, name: &ServicePortName) -> Option<ServicePortPlan> {
        self.planner().plan(name)
    }
}

/// Plans service ports from the state.
struct Planner<'a> {
    config: &'a Config,
    state: &'a State,
    addresses: &'a NodeAddresses,
    other_machines: &'a BTreeSet<IpAddr>,
}

impl Planner<'_> {
    fn plan(&self, name: &ServicePortName) -> Option<ServicePortPlan> {
        let port = self.state.service_port(name)?;
        let around = NodeContext {
            node_name: &self.config.node_name,
            node: self.state.node(),
            primary: primary_address(self.config, self.state.family(), self.state.node(), self.addresses),
            masquerade_all: self.config.masquerade_all,
            other_machines: self.other_machines,
        };
        Some(plan_service_port(&port, &self.state.endpoints(name), around))
    }

    fn iter(&self) -> impl Iterator<Item = ServicePortPlan> {
        self.state.service_ports().filter_map(|port| self.plan(&port.name))
    }
}

/// Plans of which health checks and the tally take note as they are made. To note the same again changes nothing.
struct Noted<'a> {
    planner: Planner<'a>,
    checks: RefCell<&'a mut Checks>,
    tally: RefCell<&'a mut Tally>,
    published: RefCell<&'a mut Published>,
}

impl Plans for Noted<'_> {
    fn iter(&self) -> Box<dyn Iterator<Item = ServicePortPlan> + '_> {
        Box::new(self.planner.iter().inspect(|plan| {
            self.checks.borrow_mut().note(&plan.name, Some(plan));
            self.tally.borrow_mut().note(&plan.name, Some(plan));
            self.published.borrow_mut().note(&plan.name, Some(plan));
        }))
    }
}
