//! The chains that are there whatever the services.

use super::objects::{LISTENERS, NODE_PORT_CONTAINER, NODE_PORT_HOST, PORTALS_CONTAINER, PORTALS_HOST};
use crate::mode::iptables_family::engine::render::FixedChain;
use crate::mode::iptables_family::rules::common;
use crate::mode::iptables_family::rules::filter;
use crate::plan::NodePlan;
use crate::ruleset::{ConnectionStates, Rule, Target};

/// All of them.
pub fn fixed(node: &NodePlan) -> Vec<FixedChain> {
    let mut chains: Vec<FixedChain> = common::canaries().collect();
    // Connections that another mode has led are forwarded until they end.
    chains.push(common::forward(node, node.drop_invalid));
    chains.extend([PORTALS_CONTAINER, PORTALS_HOST, NODE_PORT_CONTAINER, NODE_PORT_HOST].map(FixedChain::shared));
    chains.push(FixedChain { head: established(), ..FixedChain::shared(LISTENERS) });
    chains.extend(filter::PLACES.map(FixedChain::shared));
    chains
}

/// Packets of connections that were let in before meet two rules, not those of all listeners.
fn established() -> Vec<Rule> {
    let led = Rule::commented("service traffic that was led here before").conntrack(ConnectionStates::DNAT);
    vec![
        led.conntrack(ConnectionStates::ESTABLISHED).target(Target::Accept),
        Rule::new().conntrack_not(ConnectionStates::NEW).target(Target::Return),
    ]
}
