use super::objects::{LISTENERS, NODE_PORT_CONTAINER, NODE_PORT_HOST, PORTALS_CONTAINER, PORTALS_HOST};
use crate::mode::iptables_family::engine::render::FixedChain;
use crate::mode::iptables_family::rules::common;
use crate::mode::iptables_family::rules::filter;
use crate::plan::NodePlan;
use crate::ruleset::{ConnectionStates, Rule, RuleTarget};

pub fn fixed(node: &NodePlan) -> Vec<FixedChain> {
    let mut chains: Vec<FixedChain> = common::canaries().collect();
    // An earlier mode's connections are forwarded until they end.
    chains.push(common::forward(node, node.drop_invalid));
    chains.extend([PORTALS_CONTAINER, PORTALS_HOST, NODE_PORT_CONTAINER, NODE_PORT_HOST].map(FixedChain::shared));
    chains.push(FixedChain { head: established(), ..FixedChain::shared(LISTENERS) });
    chains.extend(filter::CHAINS.map(FixedChain::shared));
    chains
}

/// Returns rules by which established connections skip all listeners' rules.
fn established() -> Vec<Rule> {
    let led = Rule::commented("service traffic that was led here before").conntrack(ConnectionStates::DNAT);
    vec![
        led.conntrack(ConnectionStates::ESTABLISHED).target(RuleTarget::Accept),
        Rule::new().conntrack_not(ConnectionStates::NEW).target(RuleTarget::Return),
    ]
}
