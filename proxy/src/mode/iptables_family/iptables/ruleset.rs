use super::names;
use super::objects::{NODE_PORTS, SERVICES};
use crate::mode::iptables_family::engine::render::FixedChain;
use crate::mode::iptables_family::rules::common::{self, loopback_guard};
use crate::mode::iptables_family::rules::filter;
use crate::mode::iptables_family::rules::node_ports::NodePortMatch;
use crate::plan::NodePlan;
use crate::ruleset::{Rule, Table};

pub fn fixed(node: &NodePlan, random_fully: bool) -> Vec<FixedChain> {
    let mut chains: Vec<FixedChain> = common::canaries().collect();
    let postrouting = common::masquerade_marked(node, random_fully);
    chains.push(FixedChain::new(Table::Nat, names::POSTROUTING, postrouting));
    chains.push(common::mark_masq(node));
    chains.push(common::forward(node, node.drop_invalid));
    if node.guard_loopback {
        chains.push(FixedChain::new(Table::Filter, names::FIREWALL, vec![loopback_guard(node.family)]));
    }
    chains.extend(filter::CHAINS.map(FixedChain::shared));
    chains.push(FixedChain { tail: node_port_jumps(node), ..FixedChain::shared(SERVICES) });
    chains.push(FixedChain::shared(NODE_PORTS));
    chains
}

fn node_port_jumps(node: &NodePlan) -> Vec<Rule> {
    let rule = || Rule::commented("kubernetes service nodeports; NOTE: this must be the last rule in this chain");
    NodePortMatch::all(node).into_iter().map(|scope| scope.of_any(rule()).jump(names::NODE_PORTS)).collect()
}
