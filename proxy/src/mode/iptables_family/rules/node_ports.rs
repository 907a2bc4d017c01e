//! The addresses that accept node ports, as matches of rules: one rule for each scope.

use std::net::IpAddr;

use crate::model::Family;
use crate::plan::{NodePlan, NodePortScope};
use crate::ruleset::Rule;

/// Some of the node's addresses, as many as one rule can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    Local,
    /// All of them but the family's loopback range.
    LocalButLoopback(Family),
    /// This one.
    Address(IpAddr),
}

impl Scope {
    /// The scopes that are together what the plan says.
    pub fn all(node: &NodePlan) -> Vec<Scope> {
        match &node.node_ports {
            NodePortScope::EveryLocalAddress { loopback: true } => vec![Scope::Local],
            NodePortScope::EveryLocalAddress { loopback: false } => vec![Scope::LocalButLoopback(node.family)],
            NodePortScope::Addresses(addresses) => addresses.iter().copied().map(Scope::Address).collect(),
        }
    }

    /// Packets to it, among packets to anywhere.
    pub fn of_any(self, rule: Rule) -> Rule {
        match self {
            Scope::Local | Scope::LocalButLoopback(_) => self.of_local(rule.to_local_address()),
            Scope::Address(_) => self.of_local(rule),
        }
    }

    /// Packets to it, among packets to the node's own addresses.
    pub fn of_local(self, rule: Rule) -> Rule {
        match self {
            Scope::Local => rule,
            Scope::LocalButLoopback(family) => rule.destination_loopback(family, true),
            Scope::Address(address) => rule.destination(address),
        }
    }
}
