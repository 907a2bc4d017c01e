//! Resets open connections to addresses that no Service has any more. Their conntrack entries are deleted
//! ([`crate::plan::ended_flows`]), and no rule translates their packets, which nothing else would answer. A lost node
//! port needs no rule: the node's kernel answers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::mode::iptables_family::engine::render::SharedRule;
use crate::mode::iptables_family::rules::filter;
use crate::model::{FlowFate, Frontend, Protocol, ServicePortName};
use crate::plan::ServicePortPlan;

/// The most addresses that are remembered, because every new connection that no Service translates passes their rules.
const MOST: usize = 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct LostFrontends {
    /// Addresses of service ports with a fate, as of their last rules.
    present: BTreeMap<ServicePortName, BTreeSet<SocketAddr>>,
    /// Lost addresses with the time at which their rules end.
    lost: BTreeMap<ServicePortName, BTreeMap<SocketAddr, Instant>>,
    /// Service ports that the current full sync has not rendered yet.
    unrendered: BTreeSet<ServicePortName>,
}

impl LostFrontends {
    /// Starts a full sync.
    pub(super) fn begin(&mut self, now: Instant) {
        self.lost.values_mut().for_each(|lost| lost.retain(|_, end| *end > now));
        self.lost.retain(|_, lost| !lost.is_empty());
        self.unrendered = self.present.keys().chain(self.lost.keys()).cloned().collect();
    }

    /// Returns service ports without a plan whose addresses a full sync must render.
    pub(super) fn take_unrendered(&mut self) -> BTreeSet<ServicePortName> {
        std::mem::take(&mut self.unrendered)
    }

    /// Records a service port's rules. Returns the rules of its lost addresses, which last for `memory`.
    pub(super) fn render(
        &mut self,
        name: &ServicePortName,
        plan: Option<&ServicePortPlan>,
        memory: Duration,
        now: Instant,
    ) -> Vec<SharedRule> {
        if name.protocol != Protocol::Tcp {
            return Vec::new();
        }
        self.unrendered.remove(name);
        let before = self.present.remove(name).unwrap_or_default();
        let after: BTreeSet<SocketAddr> = plan.into_iter().flat_map(addresses).collect();
        let others: usize = self.lost.values().map(BTreeMap::len).sum();
        let mut lost = self.lost.remove(name).unwrap_or_default();
        lost.retain(|address, _| !after.contains(address));
        if plan.is_some_and(|plan| plan.flow_fate == FlowFate::Keep) {
            return Vec::new();
        }
        for address in before.difference(&after).take(MOST.saturating_sub(others)) {
            lost.entry(*address).or_insert(now + memory);
        }
        if !after.is_empty() {
            self.present.insert(name.clone(), after);
        }
        let rules = lost.keys().map(|address| filter::lost_frontend(name, *address)).collect();
        if !lost.is_empty() {
            self.lost.insert(name.clone(), lost);
        }
        rules
    }
}

fn addresses(plan: &ServicePortPlan) -> impl Iterator<Item = SocketAddr> {
    plan.frontends().filter_map(|frontend| match frontend {
        Frontend::Address(address) => Some(address),
        Frontend::NodePort(_) => None,
    })
}
