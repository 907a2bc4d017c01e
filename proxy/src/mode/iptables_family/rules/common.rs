//! Chains that every mode with iptables has, with the same rules.

use super::names;
use crate::mode::iptables_family::engine::render::FixedChain;
use crate::model::Family;
use crate::plan::NodePlan;
use crate::ruleset::Table;
use crate::ruleset::{ConnectionStates, Rule, Target};

/// `KUBE-MARK-MASQ`: marks a packet for masquerade.
pub fn mark_masq(node: &NodePlan) -> FixedChain {
    let mark = node.masquerade_mark;
    let rules = vec![Rule::new().target(Target::Mark { mark, mask: mark })];
    FixedChain::new(Table::Nat, names::MARK_MASQ, rules)
}

/// The end of `KUBE-POSTROUTING`: marked packets are masqueraded.
pub fn masquerade_marked(node: &NodePlan, random_fully: bool) -> Vec<Rule> {
    let mark = node.masquerade_mark;
    vec![
        Rule::new().marked(mark, true).target(Target::Return),
        // The mark is taken off again, so that a packet that comes by once more (IPsec, overlay) is not masqueraded twice.
        Rule::new().target(Target::Mark { mark, mask: 0 }),
        Rule::commented("kubernetes service traffic requiring SNAT").target(Target::Masquerade { random_fully }),
    ]
}

/// `KUBE-FORWARD`: what service traffic needs to be forwarded. `drop_invalid`: and what must not be.
pub fn forward(node: &NodePlan, drop_invalid: bool) -> FixedChain {
    let mut rules = Vec::new();
    if drop_invalid {
        rules.push(Rule::new().conntrack(ConnectionStates::INVALID).target(Target::Drop));
    }
    // Node-port traffic is forwarded even where the FORWARD policy is DROP.
    rules.push(
        Rule::commented("kubernetes forwarding rules").marked(node.masquerade_mark, false).target(Target::Accept),
    );
    let established = Rule::commented("kubernetes forwarding conntrack rule").conntrack(ConnectionStates::ESTABLISHED);
    rules.push(established.target(Target::Accept));
    FixedChain::new(Table::Filter, names::FORWARD, rules)
}

/// The canary chains, one in each table.
pub fn canaries() -> impl Iterator<Item = FixedChain> {
    Table::ALL.into_iter().map(|table| FixedChain::new(table, names::CANARY, Vec::new()))
}

/// `route_localnet` opens the loopback range to the network; this closes it again (CVE-2020-8558).
pub fn loopback_guard(family: Family) -> Rule {
    Rule::commented("block incoming localnet connections")
        .destination_loopback(family, false)
        .source_not_loopback(family)
        .conntrack_not(ConnectionStates::ESTABLISHED.or(ConnectionStates::DNAT))
        .target(Target::Drop)
}
