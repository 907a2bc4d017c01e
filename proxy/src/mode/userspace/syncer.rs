//! Brings one family's listeners and rules to what is wanted.
//!
//! A listener is there before the first rule that leads to it, and goes after the last one. Where backends change and nobody
//! begins or ends to be refused, no rule changes: the relays alone are told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use tracing::error;

use super::found::listening_ports;
use super::objects::{NodeContext, ServiceObjects, render};
use super::ports::{Assigned, Ports};
use super::ruleset::{ServiceObjectsByName, Shared, assemble};
use super::{jumps, served, sets};
use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::mode::Mode;
use crate::mode::rules::difference::{difference, ensure_jumps, remove_other_modes};
use crate::mode::rules::found::conntrack_frontends;
use crate::mode::rules::guard::Guard;
use crate::mode::rules::report::{Report, RuleCounts};
use crate::model::{Family, Protocol, ServicePortName};
use crate::plan::flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::port_range::PortRange;
use crate::relay::{Backends, ListenError, Listener, Relays};
use crate::ruleset::{Table, Tables, Transaction};

/// When a port is looked for again that could not be had.
const AGAIN: Duration = Duration::from_secs(10);

/// One family's listeners and tables.
pub struct Syncer<K, R> {
    kernel: K,
    relays: R,
    range: PortRange,
    ports: Ports,
    active: BTreeSet<ServicePortName>,
    guard: Guard,
    /// What was sent last; `None` while the kernel's state is not known.
    sent: Option<Sent>,
    found: BTreeSet<(Protocol, Frontend)>,
    /// The rules of a predecessor have been read.
    adopted: bool,
    /// An interface without an address has been seen.
    bare: bool,
    /// When service ports are tried again that have no listener.
    again: Option<Instant>,
}

struct Sent {
    around: NodeContext,
    objects: ServiceObjectsByName,
    total: RuleCounts,
    /// What failed restores would have written, or did.
    unsure: BTreeSet<Shared>,
    failures: u32,
}

impl<K: PacketFilter, R: Relays> Syncer<K, R> {
    /// Knows nothing of the kernel's state yet.
    pub fn new(kernel: K, relays: R, range: PortRange) -> Syncer<K, R> {
        Syncer {
            kernel,
            relays,
            range,
            ports: Ports::new(range),
            active: BTreeSet::new(),
            guard: Guard::default(),
            sent: None,
            found: BTreeSet::new(),
            adopted: false,
            bare: false,
            again: None,
        }
    }

    /// The kernel adapter, for tests.
    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// The listeners, for tests.
    pub fn relays(&mut self) -> &mut R {
        &mut self.relays
    }

    /// Which ports are listened on.
    pub fn listening(&self) -> impl Iterator<Item = (&Listener, u16)> {
        self.ports.listeners().filter_map(|listener| Some((listener, self.ports.get(listener)?)))
    }

    /// Everything that the tables should hold, with the listeners that it needs.
    pub fn wanted(&mut self, node: NodePlan, addresses: &NodeAddresses, plans: &[ServicePortPlan]) -> Tables {
        let around = self.node_context(node, addresses);
        assemble(&self.objects(plans, &around), &around.node)
    }

    /// An interface without an address is remembered: on such a node another one will come with the next pod.
    fn node_context(&mut self, node: NodePlan, addresses: &NodeAddresses) -> NodeContext {
        self.bare |= addresses.bare.contains(&node.family);
        let host = host(&node, addresses);
        // From elsewhere nothing can be led to the loopback range.
        NodeContext { host, redirect: !self.bare || host.is_loopback(), node }
    }

    fn objects(&mut self, plans: &[ServicePortPlan], around: &NodeContext) -> ServiceObjectsByName {
        plans.iter().map(|plan| (plan.name.clone(), render(plan, self.prepare(plan), around))).collect()
    }

    /// Leads a service port's connections to its backends, and sees to it that it has its listeners. What rules no longer lead
    /// to stays until [`Syncer::close_unwanted`].
    fn prepare(&mut self, plan: &ServicePortPlan) -> Assigned {
        let plan = served(plan);
        let sets = sets(&plan);
        if !sets.is_empty() || self.active.contains(&plan.name) {
            self.relays.set_backends(&plan.name, Some(Backends::of(&plan)));
            self.active.insert(plan.name.clone());
        }
        for set in sets {
            let listener = Listener { name: plan.name.clone(), set };
            if self.ports.get(&listener).is_none() {
                self.open(listener);
            }
        }
        self.ports.of(&plan.name)
    }

    fn open(&mut self, listener: Listener) {
        let name = &listener.name;
        for port in self.ports.candidates(&listener) {
            match self.relays.listen(&listener, port) {
                Ok(()) => return self.ports.assign(listener, port),
                Err(ListenError::Taken(_)) => {}
                Err(error @ ListenError::Refused { .. }) => {
                    error!(service = %name, %error, "this service is refused until a port can be had");
                    self.again = Some(Instant::now() + AGAIN);
                    return;
                }
            }
        }
        let range = self.range;
        error!(service = %name, "no port of {range} is free (portRange, --proxy-port-range): this service is refused until there is one");
        self.again = Some(Instant::now() + AGAIN);
    }

    /// Ends listeners of these service ports that no rule leads to any more.
    fn close_unwanted(&mut self, plans: &BTreeMap<ServicePortName, Option<ServicePortPlan>>) {
        for (name, plan) in plans {
            let wanted = plan.as_ref().map(|plan| sets(&served(plan))).unwrap_or_default();
            let has = [crate::plan::BackendSet::Cluster, crate::plan::BackendSet::Local];
            for set in has.into_iter().filter(|set| !wanted.contains(set)) {
                let listener = Listener { name: name.clone(), set };
                if self.ports.get(&listener).is_some() {
                    self.relays.close(&listener);
                    self.ports.release(&listener);
                }
            }
            if wanted.is_empty() && self.active.remove(name) {
                self.relays.set_backends(name, None);
            }
        }
    }

    fn send(&mut self, transaction: &Transaction) -> Result<Report, IptablesError> {
        self.kernel.commit(transaction)?;
        Ok(Report::of(transaction))
    }
}

impl<K: PacketFilter, R: Relays> Mode for Syncer<K, R> {
    type Error = IptablesError;

    fn needs_full(&self) -> bool {
        self.sent.is_none()
    }

    fn require_full_sync(&mut self) {
        self.sent = None;
        self.guard.require_full_sync();
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        std::mem::take(&mut self.found)
    }

    fn relay_ports(&self, name: &ServicePortName) -> Vec<u16> {
        self.ports.of(name).all().collect()
    }

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        let becomes_bare = !self.bare && after.bare.contains(&node.family);
        becomes_bare || host(node, before) != host(node, after)
    }

    fn detect_flush(&mut self) -> Result<Option<String>, IptablesError> {
        // After a restore that failed either state may be there.
        if self.sent.as_ref().is_none_or(|sent| sent.failures > 0) {
            return Ok(None);
        }
        self.guard.lost(&mut self.kernel)
    }

    fn full(
        &mut self,
        node: NodePlan,
        addresses: &NodeAddresses,
        plans: &[ServicePortPlan],
    ) -> Result<Report, IptablesError> {
        self.require_full_sync();
        self.again = None;
        let saved = self.kernel.read(&Table::ALL)?;
        self.found.extend(saved.tables.get(&Table::Nat).into_iter().flat_map(conntrack_frontends));
        if !self.adopted {
            self.ports.adopt(saved.tables.get(&Table::Filter).map(listening_ports).unwrap_or_default());
            self.adopted = true;
        }
        let around = self.node_context(node, addresses);
        let objects = self.objects(plans, &around);
        let wanted = assemble(&objects, &around.node);
        let total =
            RuleCounts::of(wanted.iter().flat_map(|(table, chains)| chains.values().map(|rules| (*table, rules))));
        let jumps: Vec<_> = jumps::wanted().collect();
        let ours: BTreeSet<(Table, String)> =
            wanted.iter().flat_map(|(table, chains)| chains.keys().map(|chain| (*table, chain.clone()))).collect();
        self.guard.expect(&wanted, 0, jumps.iter().copied());
        let made = ensure_jumps(&mut self.kernel, jumps.iter().copied(), &saved)?;
        let mut report = self.send(&difference(wanted, &saved))?;
        self.ports.forget_found();
        let is_wanted = |table: Table, chain: &str| ours.contains(&(table, chain.to_owned()));
        let (gone, chains) = remove_other_modes(&mut self.kernel, &jumps, is_wanted, &saved)?;
        let unplanned = self.active.iter().filter(|name| !objects.contains_key(*name)).map(|name| (name.clone(), None));
        let planned = plans.iter().map(|plan| (plan.name.clone(), Some(plan.clone())));
        let all = planned.chain(unplanned).collect();
        self.close_unwanted(&all);
        report.full = true;
        report.jumps = made + gone;
        report.removed_chains += chains;
        report.total = total;
        self.guard.mended(&report);
        self.sent = Some(Sent { around, objects, total, unsure: BTreeSet::new(), failures: 0 });
        Ok(report)
    }

    fn partial(
        &mut self,
        changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>,
    ) -> Result<Report, IptablesError> {
        let Some(mut sent) = self.sent.take() else { return Ok(Report::default()) };
        let nothing = ServiceObjects::default();
        for (name, plan) in &changed {
            let after = plan.as_ref().map(|plan| render(plan, self.prepare(plan), &sent.around));
            let before = sent.objects.remove(name);
            let (old, new) = (before.as_ref().unwrap_or(&nothing), after.as_ref().unwrap_or(&nothing));
            for shared in Shared::ALL.into_iter().filter(|shared| shared.lines(old) != shared.lines(new)) {
                sent.total.replace(shared.place().0, shared.lines(old).len(), shared.lines(new).len());
                sent.unsure.insert(shared);
            }
            sent.objects.extend(after.map(|after| (name.clone(), after)));
        }
        let mut transaction = Transaction::default();
        for shared in &sent.unsure {
            let (table, chain) = shared.place();
            let rules = shared.assemble(&sent.objects);
            self.guard.rewritten(table, chain, &rules);
            transaction.table(table).write.insert(chain.to_owned(), rules);
        }
        let mut report = match self.send(&transaction) {
            Ok(report) => report,
            Err(error) => {
                // Chains are written as a whole: the same can be sent again, whatever this restore has done.
                sent.failures += 1;
                self.sent = Some(sent).filter(|sent| sent.failures < 2 || !error.is_refusal());
                return Err(error);
            }
        };
        sent.unsure.clear();
        sent.failures = 0;
        self.close_unwanted(&changed);
        // What the relays were told.
        report.changes = changed.len();
        report.total = sent.total;
        self.sent = Some(sent);
        Ok(report)
    }

    /// Service ports without a listener are tried again by a full sync.
    fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, IptablesError> {
        if self.again.is_some_and(|again| again <= now) {
            self.again = None;
            self.sent = None;
        }
        Ok(self.again)
    }
}

/// The address that the node's own traffic is led to: its primary one, if it really has it.
fn host(node: &NodePlan, addresses: &NodeAddresses) -> IpAddr {
    let primary = node.primary.filter(|address| addresses.local.contains(address));
    primary.unwrap_or(match node.family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    })
}
