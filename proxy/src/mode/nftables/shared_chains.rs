//! Shared chains: one per number of endpoints and protocol.

use std::fmt;

use nf_tables::field::KeyField;

use super::layout;
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
    /// Picks an endpoint, each with the same probability.
    Pick(u32),
    PickShortCircuit(u32),
    /// Masquerades sources other than pods (or all), and picks an endpoint.
    ClusterIp(u32),
    /// Masquerades, and picks an endpoint.
    External(u32),
    /// Policy Local: pods and the node get any endpoint, other sources a local one. Without local endpoints the filter
    /// drops other sources' packets.
    Local {
        local: u32,
        all: u32,
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
            ChainRole::Local { local: 0, all } => [None, other(ChainRole::PickShortCircuit(all))],
            ChainRole::Local { local, all } => [other(ChainRole::Pick(local)), other(ChainRole::PickShortCircuit(all))],
        };
        targets.into_iter().flatten().chain([self])
    }

    /// Returns the chains for one endpoint fewer and one more. They are made ahead, because a new chain with a lookup
    /// makes the kernel walk the whole map.
    pub fn neighbours(self) -> impl Iterator<Item = SharedChain> {
        let (fewer, more) = match self.role {
            ChainRole::Pick(count) => {
                (count.checked_sub(1).map(ChainRole::Pick), count.checked_add(1).map(ChainRole::Pick))
            }
            ChainRole::PickShortCircuit(count) => (
                count.checked_sub(1).map(ChainRole::PickShortCircuit),
                count.checked_add(1).map(ChainRole::PickShortCircuit),
            ),
            ChainRole::ClusterIp(_) | ChainRole::External(_) | ChainRole::Local { .. } => (None, None),
        };
        let both = [fewer, more].into_iter().flatten();
        let some = both.filter(|role| !matches!(role, ChainRole::Pick(0) | ChainRole::PickShortCircuit(0)));
        some.map(move |role| SharedChain { role, ..self })
    }

    pub fn chain(self, node: &NodePlan) -> Chain {
        let mut chain = self.unaltered_chain(node);
        mutants::nft_rules(&self.name(), &mut chain.rules);
        chain
    }

    fn unaltered_chain(self, node: &NodePlan) -> Chain {
        match self.role {
            ChainRole::Pick(count) => Chain::new("", vec![self.pick(count, self.maps().0)]),
            ChainRole::PickShortCircuit(count) => Chain::new("", vec![self.pick(count, self.maps().1)]),
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
                rules.extend((local > 0).then(|| self.goto(ChainRole::Pick(local))));
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

    fn pick(self, count: u32, map: &'static str) -> Rule {
        let address = (self.kind == FrontendKind::Address).then_some(KeyField::Destination);
        let key = address
            .into_iter()
            .chain([KeyField::Protocol, KeyField::DestinationPort, KeyField::Random(count)])
            .collect();
        Rule::new([Statement::Protocol(self.protocol), Statement::TranslateBy { key, map }])
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
