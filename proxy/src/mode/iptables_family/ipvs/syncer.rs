//! IPVS mode's rules do not depend on services, so partial syncs write none.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use super::IpvsError;
use super::desired::{DesiredState, DirtyKeys};
use super::drain::DrainingBackends;
use super::jumps;
use super::kernel::IpvsKernel;
use super::objects::{IpvsContext, render};
use super::observed::ObservedState;
use super::rules;
use super::steps::{Steps, apply_server_change};
use crate::config::{self, NodeAddresses};
use crate::kernel::ipvs::ServerKey;
use crate::mode::Plans;
use crate::mode::iptables_family::engine::Engine;
use crate::mode::iptables_family::engine::render::{FixedChain, FollowUp, Renderer, ServiceRules};
use crate::mode::iptables_family::rules::jumps::Jump;
use crate::mode::iptables_family::rules::names;
use crate::model::{Protocol, ServicePortName};
use crate::plan::stale_flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::{SavedTables, Table};

pub type IpvsSyncer<K> = Engine<IpvsRenderer, K>;

pub struct IpvsRenderer {
    settings: config::Ipvs,
    desired: DesiredState,
    /// Keys rendered since the last sync.
    dirty: DirtyKeys,
    observed: ObservedState,
    steps: Steps,
    drains: DrainingBackends,
    previous_frontends: BTreeSet<(Protocol, Frontend)>,
    is_bound: bool,
    is_full: bool,
}

impl<K: IpvsKernel> IpvsSyncer<K> {
    pub fn new(kernel: K, settings: config::Ipvs) -> IpvsSyncer<K> {
        let mode = IpvsRenderer {
            settings,
            desired: DesiredState::default(),
            dirty: DirtyKeys::default(),
            observed: ObservedState::default(),
            steps: Steps::default(),
            drains: DrainingBackends::default(),
            previous_frontends: BTreeSet::new(),
            is_bound: false,
            is_full: false,
        };
        Engine::with(kernel, mode)
    }
}

impl<K: IpvsKernel> Renderer<K> for IpvsRenderer {
    type Error = IpvsError;
    type Node = IpvsContext;

    fn node(&mut self, node: NodePlan, addresses: &NodeAddresses, _: &dyn Plans) -> IpvsContext {
        IpvsContext::new(node, addresses, &self.settings.scheduler)
    }

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        let context = |addresses| IpvsContext::new(node.clone(), addresses, &self.settings.scheduler);
        // Another program, or the kernel without IPv6, may have removed a bound address.
        let is_there =
            |address: &IpAddr| after.of_services.as_ref().is_none_or(|all| all.binary_search(address).is_ok());
        context(before) != context(after) || !self.observed.addresses.keys().all(is_there)
    }

    fn jumps(_: &IpvsContext) -> Vec<&'static Jump> {
        jumps::ALL.iter().collect()
    }

    fn fixed(&self, node: &IpvsContext, random_fully: bool) -> Vec<FixedChain> {
        rules::fixed(&node.node, random_fully)
    }

    fn render(&mut self, node: &IpvsContext, name: &ServicePortName, plan: Option<&ServicePortPlan>) -> ServiceRules {
        self.desired.replace(name, plan.map(|plan| render(plan, node)), &mut self.dirty);
        ServiceRules::default()
    }

    fn begin(&mut self, _: &SavedTables) {
        self.desired = DesiredState::default();
        self.is_full = true;
    }

    /// Binds addresses before this mode's rules if iptables mode's rules exist, which translate packets until then.
    /// Other full syncs bind them after the rules, since packets that reach IPVS must be masqueraded.
    fn before_rules(
        &mut self,
        kernel: &mut K,
        node: &IpvsContext,
        saved: Option<&SavedTables>,
    ) -> Result<(), IpvsError> {
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

    fn after_rules(&mut self, kernel: &mut K, node: &IpvsContext) -> Result<usize, IpvsError> {
        if !self.is_bound {
            self.steps.bind(kernel)?;
        }
        self.steps.remove(kernel, node.node.family)?;
        self.steps.apply_to(&mut self.observed);
        let dirty = std::mem::take(&mut self.dirty);
        if std::mem::take(&mut self.is_full) {
            self.drains.keep(&self.observed);
            let keys: Vec<ServerKey> = self.observed.servers.keys().copied().collect();
            self.drains.record(&keys, &self.desired, &self.observed);
        } else {
            self.drains.record(&dirty.servers, &self.desired, &self.observed);
        }
        Ok(std::mem::take(&mut self.steps).len())
    }

    /// Checks virtual servers and addresses: one command can flush either.
    fn detect_flush(&mut self, kernel: &mut K, node: &IpvsContext) -> Result<Option<String>, IpvsError> {
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
        let finished = self.drains.finished(&states, now, self.settings.drain_limit);
        kernel.servers().change_servers(&finished)?;
        finished.iter().for_each(|change| apply_server_change(change, &mut self.observed));
        self.drains.remove(&finished);
        Ok(FollowUp { next: self.drains.next(now), full: false })
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        std::mem::take(&mut self.previous_frontends)
    }
}

fn is_led_by_iptables_mode(saved: &SavedTables) -> bool {
    let nat = saved.tables.get(&Table::Nat);
    nat.is_some_and(|nat| nat.chains.keys().any(|chain| chain.starts_with(names::SVC) || chain.starts_with(names::SVL)))
}
