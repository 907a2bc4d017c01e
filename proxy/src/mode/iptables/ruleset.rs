//! The shared chains: what stands in them for the node, and the lines that service ports contribute.

use std::collections::BTreeMap;

use super::names;
use super::objects::ServiceObjects;
use crate::mode::rules::common::{self, Chain, loopback_guard};
use crate::mode::rules::filter::FilterChain;
use crate::mode::rules::node_ports::Scope;
use crate::model::ServicePortName;
use crate::plan::NodePlan;
use crate::ruleset::Rule;
use crate::ruleset::Table;
use crate::ruleset::Tables;

/// Every service port's share, in order of name.
pub type ServiceObjectsByName = BTreeMap<ServicePortName, ServiceObjects>;

/// A chain that collects lines of many service ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shared {
    /// nat `KUBE-SERVICES`.
    Services,
    /// nat `KUBE-NODEPORTS`.
    NodePorts,
    /// One of filter's.
    Filter(FilterChain),
}

impl Shared {
    /// All of them.
    pub const ALL: [Shared; 6] = [
        Shared::Services,
        Shared::NodePorts,
        Shared::Filter(FilterChain::RefusedInternal),
        Shared::Filter(FilterChain::RefusedExternal),
        Shared::Filter(FilterChain::Firewall),
        Shared::Filter(FilterChain::HealthChecks),
    ];

    /// Its table and name.
    pub fn place(self) -> (Table, &'static str) {
        match self {
            Shared::Services => (Table::Nat, names::SERVICES),
            Shared::NodePorts => (Table::Nat, names::NODE_PORTS),
            Shared::Filter(chain) => chain.place(),
        }
    }

    /// What a service port contributes to it.
    pub fn lines(self, objects: &ServiceObjects) -> &[Rule] {
        match self {
            Shared::Services => &objects.services,
            Shared::NodePorts => &objects.node_ports,
            Shared::Filter(chain) => chain.lines(&objects.filter),
        }
    }

    /// The whole chain.
    pub fn assemble(self, objects: &ServiceObjectsByName, node: &NodePlan) -> Vec<Rule> {
        let mut rules: Vec<Rule> = objects.values().flat_map(|f| self.lines(f)).cloned().collect();
        if self == Shared::Services {
            rules.extend(node_port_jumps(node));
        }
        rules
    }
}

/// Everything, put together.
pub fn assemble(objects: &ServiceObjectsByName, node: &NodePlan, random_fully: bool) -> Tables {
    let mut tables = Tables::new();
    for (table, chain, rules) in constant_chains(node, random_fully) {
        tables.entry(table).or_default().insert(chain.to_owned(), rules);
    }
    for shared in Shared::ALL {
        let (table, chain) = shared.place();
        tables.entry(table).or_default().insert(chain.to_owned(), shared.assemble(objects, node));
    }
    let nat = tables.entry(Table::Nat).or_default();
    for objects in objects.values() {
        nat.extend(objects.chains.iter().map(|(chain, rules)| (chain.clone(), rules.clone())));
    }
    tables
}

/// The chains that depend on the node alone.
fn constant_chains(node: &NodePlan, random_fully: bool) -> Vec<Chain> {
    let mut chains: Vec<Chain> = common::canaries().collect();
    chains.push((Table::Nat, names::POSTROUTING, common::masquerade_marked(node, random_fully)));
    chains.push(common::mark_masq(node));
    chains.push(common::forward(node, node.drop_invalid));
    if node.guard_loopback {
        chains.push((Table::Filter, names::FIREWALL, vec![loopback_guard(node.family)]));
    }
    chains
}

fn node_port_jumps(node: &NodePlan) -> Vec<Rule> {
    let rule = || Rule::commented("kubernetes service nodeports; NOTE: this must be the last rule in this chain");
    Scope::all(node).into_iter().map(|scope| scope.of_any(rule()).jump(names::NODE_PORTS)).collect()
}
