//! Brings one family's virtual servers, addresses, sets and rules to what is wanted: the whole against what the kernel says
//! (full), or what changed against what was sent last (partial). A partial sync never touches a rule.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::IpvsError;
use super::desired::{DesiredState, DirtyKeys};
use super::drain::Drains;
use super::jumps;
use super::kernel::Kernel;
use super::objects::{NodeContext, render};
use super::observed::ObservedState;
use super::rules;
use super::steps::{Steps, note_server};
use crate::config::{Ipvs, NodeAddresses};
use crate::kernel::ipvs::ServerKey;
use crate::mode::Mode;
use crate::mode::rules::difference::{difference, ensure_jumps, remove_other_modes};
use crate::mode::rules::guard::Guard;
use crate::mode::rules::names;
use crate::mode::rules::report::{Report, RuleCounts};
use crate::model::{Protocol, ServicePortName};
use crate::plan::flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::{Saved, Table};

/// What an operator decides about this mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The scheduler of all virtual servers.
    pub scheduler: String,
    /// Virtual servers and addresses in these ranges are left alone, unless they are wanted.
    pub exclude: Vec<IpNet>,
    /// How long a backend that leaves may keep its connections.
    pub drain_limit: Duration,
}

impl Settings {
    /// What the configuration says.
    pub fn of(config: &Ipvs) -> Settings {
        Settings {
            scheduler: config.scheduler.clone(),
            exclude: config.exclude.clone(),
            drain_limit: config.drain_limit,
        }
    }
}

/// One family's state.
pub struct Syncer<K> {
    kernel: K,
    settings: Settings,
    guard: Guard,
    /// What was sent last; `None` while the kernel's state is not known.
    sent: Option<Sent>,
    drains: Drains,
    found: BTreeSet<(Protocol, Frontend)>,
}

struct Sent {
    around: NodeContext,
    desired: DesiredState,
    observed: ObservedState,
    total: RuleCounts,
}

impl<K: Kernel> Syncer<K> {
    /// Knows nothing of the kernel's state yet.
    pub fn new(kernel: K, settings: Settings) -> Syncer<K> {
        Syncer {
            kernel,
            settings,
            guard: Guard::default(),
            sent: None,
            drains: Drains::default(),
            found: BTreeSet::new(),
        }
    }

    /// The kernel adapter, for tests.
    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    fn rules(&mut self, node: &NodePlan, saved: &Saved) -> Result<Report, IpvsError> {
        let wanted = rules::assemble(node, self.kernel.random_fully());
        let total =
            RuleCounts::of(wanted.iter().flat_map(|(table, chains)| chains.values().map(|rules| (*table, rules))));
        let jumps: Vec<_> = jumps::ALL.iter().collect();
        let ours: BTreeSet<(Table, String)> =
            wanted.iter().flat_map(|(table, chains)| chains.keys().map(|chain| (*table, chain.clone()))).collect();
        self.guard.expect(&wanted, 0, jumps.iter().copied());
        let made = ensure_jumps(&mut self.kernel, jumps.iter().copied(), saved)?;
        let transaction = difference(wanted, saved);
        let mut report = Report { total, jumps: made, ..Report::of(&transaction) };
        self.kernel.commit(&transaction)?;
        let is_wanted = |table: Table, chain: &str| ours.contains(&(table, chain.to_owned()));
        let (gone, chains) = remove_other_modes(&mut self.kernel, &jumps, is_wanted, saved)?;
        report.jumps += gone;
        report.removed_chains += chains;
        self.guard.mended(&report);
        Ok(report)
    }
}

impl<K: Kernel> Mode for Syncer<K> {
    type Error = IpvsError;

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

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        let around = |addresses| NodeContext::new(node.clone(), addresses, &self.settings.scheduler);
        around(before) != around(after)
    }

    /// Tables, virtual servers and addresses: each can be flushed by one command.
    fn detect_flush(&mut self) -> Result<Option<String>, IpvsError> {
        let Some(sent) = &self.sent else { return Ok(None) };
        if let Some(lost) = self.guard.lost(&mut self.kernel)? {
            return Ok(Some(lost));
        }
        let servers = self.kernel.servers(sent.around.node.family)?;
        let addresses = self.kernel.addresses(sent.around.node.family)?;
        let server = sent.observed.servers.keys().find(|key| !servers.contains_key(key));
        let address = sent.observed.addresses.keys().find(|address| !addresses.contains_key(address));
        let server = server.map(|key| format!("virtual server {key}"));
        Ok(server.or_else(|| address.map(|address| format!("address {address}"))))
    }

    fn full(
        &mut self,
        node: NodePlan,
        addresses: &NodeAddresses,
        plans: &[ServicePortPlan],
    ) -> Result<Report, IpvsError> {
        self.require_full_sync();
        let family = node.family;
        let around = NodeContext::new(node, addresses, &self.settings.scheduler);
        let mut desired = DesiredState::default();
        let mut dirty = DirtyKeys::default();
        for plan in plans {
            desired.replace(&plan.name, Some(render(plan, &around)), &mut dirty);
        }
        drop(dirty);
        let mut observed = ObservedState::read(&mut self.kernel, family, &desired, &self.settings.exclude)?;
        self.found.extend(observed.conntrack_frontends());
        let steps = Steps::full(&desired, &observed);
        let saved = self.kernel.read(&Table::ALL)?;
        steps.prepare(&mut self.kernel, family)?;
        // Rules of iptables mode keep leading packets until ours stand in their place, and to addresses that are on the
        // device already. Without such rules ours must come first: what reaches IPVS must be masqueraded.
        let from_other_mode = is_led_by_iptables_mode(&saved);
        if from_other_mode {
            steps.bind(&mut self.kernel)?;
        }
        let mut report = self.rules(&around.node, &saved)?;
        if !from_other_mode {
            steps.bind(&mut self.kernel)?;
        }
        steps.remove(&mut self.kernel, family)?;
        steps.note(&mut observed);
        self.drains.keep(&observed);
        let keys: Vec<ServerKey> = observed.servers.keys().copied().collect();
        self.drains.note(&keys, &desired, &observed);
        report.full = true;
        report.changes = steps.len();
        self.sent = Some(Sent { around, desired, observed, total: report.total });
        Ok(report)
    }

    fn partial(&mut self, changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>) -> Result<Report, IpvsError> {
        // Doubt until everything has been taken.
        let Some(mut sent) = self.sent.take() else { return Ok(Report::default()) };
        let family = sent.around.node.family;
        let mut dirty = DirtyKeys::default();
        for (name, plan) in changed {
            let objects = plan.map(|plan| render(&plan, &sent.around));
            sent.desired.replace(&name, objects, &mut dirty);
        }
        let steps = Steps::of(&dirty, &sent.desired, &sent.observed);
        steps.prepare(&mut self.kernel, family)?;
        steps.bind(&mut self.kernel)?;
        steps.remove(&mut self.kernel, family)?;
        steps.note(&mut sent.observed);
        self.drains.note(&dirty.servers, &sent.desired, &sent.observed);
        let report = Report { changes: steps.len(), total: sent.total, ..Report::default() };
        self.sent = Some(sent);
        Ok(report)
    }

    fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, IpvsError> {
        let Some(sent) = &mut self.sent else { return Ok(None) };
        let keys = self.drains.servers();
        if keys.is_empty() {
            return Ok(None);
        }
        let states = self.kernel.destinations(&keys)?;
        let over = self.drains.over(&states, now, self.settings.drain_limit);
        self.kernel.change_servers(&over)?;
        over.iter().for_each(|change| note_server(change, &mut sent.observed));
        self.drains.gone(&over);
        Ok(self.drains.next(now))
    }
}

/// Whether rules of iptables mode translate destinations now.
fn is_led_by_iptables_mode(saved: &Saved) -> bool {
    let nat = saved.tables.get(&Table::Nat);
    nat.is_some_and(|nat| nat.chains.keys().any(|chain| chain.starts_with(names::SVC) || chain.starts_with(names::SVL)))
}
