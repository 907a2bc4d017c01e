//! Chains that service ports have in common: one for each number of endpoints and each protocol, not for each service port.

use std::fmt;

use nf_tables::field::Field;

use super::layout;
use crate::model::Protocol;
use crate::nftables::{Chain, Name, Rule, Side, Statement, Verdict};
use crate::plan::{Masquerade, NodePlan};

/// What kind of frontend leads there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    /// A service's addresses.
    Address,
    /// Node ports.
    NodePort,
}

/// A chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shared {
    /// What leads there.
    pub at: At,
    /// Of which protocol; `dnat` with a port asks for one.
    pub protocol: Protocol,
    /// What it does.
    pub does: Does,
}

/// What such a chain does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Does {
    /// Leads to one of so many endpoints, each with the same probability.
    Pick(u32),
    /// The same, of those that a short circuit has.
    PickShortCircuit(u32),
    /// Has the source masqueraded of what is not from a pod (or of everything), and picks one of so many.
    ClusterIp(u32),
    /// Has the source masqueraded, and picks one of so many.
    External(u32),
    /// Policy Local: pods and the node itself get any, all others those of this node, and nothing happens where there is none: the
    /// filter drops it.
    Local {
        /// Endpoints on this node.
        local: u32,
        /// Endpoints anywhere.
        all: u32,
    },
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.at == At::NodePort { "nodeport-" } else { "" };
        let protocol = self.protocol;
        match self.does {
            Does::Pick(count) => write!(f, "{prefix}{protocol}-{count}"),
            Does::PickShortCircuit(count) => write!(f, "{prefix}short-circuit-{protocol}-{count}"),
            Does::ClusterIp(count) => write!(f, "{prefix}cluster-ip-{protocol}-{count}"),
            Does::External(count) => write!(f, "{prefix}external-{protocol}-{count}"),
            Does::Local { local, all } => write!(f, "{prefix}local-{protocol}-{local}-of-{all}"),
        }
    }
}

impl Shared {
    /// Its name.
    pub fn name(self) -> Name {
        self.to_string().into()
    }

    /// The chain, and those that it leads to, which come first.
    pub fn with_targets(self) -> impl Iterator<Item = Shared> {
        let other = |does| Some(Shared { does, ..self });
        let targets = match self.does {
            Does::Pick(_) | Does::PickShortCircuit(_) => [None, None],
            Does::ClusterIp(count) | Does::External(count) => [other(Does::Pick(count)), None],
            Does::Local { local: 0, all } => [None, other(Does::PickShortCircuit(all))],
            Does::Local { local, all } => [other(Does::Pick(local)), other(Does::PickShortCircuit(all))],
        };
        targets.into_iter().flatten().chain([self])
    }

    /// Where it looks a number up in a map: the same for one endpoint less and for one more. The kernel walks over all elements of a map when
    /// a chain comes that looks there, so these chains are made before they are needed.
    pub fn neighbours(self) -> impl Iterator<Item = Shared> {
        let (fewer, more) = match self.does {
            Does::Pick(count) => (count.checked_sub(1).map(Does::Pick), count.checked_add(1).map(Does::Pick)),
            Does::PickShortCircuit(count) => {
                (count.checked_sub(1).map(Does::PickShortCircuit), count.checked_add(1).map(Does::PickShortCircuit))
            }
            Does::ClusterIp(_) | Does::External(_) | Does::Local { .. } => (None, None),
        };
        let both = [fewer, more].into_iter().flatten();
        let some = both.filter(|does| !matches!(does, Does::Pick(0) | Does::PickShortCircuit(0)));
        some.map(move |does| Shared { does, ..self })
    }

    /// What is in it.
    pub fn chain(self, node: &NodePlan) -> Chain {
        match self.does {
            Does::Pick(count) => Chain::new("", vec![self.pick(count, self.maps().0)]),
            Does::PickShortCircuit(count) => Chain::new("", vec![self.pick(count, self.maps().1)]),
            Does::ClusterIp(count) => {
                let mut rules = cluster_ip_rules(node);
                rules.push(self.goto(Does::Pick(count)));
                Chain::new("", rules)
            }
            Does::External(count) => {
                let mark = Rule::new([Statement::Mark(node.masquerade_mark)]);
                Chain::new("", vec![mark, self.goto(Does::Pick(count))])
            }
            Does::Local { local, all } => {
                let mut rules = local_rules(node, self.name_of(Does::PickShortCircuit(all)));
                rules.extend((local > 0).then(|| self.goto(Does::Pick(local))));
                Chain::new("", rules)
            }
        }
    }

    fn maps(self) -> (&'static str, &'static str) {
        match self.at {
            At::Address => (layout::SERVICE_ENDPOINTS, layout::SHORT_CIRCUIT_ENDPOINTS),
            At::NodePort => (layout::NODEPORT_ENDPOINTS, layout::NODEPORT_SHORT_CIRCUIT_ENDPOINTS),
        }
    }

    fn name_of(self, does: Does) -> Name {
        Shared { does, ..self }.name()
    }

    fn goto(self, does: Does) -> Rule {
        Rule::new([Statement::Verdict(Verdict::Goto(self.name_of(does)))])
    }

    fn pick(self, count: u32, map: &'static str) -> Rule {
        let address = (self.at == At::Address).then_some(Field::Destination);
        let key = address.into_iter().chain([Field::Protocol, Field::DestinationPort, Field::Random(count)]).collect();
        Rule::new([Statement::Protocol(self.protocol), Statement::TranslateBy { key, map }])
    }
}

/// What is masqueraded on its way to a cluster IP.
pub(super) fn cluster_ip_rules(node: &NodePlan) -> Vec<Rule> {
    let mark = Statement::Mark(node.masquerade_mark);
    let rule = match (node.internal_masquerade, &node.pods) {
        (Masquerade::Always, _) => Some(Rule::new([mark])),
        (Masquerade::NotPods, Some(pods)) => Some(Rule::new([layout::from_pods(pods, true), mark])),
        (Masquerade::NotPods, None) | (Masquerade::Never, _) => None,
    };
    rule.into_iter().collect()
}

/// What policy Local does not hold: pods, and the node itself, whose source may be the very address that it connects to, which no pod could
/// answer.
pub(super) fn local_rules(node: &NodePlan, short_circuit: Name) -> Vec<Rule> {
    let goto = || Statement::Verdict(Verdict::Goto(short_circuit.clone()));
    let pods = node.pods.as_ref().map(|pods| Rule::new([layout::from_pods(pods, false), goto()]));
    let of_node = [Statement::Local(Side::Source), Statement::Mark(node.masquerade_mark), goto()];
    pods.into_iter().chain([Rule::new(of_node)]).collect()
}
