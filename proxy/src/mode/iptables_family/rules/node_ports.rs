use std::net::IpAddr;

use crate::model::Family;
use crate::plan::{NodePlan, NodePortScope};
use crate::ruleset::Rule;

/// Addresses with node ports that one rule can match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodePortMatch {
    Local,
    LocalButLoopback(Family),
    Address(IpAddr),
}

impl NodePortMatch {
    pub fn all(node: &NodePlan) -> Vec<NodePortMatch> {
        match &node.node_ports {
            NodePortScope::EveryLocalAddress { loopback: true } => vec![NodePortMatch::Local],
            NodePortScope::EveryLocalAddress { loopback: false } => vec![NodePortMatch::LocalButLoopback(node.family)],
            NodePortScope::Addresses(addresses) => addresses.iter().copied().map(NodePortMatch::Address).collect(),
        }
    }

    /// Restricts a rule that sees packets to any address.
    pub fn of_any(self, rule: Rule) -> Rule {
        match self {
            NodePortMatch::Local | NodePortMatch::LocalButLoopback(_) => self.of_local(rule.to_local_address()),
            NodePortMatch::Address(_) => self.of_local(rule),
        }
    }

    /// Restricts a rule that sees only packets to the node's addresses.
    pub fn of_local(self, rule: Rule) -> Rule {
        match self {
            NodePortMatch::Local => rule,
            NodePortMatch::LocalButLoopback(family) => rule.destination_loopback(family, true),
            NodePortMatch::Address(address) => rule.destination(address),
        }
    }
}
