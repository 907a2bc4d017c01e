//! Shared chains: one per protocol and number of endpoints, or size of their table.

use std::fmt;

use super::layout;
use super::slots::SlotChoice;
use crate::model::Protocol;
use crate::mutants;
use crate::nftables::{AddressSide, Chain, Name, NftVerdict, Rule, Statement};
use crate::plan::{Masquerade, NodePlan};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    Address,
    NodePort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedChain {
    pub kind: FrontendKind,
    /// The protocol to match, as `dnat` to a port requires.
    pub protocol: Protocol,
    pub role: ChainRole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainRole {
    /// Picks an endpoint.
    Pick(SlotChoice),
    PickShortCircuit(SlotChoice),
    /// Masquerades sources other than pods (or all), and picks an endpoint.
    ClusterIp(SlotChoice),
    /// Masquerades, and picks an endpoint.
    External(SlotChoice),
    /// Policy Local: pods and the node get any endpoint, other sources a local one. Without local endpoints the filter
    /// drops other sources' packets.
    Local {
        local: SlotChoice,
        all: SlotChoice,
    },
}

impl fmt::Display for SharedChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.kind == FrontendKind::NodePort { "nodeport-" } else { "" };
        let protocol = self.protocol;
        match self.role {
            ChainRole::Pick(count) => write!(f, "{prefix}{protocol}-{count}"),
            ChainRole::PickShortCircuit(count) => write!(f, "{prefix}short-circuit-{protocol}-{count}"),
            ChainRole::ClusterIp(count) => write!(f, "{prefix}cluster-ip-{protocol}-{count}"),
            ChainRole::External(count) => write!(f, "{prefix}external-{protocol}-{count}"),
            ChainRole::Local { local, all } => write!(f, "{prefix}local-{protocol}-{local}-of-{all}"),
        }
    }
}

impl SharedChain {
    pub fn name(self) -> Name {
        self.to_string().into()
    }

    /// Returns the chain, after the chains to which it refers.
    pub fn with_targets(self) -> impl Iterator<Item = SharedChain> {
        let other = |role| Some(SharedChain { role, ..self });
        let targets = match self.role {
            ChainRole::Pick(_) | ChainRole::PickShortCircuit(_) => [None, None],
            ChainRole::ClusterIp(count) | ChainRole::External(count) => [other(ChainRole::Pick(count)), None],
            ChainRole::Local { local: SlotChoice::Random(0), all } => [None, other(ChainRole::PickShortCircuit(all))],
            ChainRole::Local { local, all } => [other(ChainRole::Pick(local)), other(ChainRole::PickShortCircuit(all))],
        };
        targets.into_iter().flatten().chain([self])
    }

    /// Returns the chains for one endpoint fewer and one more. They are made ahead, because a new chain with a lookup
    /// makes the kernel walk the whole map.
    pub fn neighbours(self) -> impl Iterator<Item = SharedChain> {
        let (role, count): (fn(SlotChoice) -> ChainRole, u32) = match self.role {
            ChainRole::Pick(SlotChoice::Random(count)) => (ChainRole::Pick, count),
            ChainRole::PickShortCircuit(SlotChoice::Random(count)) => (ChainRole::PickShortCircuit, count),
            // Tables seldom change their size.
            ChainRole::Pick(SlotChoice::Hash { .. }) | ChainRole::PickShortCircuit(SlotChoice::Hash { .. }) => {
                (ChainRole::Pick, 0)
            }
            ChainRole::ClusterIp(_) | ChainRole::External(_) | ChainRole::Local { .. } => (ChainRole::Pick, 0),
        };
        let both = [count.checked_sub(1), count.checked_add(1).filter(|_| count > 0)];
        let some = both.into_iter().flatten().filter(|count| *count > 0);
        some.map(move |count| SharedChain { role: role(SlotChoice::Random(count)), ..self })
    }

    pub fn chain(self, node: &NodePlan) -> Chain {
        let mut chain = self.unaltered_chain(node);
        mutants::nft_rules(&self.name(), &mut chain.rules);
        chain
    }

    fn unaltered_chain(self, node: &NodePlan) -> Chain {
        match self.role {
            ChainRole::Pick(choice) => Chain::new("", vec![self.pick(choice, self.maps().0)]),
            ChainRole::PickShortCircuit(choice) => Chain::new("", vec![self.pick(choice, self.maps().1)]),
            ChainRole::ClusterIp(count) => {
                let mut rules = cluster_ip_rules(node);
                rules.push(self.goto(ChainRole::Pick(count)));
                Chain::new("", rules)
            }
            ChainRole::External(count) => {
                let mark = Rule::new([Statement::Mark(node.masquerade_mark)]);
                Chain::new("", vec![mark, self.goto(ChainRole::Pick(count))])
            }
            ChainRole::Local { local, all } => {
                let mut rules = local_rules(node, self.name_of(ChainRole::PickShortCircuit(all)));
                rules.extend((local != SlotChoice::Random(0)).then(|| self.goto(ChainRole::Pick(local))));
                Chain::new("", rules)
            }
        }
    }

    fn maps(self) -> (&'static str, &'static str) {
        match self.kind {
            FrontendKind::Address => (layout::SERVICE_ENDPOINTS, layout::SHORT_CIRCUIT_ENDPOINTS),
            FrontendKind::NodePort => (layout::NODEPORT_ENDPOINTS, layout::NODEPORT_SHORT_CIRCUIT_ENDPOINTS),
        }
    }

    fn name_of(self, role: ChainRole) -> Name {
        SharedChain { role, ..self }.name()
    }

    fn goto(self, role: ChainRole) -> Rule {
        Rule::new([Statement::Verdict(NftVerdict::Goto(self.name_of(role)))])
    }

    fn pick(self, choice: SlotChoice, map: &'static str) -> Rule {
        let key = match self.kind {
            FrontendKind::Address => layout::FRONTEND,
            FrontendKind::NodePort => layout::NODEPORT,
        };
        Rule::new([Statement::Protocol(self.protocol), Statement::TranslateBy { key, number: choice.number(), map }])
    }
}

pub(super) fn cluster_ip_rules(node: &NodePlan) -> Vec<Rule> {
    let mark = Statement::Mark(node.masquerade_mark);
    let rule = match (node.internal_masquerade, &node.pods) {
        (Masquerade::Always, _) => Some(Rule::new([mark])),
        (Masquerade::NotPods, Some(pods)) => Some(Rule::new([layout::from_pods(pods, true), mark])),
        (Masquerade::NotPods, None) | (Masquerade::Never, _) => None,
    };
    rule.into_iter().collect()
}

/// Returns the rules for pods and the node. The node is masqueraded, because no pod could reply to a frontend address
/// as source.
pub(super) fn local_rules(node: &NodePlan, short_circuit: Name) -> Vec<Rule> {
    let goto = || Statement::Verdict(NftVerdict::Goto(short_circuit.clone()));
    let pods = node.pods.as_ref().map(|pods| Rule::new([layout::from_pods(pods, false), goto()]));
    let of_node = [Statement::Local(AddressSide::Source), Statement::Mark(node.masquerade_mark), goto()];
    pods.into_iter().chain([Rule::new(of_node)]).collect()
}
