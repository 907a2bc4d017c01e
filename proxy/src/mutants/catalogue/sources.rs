//! Which sources are admitted, and which source address an endpoint sees.

use ipnet::IpNet;

use crate::config::Mode;
use crate::model::Protocol;
use crate::mutants::{Hook, Mutant};
use crate::plan::{
    AllowedSources, BackendSet, ExternalFrontends, FrontendVerdict, Masquerade, ServicePortPlan, ShortCircuit,
};
use crate::ruleset::{Rule, RuleTarget};

const MARK_MASQ: &str = "KUBE-MARK-MASQ";
/// Modes in which each hairpin is an element of a set.
const SETS: &[Mode] = &[Mode::Nftables];
const CHAINS: &[Mode] = &[Mode::Iptables];

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "sources-relayed-from-elsewhere",
        "gives relayed connections a source that is not the node's",
        "localhost-nodeport-nftables",
        Hook::TablesBeside(
            "table inet mutant { chain post { type nat hook postrouting priority 90;
               fib saddr type local ip daddr 10.244.0.0/16 tcp dport 80 snat ip to 198.51.100.99; }; }",
        ),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "sources-local-masqueraded",
        "masquerades packets from outside under externalTrafficPolicy Local",
        "local-policy",
        Hook::Plan(|_, plan| change_external(plan, |external| external.action.masquerade = Masquerade::Always)),
    ),
    Mutant::new(
        "sources-cluster-kept",
        "keeps the source of packets from outside under externalTrafficPolicy Cluster",
        "nodeport",
        Hook::Plan(|_, plan| change_external(plan, |external| external.action.masquerade = Masquerade::Never)),
    )
    .only(&[Mode::Iptables, Mode::Ipvs]),
    Mutant::new(
        "sources-own-node-kept",
        "keeps the source of the node's own packets under externalTrafficPolicy Local",
        "short-circuit",
        Hook::Plan(|_, plan| change_short_circuit(plan, |short| short.node.masquerade = Masquerade::Never)),
    )
    .only(CHAINS),
    Mutant::new(
        "sources-short-circuit-masqueraded",
        "masquerades pods' packets to external addresses under externalTrafficPolicy Local",
        "short-circuit",
        Hook::Rules(|chain, rules| {
            if chain.starts_with("KUBE-EXT-") {
                mark_before(rules, "pod traffic for");
            }
        }),
    )
    .only(CHAINS),
    Mutant::new(
        "sources-masquerade-all-not-under-internal-local",
        "ignores masqueradeAll under internalTrafficPolicy Local",
        "masquerade-all",
        Hook::Plan(|_, plan| {
            if is_internal_local(plan) {
                change_internal(plan, Masquerade::NotPods);
            }
        }),
    )
    .only(CHAINS),
    Mutant::new(
        "sources-masquerade-all-outside",
        "masquerades packets from outside under externalTrafficPolicy Local if masqueradeAll is set",
        "masquerade-all",
        Hook::Plan(|_, plan| {
            if masquerades_all(plan) {
                change_external(plan, |external| external.action.masquerade = Masquerade::Always);
            }
        }),
    ),
    Mutant::new(
        "sources-off-cluster-kept-under-internal-local",
        "keeps the source of packets from outside to a cluster IP under internalTrafficPolicy Local",
        "internal-policy",
        Hook::Plan(|_, plan| {
            if is_internal_local(plan) {
                change_internal(plan, Masquerade::Never);
            }
        }),
    )
    .only(CHAINS),
    Mutant::new(
        "sources-off-cluster-kept-for-udp",
        "keeps the source of datagrams from outside to a cluster IP",
        "udp",
        Hook::Plan(|_, plan| {
            if plan.name.protocol == Protocol::Udp {
                change_internal(plan, Masquerade::Never);
            }
        }),
    )
    .only(CHAINS),
    Mutant::new(
        "sources-pods-masqueraded",
        "masquerades pods' packets to a cluster IP",
        "clusterip",
        Hook::Plan(|_, plan| change_internal(plan, Masquerade::Always)),
    )
    .only(CHAINS),
    Mutant::new(
        "sources-hairpin-kept-for-udp",
        "keeps the source of a pod that reaches itself by UDP",
        "hairpin-point-to-point",
        Hook::Rules(|chain, rules| {
            if chain.starts_with("KUBE-SEP-") && rules.iter().any(|rule| rule.protocol == Some(Protocol::Udp)) {
                unmark(rules);
            }
        }),
    )
    .only(CHAINS),
    Mutant::new(
        "sources-hairpin-kept-without-node",
        "keeps the source of an endpoint without nodeName that reaches itself",
        "endpoint-without-node",
        Hook::Plan(|input, plan| {
            let unplaced = |ip| input.endpoints.iter().any(|e| e.unplaced && e.address.ip() == ip);
            plan.hairpins.retain(|ip| !unplaced(*ip));
        }),
    )
    .only(SETS),
    Mutant::new(
        "sources-hairpin-kept-under-short-circuit",
        "keeps the source of another node's pod that reaches itself by this node",
        "hairpin-point-to-point",
        Hook::Plan(|input, plan| {
            let local = |ip| input.endpoints.iter().any(|e| e.local && e.address.ip() == ip);
            plan.hairpins.retain(|ip| local(*ip));
        }),
    )
    .only(SETS),
    Mutant::new(
        "sources-ranges-widened",
        "admits the whole /24 of each range of loadBalancerSourceRanges",
        "source-ranges",
        Hook::Plan(|_, plan| change_ranges(plan, |allowed| allowed.ranges.iter_mut().for_each(widen))),
    ),
    Mutant::new(
        "sources-annotated-ranges-widened",
        "admits the whole /24 of each range of the annotation svcproxy/source-ranges",
        "annotated-source-ranges",
        Hook::ServicePort(|_, port| port.annotated_ranges.iter_mut().flatten().for_each(widen)),
    ),
    Mutant::new(
        "sources-ranges-for-external-ips",
        "applies loadBalancerSourceRanges to external IPs, too",
        "source-ranges",
        Hook::Plan(|_, plan| {
            change_external(plan, |external| {
                if external.allowed_sources.is_some() {
                    external.load_balancer_ips.append(&mut external.external_ips);
                }
            });
        }),
    ),
    Mutant::new(
        "sources-ranges-for-node-ports",
        "applies loadBalancerSourceRanges to node ports, too",
        "source-ranges",
        Hook::Rules(|chain, rules| {
            if chain == "KUBE-NODEPORTS" {
                through_firewall(rules);
            }
        }),
    )
    .only(CHAINS),
    Mutant::new(
        "sources-ranges-shut-out-own-node",
        "shuts out a listed node whose source is the load balancer's address",
        "source-ranges-own-node",
        Hook::Plan(|_, plan| change_ranges(plan, |allowed| allowed.own_addresses = false)),
    )
    .only(&[Mode::Iptables, Mode::Nftables, Mode::Ipvs]),
    Mutant::new(
        "sources-ranges-admit-own-node",
        "admits a node whose source is the load balancer's address, although it is not listed",
        "source-ranges-own-node",
        Hook::Plan(|_, plan| change_ranges(plan, |allowed| allowed.own_addresses = true)),
    )
    .only(&[Mode::Iptables, Mode::Nftables, Mode::Ipvs]),
    Mutant::new(
        "sources-other-machines-bound",
        "binds a Service's address that is another node's own",
        "node-as-load-balancer",
        Hook::Plan(|_, plan| change_external(plan, |external| external.of_other_machines.clear())),
    )
    .only(&[Mode::Ipvs]),
];

fn change_external(plan: &mut ServicePortPlan, turn: impl Fn(&mut ExternalFrontends)) {
    plan.external.iter_mut().for_each(turn);
}

fn change_short_circuit(plan: &mut ServicePortPlan, turn: impl Fn(&mut ShortCircuit)) {
    change_external(plan, |external| external.short_circuit.iter_mut().for_each(&turn));
}

fn change_ranges(plan: &mut ServicePortPlan, turn: impl Fn(&mut AllowedSources)) {
    change_external(plan, |external| external.allowed_sources.as_deref_mut().into_iter().for_each(&turn));
}

fn change_internal(plan: &mut ServicePortPlan, masquerade: Masquerade) {
    plan.internal.iter_mut().for_each(|internal| internal.action.masquerade = masquerade);
}

fn is_internal_local(plan: &ServicePortPlan) -> bool {
    let local = FrontendVerdict::Deliver(BackendSet::Local);
    plan.internal.as_ref().is_some_and(|internal| internal.action.verdict == local)
}

fn masquerades_all(plan: &ServicePortPlan) -> bool {
    plan.internal.as_ref().is_some_and(|internal| internal.action.masquerade == Masquerade::Always)
}

fn widen(range: &mut IpNet) {
    if let Ok(wide) = IpNet::new(range.addr(), range.prefix_len().min(24)) {
        *range = wide.trunc();
    }
}

fn unmark(rules: &mut Vec<Rule>) {
    rules.retain(|rule| rule.target.chain() != Some(MARK_MASQ));
}

/// Adds a rule that marks the packets of the rule with this comment.
fn mark_before(rules: &mut Vec<Rule>, comment: &str) {
    let found = rules.iter().position(|rule| rule.to_string().contains(comment));
    if let Some(index) = found
        && let Some(rule) = rules.get(index).cloned()
    {
        rules.insert(index, Rule { target: RuleTarget::Jump(MARK_MASQ.into()), ..rule });
    }
}

/// Replaces jumps to `KUBE-EXT-` by jumps to `KUBE-FW-`, which only Services with source ranges have.
fn through_firewall(rules: &mut [Rule]) {
    for rule in rules {
        if let Some(suffix) = rule.target.chain().and_then(|chain| chain.strip_prefix("KUBE-EXT-")) {
            rule.target = RuleTarget::Jump(format!("KUBE-FW-{suffix}").into());
        }
    }
}
