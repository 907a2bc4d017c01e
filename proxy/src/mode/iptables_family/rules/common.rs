use super::names;
use crate::mode::iptables_family::engine::render::FixedChain;
use crate::model::Family;
use crate::plan::NodePlan;
use crate::ruleset::Table;
use crate::ruleset::{ConnectionStates, Rule, RuleTarget};

/// The comment of the rule in [`mark_masq`] that counts connections to node ports on the loopback range.
pub const LOOPBACK_COUNT: &str = "node ports on localhost";

pub fn mark_masq(node: &NodePlan) -> FixedChain {
    let mark = node.masquerade_mark;
    // Every connection to a node port from the node itself is marked, whatever the policy.
    let count = node.count_loopback.then(|| Rule::commented(LOOPBACK_COUNT).destination_loopback(node.family, false));
    let rules = count.into_iter().chain([Rule::new().target(RuleTarget::Mark { mark, mask: mark })]).collect();
    FixedChain::new(Table::Nat, names::MARK_MASQ, rules)
}

pub fn masquerade_marked(node: &NodePlan, random_fully: bool) -> Vec<Rule> {
    let mark = node.masquerade_mark;
    let mut rules = vec![
        Rule::new().marked(mark, true).target(RuleTarget::Return),
        // A packet that passes again (IPsec, overlay) must not be masqueraded twice.
        Rule::new().target(RuleTarget::Mark { mark, mask: 0 }),
    ];
    let kept = node.unmasqueraded.iter().map(|range| {
        let own = Rule::commented("destinations in noMasqueradeCIDRs")
            .source_not_loopback(node.family)
            .destination_range(*range);
        own.from_local_address().target(RuleTarget::Return)
    });
    rules.extend(kept);
    rules.push(Rule::commented("kubernetes service traffic requiring SNAT").target(masquerade(node, random_fully)));
    rules
}

pub fn masquerade(node: &NodePlan, random_fully: bool) -> RuleTarget {
    match node.masquerade_source {
        None => RuleTarget::Masquerade { random_fully },
        Some(to) => RuleTarget::Snat { to, random_fully },
    }
}

pub fn forward(node: &NodePlan, drop_invalid: bool) -> FixedChain {
    let mut rules = Vec::new();
    if drop_invalid {
        rules.push(Rule::new().conntrack(ConnectionStates::INVALID).target(RuleTarget::Drop));
    }
    // Accepts service traffic even if FORWARD's policy is DROP.
    rules.push(
        Rule::commented("kubernetes forwarding rules").marked(node.masquerade_mark, false).target(RuleTarget::Accept),
    );
    let established = Rule::commented("kubernetes forwarding conntrack rule").conntrack(ConnectionStates::ESTABLISHED);
    rules.push(established.target(RuleTarget::Accept));
    FixedChain::new(Table::Filter, names::FORWARD, rules)
}

pub fn canaries() -> impl Iterator<Item = FixedChain> {
    Table::ALL.into_iter().map(|table| FixedChain::new(table, names::CANARY, Vec::new()))
}

/// Drops other machines' packets to the loopback range, which `route_localnet` allows (CVE-2020-8558).
pub fn loopback_guard(family: Family) -> Rule {
    Rule::commented("block incoming localnet connections")
        .destination_loopback(family, false)
        .source_not_loopback(family)
        .conntrack_not(ConnectionStates::ESTABLISHED.or(ConnectionStates::DNAT))
        .target(RuleTarget::Drop)
}
