//! Mutants of iptables mode.

use svclab_sim::protocol::Protocol;
use svclab_sim::rules::TableName::{Filter, Nat};
use svclab_sim::rules::matches::{AddressType, AddressTypes, RecentAction, Statistic, THRESHOLD_ONE};
use svclab_sim::rules::target::RejectWith;
use svclab_sim::rules::{InterfacePattern, Match, Rule, RuleTarget, Rules};

use super::tools::{ChainsOf, any, jumps, says, shift_port, single, strip, threshold, wider};
use super::{Expectation, Mutant, Mutation};

const SERVICES: ChainsOf = ChainsOf(Nat, "KUBE-SERVICES");
const NODE_PORTS: ChainsOf = ChainsOf(Nat, "KUBE-NODEPORTS");
const CLUSTER: ChainsOf = ChainsOf(Nat, "KUBE-SVC-");
const LOCAL: ChainsOf = ChainsOf(Nat, "KUBE-SVL-");
const EXTERNAL: ChainsOf = ChainsOf(Nat, "KUBE-EXT-");
const FIREWALL: ChainsOf = ChainsOf(Nat, "KUBE-FW-");
const ENDPOINT: ChainsOf = ChainsOf(Nat, "KUBE-SEP-");
const MARK: ChainsOf = ChainsOf(Nat, "KUBE-MARK-MASQ");
const POSTROUTING: ChainsOf = ChainsOf(Nat, "KUBE-POSTROUTING");
const REFUSED: ChainsOf = ChainsOf(Filter, "KUBE-SERVICES");
const REFUSED_EXTERNAL: ChainsOf = ChainsOf(Filter, "KUBE-EXTERNAL-SERVICES");
const PROXY_FIREWALL: ChainsOf = ChainsOf(Filter, "KUBE-PROXY-FIREWALL");
const FORWARD: ChainsOf = ChainsOf(Filter, "KUBE-FORWARD");
const LOOPBACK_GUARD: ChainsOf = ChainsOf(Filter, "KUBE-FIREWALL");

const fn broken(name: &'static str, apply: fn(&mut Rules) -> bool) -> Mutant {
    Mutant { name, change: Mutation::Rules(apply), expectation: Expectation::Broken }
}

const fn equivalent(name: &'static str, reason: &'static str, apply: fn(&mut Rules) -> bool) -> Mutant {
    Mutant { name, change: Mutation::Rules(apply), expectation: Expectation::Equivalent(reason) }
}

fn is_dnat(target: &RuleTarget) -> bool {
    matches!(target, RuleTarget::Dnat(_))
}

fn marks(rule: &Rule) -> bool {
    jumps(rule, "KUBE-MARK-MASQ")
}

fn is_random(one: &Match) -> bool {
    matches!(one, Match::Statistic(_))
}

fn to_node_ports(rule: &Rule) -> bool {
    jumps(rule, "KUBE-NODEPORTS")
}

fn not_node_ports(rule: &Rule) -> bool {
    !to_node_ports(rule)
}

fn is_reject(rule: &Rule) -> bool {
    matches!(rule.target, RuleTarget::Reject(_))
}

fn is_drop(rule: &Rule) -> bool {
    rule.target == RuleTarget::Drop
}

fn recent(rule: &mut Rule, action: RecentAction, how: impl Fn(&mut svclab_sim::rules::matches::Recent)) {
    for one in &mut rule.matches {
        if let Match::Recent(recent) = one
            && recent.action == action
        {
            how(recent);
        }
    }
}

fn checks(rule: &Rule) -> bool {
    rule.matches.iter().any(|one| matches!(one, Match::Recent(recent) if recent.action == RecentAction::Check))
}

fn udp_for_tcp(rule: &mut Rule) {
    let swap = |protocol: Protocol| if protocol == Protocol::TCP { Protocol::UDP } else { Protocol::TCP };
    if let Some(test) = &mut rule.header.protocol {
        test.is = swap(test.is);
    }
    for one in &mut rule.matches {
        if let Match::Ports(ports) = one {
            ports.protocol = swap(ports.protocol);
        }
    }
}

fn set_port(rule: &mut Rule, how: impl Fn(u16) -> Option<u16>) {
    if let RuleTarget::Dnat(range) = &mut rule.target
        && let Some((port, _)) = range.ports
    {
        range.ports = how(port).map(|port| (port, port));
    }
}

fn chain_instead(rule: &mut Rule, from: &str, to: &str) {
    if let RuleTarget::Jump(chain) = &mut rule.target
        && let Some(rest) = chain.strip_prefix(from)
    {
        *chain = format!("{to}{rest}");
    }
}

fn sibling(rules: &Rules, rule: &Rule, from: &str, to: &str) -> bool {
    let RuleTarget::Jump(chain) = &rule.target else { return false };
    let Some(rest) = chain.strip_prefix(from) else { return false };
    let wanted = format!("{to}{rest}");
    rules.table(Nat).is_some_and(|table| table.chains.iter().any(|chain| chain.name == wanted))
}

/// Where the new chain exists.
fn elsewhere(rules: &mut Rules, place: ChainsOf, from: &'static str, to: &'static str) -> bool {
    let known = rules.clone();
    place.edit(rules, |rule| sibling(&known, rule, from, to), |rule| chain_instead(rule, from, to))
}

fn swap_first_two(chain: &mut [Rule]) {
    if chain.len() > 1 {
        chain.swap(0, 1);
    }
}

fn without_jump(rules: &mut Rules, place: ChainsOf, to: &str) -> bool {
    place.remove(rules, |rule| jumps(rule, to))
}

pub fn catalogue() -> Vec<Mutant> {
    [matches(), numbers(), chance(), marking(), targets(), refusals(), structure()].concat()
}

/// Addresses, interfaces, states.
#[rustfmt::skip]
fn matches() -> Vec<Mutant> {
    vec![
        broken("service lines match any destination", |r| SERVICES.edit(r, not_node_ports, |rule| rule.header.destination = None)),
        broken("service lines match every destination but theirs", |r| SERVICES.edit(r, not_node_ports, |rule| {
            if let Some(test) = &mut rule.header.destination { test.not = true; }
        })),
        broken("service lines match a network 16 bits wider", |r| SERVICES.edit(r, not_node_ports, |rule| {
            if let Some(test) = &mut rule.header.destination { test.is = wider(test.is, 16); }
        })),
        broken("pods are recognized by the opposite", |r| CLUSTER.edit(r, marks, |rule| {
            if let Some(test) = &mut rule.header.source { test.not = !test.not; }
            if let Some(test) = &mut rule.header.input { test.not = !test.not; }
        })),
        broken("pods are recognized by a range 16 bits wider", |r| CLUSTER.edit(r, marks, |rule| {
            if let Some(test) = &mut rule.header.source { test.is = wider(test.is, 16); }
        })),
        broken("pods are recognized by their range's first address", |r| CLUSTER.edit(r, marks, |rule| {
            if let Some(test) = &mut rule.header.source { test.is = single(test.is); }
        })),
        broken("pods are recognized by another interface", |r| {
            let to_eth0 = |rule: &mut Rule| if let Some(test) = &mut rule.header.input { test.is = InterfacePattern("eth0".to_owned()); };
            CLUSTER.edit(r, any, to_eth0) | EXTERNAL.edit(r, any, to_eth0)
        }),
        broken("every client is a pod to external addresses", |r| EXTERNAL.edit(r, |rule| says(rule, "pod traffic"), |rule| {
            (rule.header.source, rule.header.input) = (None, None);
        })),
        broken("no client is a pod to external addresses", |r| EXTERNAL.remove(r, |rule| says(rule, "pod traffic"))),
        broken("hairpin is recognized by a network 8 bits wider", |r| ENDPOINT.edit(r, marks, |rule| {
            if let Some(test) = &mut rule.header.source { test.is = wider(test.is, 8); }
        })),
        broken("hairpin is recognized by the opposite", |r| ENDPOINT.edit(r, marks, |rule| {
            if let Some(test) = &mut rule.header.source { test.not = true; }
        })),
        broken("source ranges let every client in", |r| FIREWALL.edit(r, |rule| jumps(rule, "KUBE-EXT-"), |rule| rule.header.source = None)),
        broken("source ranges let in their first address only", |r| FIREWALL.edit(r, |rule| jumps(rule, "KUBE-EXT-"), |rule| {
            if let Some(test) = &mut rule.header.source { test.is = single(test.is); }
        })),
        broken("source ranges let the others in", |r| FIREWALL.edit(r, |rule| jumps(rule, "KUBE-EXT-"), |rule| {
            if let Some(test) = &mut rule.header.source { test.not = true; }
        })),
        broken("the node itself is recognized by the opposite", |r| EXTERNAL.edit(r, |rule| says(rule, "LOCAL traffic"), |rule| {
            for one in &mut rule.matches {
                if let Match::Addrtype(kind) = one && let Some(test) = &mut kind.source { test.not = true; }
            }
        })),
        broken("node ports on every machine's addresses", |r| SERVICES.edit(r, to_node_ports, |rule| {
            rule.header.destination = None;
            strip(rule, |one| matches!(one, Match::Addrtype(_)));
        })),
        broken("node ports on addresses of others only", |r| SERVICES.edit(r, to_node_ports, |rule| {
            for one in &mut rule.matches {
                if let Match::Addrtype(kind) = one && let Some(test) = &mut kind.destination {
                    test.is = AddressTypes(vec![AddressType::Unicast]);
                }
            }
        })),
        broken("node ports on loopback although that is off", |r| SERVICES.edit(r, |rule| {
            to_node_ports(rule) && rule.header.destination.as_ref().is_some_and(|test| test.not)
        }, |rule| rule.header.destination = None)),
        broken("node ports without endpoints are refused on every local address", |r| REFUSED_EXTERNAL.edit(r, |rule| {
            rule.header.destination.as_ref().is_some_and(|test| test.not)
        }, |rule| rule.header.destination = None)),
        broken("unmarked packets are recognized by the opposite", |r| POSTROUTING.edit(r, any, |rule| {
            for one in &mut rule.matches {
                if let Match::Mark(test) = one { test.not = !test.not; }
            }
        })),
        broken("unmarked packets are recognized by another bit", |r| POSTROUTING.edit(r, any, |rule| {
            for one in &mut rule.matches {
                if let Match::Mark(test) = one { test.is = (0x8000, 0x8000); }
            }
        })),
        equivalent("refusals look at connections in every state",
            "what an established connection sends to a service's address has been translated before it meets filter, and never has that address there; the match saves time",
            |r| ChainsOf(Filter, "").edit(r, |rule| jumps(rule, "KUBE-SERVICES") || jumps(rule, "KUBE-EXTERNAL-SERVICES"),
                |rule| strip(rule, |one| matches!(one, Match::Conntrack(..))))),
        equivalent("comments are gone", "comments match everything",
            |r| ChainsOf(Nat, "KUBE-").edit(r, any, |rule| strip(rule, |one| matches!(one, Match::Comment(_))))),
    ]
}

/// Ports and protocols.
#[rustfmt::skip]
fn numbers() -> Vec<Mutant> {
    vec![
        broken("service lines match the next port", |r| SERVICES.edit(r, not_node_ports, shift_port)),
        broken("service lines match any port", |r| SERVICES.edit(r, not_node_ports, |rule| strip(rule, |one| matches!(one, Match::Ports(_))))),
        broken("service lines match the other protocol", |r| SERVICES.edit(r, not_node_ports, udp_for_tcp)),
        broken("node port lines match the next port", |r| NODE_PORTS.edit(r, any, shift_port)),
        broken("node port lines match any port", |r| NODE_PORTS.edit(r, any, |rule| strip(rule, |one| matches!(one, Match::Ports(_))))),
        broken("node port lines match the other protocol", |r| NODE_PORTS.edit(r, any, udp_for_tcp)),
        broken("translation to the next port", |r| ENDPOINT.edit(r, any, |rule| set_port(rule, |port| Some(port.wrapping_add(1))))),
        broken("translation leaves the port as it is", |r| ENDPOINT.edit(r, any, |rule| set_port(rule, |_| None))),
        broken("refusals match the next port", |r| REFUSED.edit(r, any, shift_port) | REFUSED_EXTERNAL.edit(r, any, shift_port)),
        broken("the firewall matches the next port", |r| PROXY_FIREWALL.edit(r, any, shift_port)),
        broken("the firewall matches the other protocol", |r| PROXY_FIREWALL.edit(r, any, udp_for_tcp)),
    ]
}

/// Probabilities and affinity.
#[rustfmt::skip]
fn chance() -> Vec<Mutant> {
    vec![
        broken("probabilities are halved", |r| CLUSTER.edit(r, any, |rule| threshold(rule, |old| old / 2))),
        broken("probabilities are a millionth too high", |r| CLUSTER.edit(r, any, |rule| threshold(rule, |old| old + THRESHOLD_ONE / 1_000_000))),
        broken("local probabilities are halved", |r| LOCAL.edit(r, any, |rule| threshold(rule, |old| old / 2))),
        broken("the first endpoint gets everything", |r| CLUSTER.edit(r, any, |rule| strip(rule, is_random))),
        broken("chance by the opposite", |r| CLUSTER.edit(r, any, |rule| {
            for one in &mut rule.matches {
                if let Match::Statistic(Statistic::Random { not, .. }) = one { *not = true; }
            }
        })),
        broken("the first two endpoints' lines change places", |r| CLUSTER.reorder(r, |chain| {
            let first = chain.iter().position(|rule| rule.matches.iter().any(is_random));
            if let Some(first) = first.filter(|first| first + 1 < chain.len()) { chain.swap(first, first + 1); }
        })),
        broken("the last endpoint is chosen by chance, too", |r| CLUSTER.reorder(r, |chain| {
            if let Some(last) = chain.last_mut().filter(|rule| jumps(rule, "KUBE-SEP-")) {
                last.matches.push(Match::Statistic(Statistic::Random { not: false, threshold: THRESHOLD_ONE / 2 }));
            }
        })),
        broken("affinity is not kept", |r| ENDPOINT.edit(r, any, |rule| strip(rule, |one| matches!(one, Match::Recent(_))))),
        broken("affinity is not asked for", |r| CLUSTER.remove(r, checks) | LOCAL.remove(r, checks)),
        broken("affinity lasts a second", |r| CLUSTER.edit(r, checks, |rule| recent(rule, RecentAction::Check, |one| one.seconds = Some(1)))),
        broken("affinity never ends", |r| CLUSTER.edit(r, checks, |rule| recent(rule, RecentAction::Check, |one| (one.seconds, one.reap) = (None, false)))),
        broken("affinity is kept for destinations", |r| ChainsOf(Nat, "KUBE-S").edit(r, any, |rule| {
            for one in &mut rule.matches {
                if let Match::Recent(recent) = one { recent.destination = true; }
            }
        })),
        broken("affinity of every other client", |r| CLUSTER.edit(r, checks, |rule| recent(rule, RecentAction::Check, |one| one.not = true))),
    ]
}

/// Mark and masquerade.
#[rustfmt::skip]
fn marking() -> Vec<Mutant> {
    vec![
        broken("hairpin is not marked", |r| ENDPOINT.remove(r, marks)),
        broken("everything to an endpoint is marked", |r| ENDPOINT.edit(r, marks, |rule| rule.header.source = None)),
        broken("what goes to cluster IPs is never marked", |r| CLUSTER.remove(r, marks)),
        broken("what goes to cluster IPs is always marked", |r| CLUSTER.edit(r, marks, |rule| (rule.header.source, rule.header.input) = (None, None))),
        broken("what goes to external addresses is never marked", |r| EXTERNAL.remove(r, |rule| marks(rule) && !says(rule, "LOCAL"))),
        broken("the node's own is not marked", |r| EXTERNAL.remove(r, |rule| marks(rule) && says(rule, "LOCAL"))),
        broken("everything to external addresses is marked as the node's own is", |r| EXTERNAL.edit(r, |rule| marks(rule) && says(rule, "LOCAL"),
            |rule| strip(rule, |one| matches!(one, Match::Addrtype(_))))),
        broken("the mark is another bit", |r| MARK.edit(r, any, |rule| if let RuleTarget::Mark { value, mask } = &mut rule.target { (*value, *mask) = (0x8000, 0x8000); })),
        broken("the mark is no bit", |r| MARK.edit(r, any, |rule| if let RuleTarget::Mark { value, .. } = &mut rule.target { *value = 0; })),
        equivalent("the mark wipes out the others", "nothing else here marks packets",
            |r| MARK.edit(r, any, |rule| if let RuleTarget::Mark { mask, .. } = &mut rule.target { *mask = u32::MAX; })),
        broken("masquerade comes before who is marked", |r| POSTROUTING.reorder(r, |chain| chain.reverse())),
        broken("nothing is masqueraded", |r| POSTROUTING.remove(r, |rule| matches!(rule.target, RuleTarget::Masquerade(_)))),
        broken("everything is masqueraded", |r| POSTROUTING.remove(r, |rule| rule.target == RuleTarget::Return)),
        equivalent("the mark is not taken off again", "the packet leaves the node, and nothing that is left asks for the mark",
            |r| POSTROUTING.remove(r, |rule| matches!(rule.target, RuleTarget::Mark { .. }))),
        equivalent("masquerade draws no random ports", "no verdict depends on which free port is taken",
            |r| POSTROUTING.edit(r, any, |rule| if let RuleTarget::Masquerade(range) = &mut rule.target { range.random_fully = false; })),
    ]
}

/// Jumps and translations.
#[rustfmt::skip]
fn targets() -> Vec<Mutant> {
    vec![
        broken("endpoints' translations change places", |r| ENDPOINT.rotate_targets(r, is_dnat)),
        broken("no translation", |r| ENDPOINT.remove(r, |rule| is_dnat(&rule.target))),
        broken("translation before the hairpin is marked", |r| ENDPOINT.reorder(r, |chain| swap_first_two(chain))),
        broken("endpoints are chosen before it is marked", |r| CLUSTER.reorder(r, |chain| {
            if chain.first().is_some_and(marks) { chain.rotate_left(1); }
        })),
        broken("policy Local leads to all endpoints", |r| elsewhere(r, EXTERNAL, "KUBE-SVL-", "KUBE-SVC-") | elsewhere(r, SERVICES, "KUBE-SVL-", "KUBE-SVC-")),
        broken("policy Cluster leads to the node's endpoints", |r| elsewhere(r, EXTERNAL, "KUBE-SVC-", "KUBE-SVL-") | elsewhere(r, SERVICES, "KUBE-SVC-", "KUBE-SVL-")),
        broken("load balancers' addresses go past the firewall", |r| elsewhere(r, SERVICES, "KUBE-FW-", "KUBE-EXT-")),
        broken("external addresses are taken for cluster IPs", |r| elsewhere(r, SERVICES, "KUBE-EXT-", "KUBE-SVC-")),
        broken("node ports are taken for cluster IPs", |r| elsewhere(r, NODE_PORTS, "KUBE-EXT-", "KUBE-SVC-")),
        broken("cluster IPs are taken for external addresses", |r| elsewhere(r, SERVICES, "KUBE-SVC-", "KUBE-EXT-")),
        broken("service lines' chains change places", |r| SERVICES.rotate_targets(r, |target| matches!(target, RuleTarget::Jump(chain) if chain.starts_with("KUBE-SVC-")))),
        broken("the first endpoint is never there", |r| CLUSTER.reorder(r, |chain| {
            if let Some(first) = chain.iter().position(|rule| rule.matches.iter().any(is_random)) { chain.remove(first); }
        })),
        broken("the node itself has no way around policy Local", |r| EXTERNAL.remove(r, |rule| says(rule, "route LOCAL"))),
        broken("external lines end after the mark", |r| EXTERNAL.reorder(r, |chain| { chain.pop(); })),
    ]
}

/// Drop and reject.
#[rustfmt::skip]
pub(super) fn refusals() -> Vec<Mutant> {
    vec![
        broken("cluster IPs without endpoints are dropped", |r| REFUSED.edit(r, is_reject, |rule| rule.target = RuleTarget::Drop)),
        broken("cluster IPs without endpoints are let pass", |r| REFUSED.remove(r, is_reject)),
        broken("external addresses without endpoints are dropped", |r| REFUSED_EXTERNAL.edit(r, is_reject, |rule| rule.target = RuleTarget::Drop)),
        broken("external addresses without endpoints are let pass", |r| REFUSED_EXTERNAL.remove(r, is_reject)),
        broken("cluster IPs without local endpoints are rejected", |r| REFUSED.edit(r, is_drop, |rule| rule.target = RuleTarget::Reject(RejectWith::port_unreachable(r_family(rule))))),
        broken("external addresses without local endpoints are let pass", |r| REFUSED_EXTERNAL.remove(r, is_drop)),
        broken("refusals accept", |r| REFUSED.edit(r, any, |rule| rule.target = RuleTarget::Accept)),
        broken("the firewall is open", |r| PROXY_FIREWALL.remove(r, any)),
        broken("the firewall rejects", |r| PROXY_FIREWALL.edit(r, is_drop, |rule| rule.target = RuleTarget::Reject(RejectWith::port_unreachable(r_family(rule))))),
        broken("everything that is forwarded is dropped", |r| FORWARD.edit(r, any, |rule| { strip(rule, |_| true); rule.target = RuleTarget::Drop; })),
        equivalent("invalid packets are let pass",
            "no first packet or answer to it is out of a connection's window; the kernel's tests send such packets",
            |r| FORWARD.remove(r, is_drop)),
        equivalent("marked packets are not accepted", "the policy of FORWARD accepts here, as it does unless another program changes it",
            |r| FORWARD.remove(r, |rule| rule.target == RuleTarget::Accept)),
    ]
}

/// Jumps, chains, tables, families.
#[rustfmt::skip]
fn structure() -> Vec<Mutant> {
    vec![
        broken("no jump from nat's PREROUTING", |r| without_jump(r, ChainsOf(Nat, "PREROUTING"), "KUBE-")),
        broken("no jump from nat's OUTPUT", |r| without_jump(r, ChainsOf(Nat, "OUTPUT"), "KUBE-")),
        broken("no jump from nat's POSTROUTING", |r| without_jump(r, ChainsOf(Nat, "POSTROUTING"), "KUBE-")),
        broken("no jump from filter's INPUT", |r| without_jump(r, ChainsOf(Filter, "INPUT"), "KUBE-")),
        broken("no jump from filter's FORWARD", |r| without_jump(r, ChainsOf(Filter, "FORWARD"), "KUBE-")),
        broken("no jump from filter's OUTPUT", |r| without_jump(r, ChainsOf(Filter, "OUTPUT"), "KUBE-")),
        broken("no jump from filter's OUTPUT to external addresses", |r| without_jump(r, ChainsOf(Filter, "OUTPUT"), "KUBE-EXTERNAL-SERVICES")),
        broken("no jump to node ports", |r| SERVICES.remove(r, to_node_ports)),
        broken("no line for any service", |r| SERVICES.remove(r, not_node_ports)),
        broken("no line for any node port", |r| NODE_PORTS.remove(r, any)),
        broken("no jump to the firewall", |r| without_jump(r, ChainsOf(Filter, ""), "KUBE-PROXY-FIREWALL")),
        broken("no table nat", |r| { r.tables.retain(|table| table.name != Nat); true }),
        broken("no table filter", |r| { r.tables.retain(|table| table.name != Filter); true }),
        broken("no rules of IPv4", |r| of_family(r, svclab_sim::protocol::Family::V4)),
        broken("no rules of IPv6", |r| of_family(r, svclab_sim::protocol::Family::V6)),
        equivalent("the first two service lines change places", "no two lines match one packet",
            |r| SERVICES.reorder(r, |chain| if chain.len() > 2 { chain.swap(0, 1); })),
        equivalent("the first two node port lines change places", "no two lines match one packet",
            |r| NODE_PORTS.reorder(r, |chain| swap_first_two(chain))),
        equivalent("the loopback range is open to the network",
            "no machine sends packets for 127.0.0.0/8 out of its own stack; the kernel's tests forge them",
            |r| LOOPBACK_GUARD.remove(r, is_drop)),
    ]
}

fn r_family(rule: &Rule) -> svclab_sim::protocol::Family {
    rule.header.destination.as_ref().map_or(svclab_sim::protocol::Family::V4, |test| test.is.family)
}

fn of_family(rules: &mut Rules, family: svclab_sim::protocol::Family) -> bool {
    if rules.family != family {
        return false;
    }
    rules.tables.clear();
    true
}
