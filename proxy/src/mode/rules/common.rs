//! Chains that every mode with iptables has, with the same rules.

use super::names;
use super::rule::Rule;
use crate::kernel::iptables::Table;
use crate::model::Family;
use crate::plan::NodePlan;

/// A chain of a table, with its rules.
pub type Chain = (Table, &'static str, Vec<String>);

/// `KUBE-MARK-MASQ`: marks a packet for masquerade.
pub fn mark_masq(node: &NodePlan) -> Chain {
    let mark = node.masquerade_mark;
    let rules = vec![Rule::new().target(format_args!("MARK --set-xmark {mark:#x}/{mark:#x}"))];
    (Table::Nat, names::MARK_MASQ, rules)
}

/// The end of `KUBE-POSTROUTING`: marked packets are masqueraded.
pub fn masquerade_marked(node: &NodePlan, random_fully: bool) -> Vec<String> {
    let mark = node.masquerade_mark;
    let random = if random_fully { " --random-fully" } else { "" };
    vec![
        Rule::new().marked(mark, true).target("RETURN"),
        // The mark is taken off again, so that a packet that comes by once more (IPsec, overlay) is not masqueraded twice.
        Rule::new().target(format_args!("MARK --set-xmark {mark:#x}/0x0")),
        Rule::commented("kubernetes service traffic requiring SNAT").target(format_args!("MASQUERADE{random}")),
    ]
}

/// `KUBE-FORWARD`: what service traffic needs to be forwarded. `drop_invalid`: and what must not be.
pub fn forward(node: &NodePlan, drop_invalid: bool) -> Chain {
    let mut rules = Vec::new();
    if drop_invalid {
        rules.push(Rule::new().conntrack("--ctstate INVALID").target("DROP"));
    }
    // Node-port traffic is forwarded even where the FORWARD policy is DROP.
    rules.push(Rule::commented("kubernetes forwarding rules").marked(node.masquerade_mark, false).target("ACCEPT"));
    let established =
        Rule::commented("kubernetes forwarding conntrack rule").conntrack("--ctstate RELATED,ESTABLISHED");
    rules.push(established.target("ACCEPT"));
    (Table::Filter, names::FORWARD, rules)
}

/// The canary chains, one in each table.
pub fn canaries() -> impl Iterator<Item = Chain> {
    Table::ALL.into_iter().map(|table| (table, names::CANARY, Vec::new()))
}

/// `route_localnet` opens the loopback range to the network; this closes it again (CVE-2020-8558).
pub fn loopback_guard(family: Family) -> String {
    Rule::commented("block incoming localnet connections")
        .destination_loopback(family, false)
        .source_not_loopback(family)
        .conntrack("! --ctstate RELATED,ESTABLISHED,DNAT")
        .target("DROP")
}
