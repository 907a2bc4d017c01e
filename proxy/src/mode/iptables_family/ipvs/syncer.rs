//! This mode before the engine: virtual servers, addresses and sets. The rules are the same however many services there are, so a
//! partial sync never touches one.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use super::IpvsError;
use super::desired::{DesiredState, DirtyKeys};
use super::drain::Drains;
use super::jumps;
use super::kernel::IpvsKernel;
use super::objects::{NodeContext, render};
use super::observed::ObservedState;
use super::rules;
use super::steps::{Steps, note_server};
use crate::config::{self, NodeAddresses};
use crate::kernel::ipvs::ServerKey;
use crate::mode::Plans;
use crate::mode::iptables_family::engine::Engine;
use crate::mode::iptables_family::engine::render::{FixedChain, FollowUp, Renderer, ServiceRules};
use crate::mode::iptables_family::rules::jumps::Jump;
use crate::mode::iptables_family::rules::names;
use crate::model::{Protocol, ServicePortName};
use crate::plan::flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::{Saved, Table};

/// One family's virtual servers, addresses, sets and rules.
pub type Syncer<K> = Engine<Ipvs, K>;

/// What there is besides rules.
pub struct Ipvs {
    settings: config::Ipvs,
    desired: DesiredState,
    /// What was rendered anew since the kernel was brought there last.
    dirty: DirtyKeys,
    /// What the kernel has, as of the last sync.
    observed: ObservedState,
    /// Of the sync that is under way.
    steps: Steps,
    drains: Drains,
    previous_frontends: BTreeSet<(Protocol, Frontend)>,
    /// Addresses of the sync that is under way are on the device.
    is_bound: bool,
    /// A full sync is under way.
    is_full: bool,
}

impl<K: IpvsKernel> Syncer<K> {
    /// Knows nothing of the kernel's state yet.
    pub fn new(kernel: K, settings: config::Ipvs) -> Syncer<K> {
        let mode = Ipvs {
            settings,
            desired: DesiredState::default(),
            dirty: DirtyKeys::default(),
            observed: ObservedState::default(),
            steps: Steps::default(),
            drains: Drains::default(),
            previous_frontends: BTreeSet::new(),
            is_bound: false,
            is_full: false,
        };
        Engine::with(kernel, mode)
    }
}

impl<K: IpvsKernel> Renderer<K> for Ipvs {
    type Error = IpvsError;
    type Node = NodeContext;

    fn node(&mut self, node: NodePlan, addresses: &NodeAddresses, _: &dyn Plans) -> NodeContext {
        NodeContext::new(node, addresses, &self.settings.scheduler)
    }

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        let around = |addresses| NodeContext::new(node.clone(), addresses, &self.settings.scheduler);
        // Taken away by another program, or by the kernel with a family that is disabled.
        let is_there =
            |address: &IpAddr| after.of_services.as_ref().is_none_or(|all| all.binary_search(address).is_ok());
        around(before) != around(after) || !self.observed.addresses.keys().all(is_there)
    }

    fn jumps(_: &NodeContext) -> Vec<&'static Jump> {
        jumps::ALL.iter().collect()
    }

    fn fixed(&self, node: &NodeContext, random_fully: bool) -> Vec<FixedChain> {
        rules::fixed(&node.node, random_fully)
    }

    fn render(&mut self, node: &NodeContext, name: &ServicePortName, plan: Option<&ServicePortPlan>) -> ServiceRules {
        self.desired.replace(name, plan.map(|plan| render(plan, node)), &mut self.dirty);
        ServiceRules::default()
    }

    fn begin(&mut self, _: &Saved) {
        self.desired = DesiredState::default();
        self.is_full = true;
    }

    /// Rules of iptables mode keep leading packets until ours stand in their place, and to addresses that are on the device
    /// already. Without such rules ours must come first: what reaches IPVS must be masqueraded.
    fn before_rules(&mut self, kernel: &mut K, node: &NodeContext, saved: Option<&Saved>) -> Result<(), IpvsError> {
        let (family, dirty) = (node.node.family, std::mem::take(&mut self.dirty));
        self.steps = match saved {
            None => Steps::of(&dirty, &self.desired, &self.observed),
            Some(_) => {
                self.observed = ObservedState::read(kernel, family, &self.desired, &self.settings.exclude)?;
                self.previous_frontends.extend(self.observed.conntrack_frontends());
                Steps::full(&self.desired, &self.observed)
            }
        };
        self.dirty.servers = dirty.servers;
        self.steps.prepare(kernel, family)?;
        self.is_bound = saved.is_none_or(is_led_by_iptables_mode);
        if self.is_bound {
            self.steps.bind(kernel)?;
        }
        Ok(())
    }

    fn after_rules(&mut self, kernel: &mut K, node: &NodeContext) -> Result<usize, IpvsError> {
        if !self.is_bound {
            self.steps.bind(kernel)?;
        }
        self.steps.remove(kernel, node.node.family)?;
        self.steps.note(&mut self.observed);
        let dirty = std::mem::take(&mut self.dirty);
        if std::mem::take(&mut self.is_full) {
            self.drains.keep(&self.observed);
            let keys: Vec<ServerKey> = self.observed.servers.keys().copied().collect();
            self.drains.note(&keys, &self.desired, &self.observed);
        } else {
            self.drains.note(&dirty.servers, &self.desired, &self.observed);
        }
        Ok(std::mem::take(&mut self.steps).len())
    }

    /// Virtual servers and addresses: each can be flushed by one command.
    fn lost(&mut self, kernel: &mut K, node: &NodeContext) -> Result<Option<String>, IpvsError> {
        let servers = kernel.servers().servers(node.node.family)?;
        let addresses = kernel.device().addresses(node.node.family)?;
        let server = self.observed.servers.keys().find(|key| !servers.contains_key(key));
        let address = self.observed.addresses.keys().find(|address| !addresses.contains_key(address));
        let server = server.map(|key| format!("virtual server {key}"));
        Ok(server.or_else(|| address.map(|address| format!("address {address}"))))
    }

    fn follow_up(&mut self, kernel: &mut K, now: Instant) -> Result<FollowUp, IpvsError> {
        let keys = self.drains.servers();
        if keys.is_empty() {
            return Ok(FollowUp::default());
        }
        let states = kernel.servers().destinations(&keys)?;
        let over = self.drains.over(&states, now, self.settings.drain_limit);
        kernel.servers().change_servers(&over)?;
        over.iter().for_each(|change| note_server(change, &mut self.observed));
        self.drains.gone(&over);
        Ok(FollowUp { next: self.drains.next(now), full: false })
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        std::mem::take(&mut self.previous_frontends)
    }
}

/// Whether rules of iptables mode translate destinations now.
fn is_led_by_iptables_mode(saved: &Saved) -> bool {
    let nat = saved.tables.get(&Table::Nat);
    nat.is_some_and(|nat| nat.chains.keys().any(|chain| chain.starts_with(names::SVC) || chain.starts_with(names::SVL)))
}
