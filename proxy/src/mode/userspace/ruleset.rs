//! The chains: what stands in them for the node, and the lines that service ports contribute.

use std::collections::BTreeMap;

use super::objects::ServiceObjects;
use crate::mode::rules::common;
use crate::mode::rules::filter::FilterChain;
use crate::mode::rules::names;
use crate::model::ServicePortName;
use crate::plan::NodePlan;
use crate::ruleset::Table;
use crate::ruleset::{ConnectionStates, Rule, Tables, Target};

/// Every service port's share, in order of name.
pub type ServiceObjectsByName = BTreeMap<ServicePortName, ServiceObjects>;

/// A chain that collects lines of service ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shared {
    /// nat `KUBE-PORTALS-CONTAINER`.
    PortalsContainer,
    /// nat `KUBE-PORTALS-HOST`.
    PortalsHost,
    /// nat `KUBE-NODEPORT-CONTAINER`.
    NodePortContainer,
    /// nat `KUBE-NODEPORT-HOST`.
    NodePortHost,
    /// filter `KUBE-NODEPORT-NON-LOCAL`.
    Listeners,
    /// One of filter's that iptables mode has too.
    Filter(FilterChain),
}

impl Shared {
    /// All of them.
    pub const ALL: [Shared; 9] = [
        Shared::PortalsContainer,
        Shared::PortalsHost,
        Shared::NodePortContainer,
        Shared::NodePortHost,
        Shared::Listeners,
        Shared::Filter(FilterChain::RefusedInternal),
        Shared::Filter(FilterChain::RefusedExternal),
        Shared::Filter(FilterChain::Firewall),
        Shared::Filter(FilterChain::HealthChecks),
    ];

    /// Its table and name.
    pub fn place(self) -> (Table, &'static str) {
        match self {
            Shared::PortalsContainer => (Table::Nat, names::PORTALS_CONTAINER),
            Shared::PortalsHost => (Table::Nat, names::PORTALS_HOST),
            Shared::NodePortContainer => (Table::Nat, names::NODEPORT_CONTAINER),
            Shared::NodePortHost => (Table::Nat, names::NODEPORT_HOST),
            Shared::Listeners => (Table::Filter, names::NODEPORT_NON_LOCAL),
            Shared::Filter(chain) => chain.place(),
        }
    }

    /// What a service port contributes to it.
    pub fn lines(self, objects: &ServiceObjects) -> &[Rule] {
        match self {
            Shared::PortalsContainer => &objects.portals_container,
            Shared::PortalsHost => &objects.portals_host,
            Shared::NodePortContainer => &objects.node_port_container,
            Shared::NodePortHost => &objects.node_port_host,
            Shared::Listeners => &objects.listeners,
            Shared::Filter(chain) => chain.lines(&objects.filter),
        }
    }

    /// The whole chain.
    pub fn assemble(self, objects: &ServiceObjectsByName) -> Vec<Rule> {
        let mut rules = if self == Shared::Listeners { established() } else { Vec::new() };
        rules.extend(objects.values().flat_map(|objects| self.lines(objects)).cloned());
        rules
    }
}

/// Packets of connections that were let in before meet two rules, not those of all listeners.
fn established() -> Vec<Rule> {
    let led = Rule::commented("service traffic that was led here before").conntrack(ConnectionStates::DNAT);
    vec![
        led.conntrack(ConnectionStates::ESTABLISHED).target(Target::Accept),
        Rule::new().conntrack_not(ConnectionStates::NEW).target(Target::Return),
    ]
}

/// Everything, put together.
pub fn assemble(objects: &ServiceObjectsByName, node: &NodePlan) -> Tables {
    let mut tables = Tables::new();
    // Connections that another mode has led are forwarded until they end.
    for (table, chain, rules) in common::canaries().chain([common::forward(node, node.drop_invalid)]) {
        tables.entry(table).or_default().insert(chain.to_owned(), rules);
    }
    for shared in Shared::ALL {
        let (table, chain) = shared.place();
        tables.entry(table).or_default().insert(chain.to_owned(), shared.assemble(objects));
    }
    tables
}
