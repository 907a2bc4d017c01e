use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use svclab_sim::protocol::Protocol;
use svclab_sim::rules::TableName::{Filter, Nat};
use svclab_sim::rules::header::RuleHeader;
use svclab_sim::rules::matches::{
    AddressType, AddressTypes, NumberRange, PortMatch, RecentAction, Statistic, THRESHOLD_ONE,
};
use svclab_sim::rules::target::RejectWith;
use svclab_sim::rules::{InterfacePattern, Match, Rule, RuleTarget, Rules, Test};

use super::Mutant;
use super::tools::{
    ChainsOf, any, is_drop, jumps, narrower, rules, says, shift_port, single, strip, threshold, wider, without_jump,
};

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

fn is_dnat(target: &RuleTarget) -> bool {
    matches!(target, RuleTarget::Dnat(_))
}

fn marks(rule: &Rule) -> bool {
    jumps(rule, "KUBE-MARK-MASQ")
}

pub(super) fn masquerades(rule: &Rule) -> bool {
    matches!(rule.target, RuleTarget::Masquerade(_) | RuleTarget::Snat(_))
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

fn elsewhere(rules: &mut Rules, place: ChainsOf, from: &'static str, to: &'static str) -> bool {
    let known = rules.clone();
    place.edit(rules, |rule| sibling(&known, rule, from, to), |rule| chain_instead(rule, from, to))
}

fn swap_first_two(chain: &mut [Rule]) {
    if chain.len() > 1 {
        chain.swap(0, 1);
    }
}

pub fn catalogue() -> Vec<Mutant> {
    [matches(), numbers(), chance(), marking(), targets(), refusals(), structure(), partial()].concat()
}

#[rustfmt::skip]
fn matches() -> Vec<Mutant> {
    vec![
        rules("service rules match any destination", |r| SERVICES.edit(r, not_node_ports, |rule| rule.header.destination = None)),
        rules("the destination match of service rules is inverted", |r| SERVICES.edit(r, not_node_ports, |rule| {
            if let Some(test) = &mut rule.header.destination { test.not = true; }
        })),
        rules("service rules match a network 16 bits wider", |r| SERVICES.edit(r, not_node_ports, |rule| {
            if let Some(test) = &mut rule.header.destination { test.is = wider(test.is, 16); }
        })),
        rules("pod detection is inverted", |r| CLUSTER.edit(r, marks, |rule| {
            if let Some(test) = &mut rule.header.source { test.not = !test.not; }
            if let Some(test) = &mut rule.header.input { test.not = !test.not; }
        })),
        rules("pod detection uses a range 16 bits wider", |r| CLUSTER.edit(r, marks, |rule| {
            if let Some(test) = &mut rule.header.source { test.is = wider(test.is, 16); }
        })),
        rules("pod detection uses the first address of the range", |r| CLUSTER.edit(r, marks, |rule| {
            if let Some(test) = &mut rule.header.source { test.is = single(test.is); }
        })),
        rules("pod detection uses another interface", |r| {
            let to_eth0 = |rule: &mut Rule| if let Some(test) = &mut rule.header.input { test.is = InterfacePattern("eth0".to_owned()); };
            CLUSTER.edit(r, any, to_eth0) | EXTERNAL.edit(r, any, to_eth0)
        }),
        rules("external addresses treat every client as a pod", |r| EXTERNAL.edit(r, |rule| says(rule, "pod traffic"), |rule| {
            (rule.header.source, rule.header.input) = (None, None);
        })),
        rules("external addresses treat no client as a pod", |r| EXTERNAL.remove(r, |rule| says(rule, "pod traffic"))),
        rules("hairpin detection uses a network 8 bits wider", |r| ENDPOINT.edit(r, marks, |rule| {
            if let Some(test) = &mut rule.header.source { test.is = wider(test.is, 8); }
        })),
        rules("hairpin detection is inverted", |r| ENDPOINT.edit(r, marks, |rule| {
            if let Some(test) = &mut rule.header.source { test.not = true; }
        })),
        rules("source ranges allow every client", |r| FIREWALL.edit(r, |rule| jumps(rule, "KUBE-EXT-"), |rule| rule.header.source = None)),
        rules("source ranges allow their first address only", |r| FIREWALL.edit(r, |rule| jumps(rule, "KUBE-EXT-"), |rule| {
            if let Some(test) = &mut rule.header.source { test.is = single(test.is); }
        })),
        rules("source ranges are inverted", |r| FIREWALL.edit(r, |rule| jumps(rule, "KUBE-EXT-"), |rule| {
            if let Some(test) = &mut rule.header.source { test.not = true; }
        })),
        rules("detection of the node's own packets is inverted", |r| EXTERNAL.edit(r, |rule| says(rule, "LOCAL traffic"), |rule| {
            for one in &mut rule.matches {
                if let Match::Addrtype(kind) = one && let Some(test) = &mut kind.source { test.not = true; }
            }
        })),
        rules("node ports match every destination address", |r| SERVICES.edit(r, to_node_ports, |rule| {
            rule.header.destination = None;
            strip(rule, |one| matches!(one, Match::Addrtype(_)));
        })),
        rules("node ports match addresses of other machines only", |r| SERVICES.edit(r, to_node_ports, |rule| {
            for one in &mut rule.matches {
                if let Match::Addrtype(kind) = one && let Some(test) = &mut kind.destination {
                    test.is = AddressTypes(vec![AddressType::Unicast]);
                }
            }
        })),
        rules("node ports match loopback addresses although disabled", |r| SERVICES.edit(r, |rule| {
            to_node_ports(rule) && rule.header.destination.as_ref().is_some_and(|test| test.not)
        }, |rule| rule.header.destination = None)),
        rules("node ports without endpoints are rejected on every local address", |r| REFUSED_EXTERNAL.edit(r, |rule| {
            rule.header.destination.as_ref().is_some_and(|test| test.not)
        }, |rule| rule.header.destination = None)),
        rules("the mark match is inverted", |r| POSTROUTING.edit(r, any, |rule| {
            for one in &mut rule.matches {
                if let Match::Mark(test) = one { test.not = !test.not; }
            }
        })),
        rules("the mark match uses another bit", |r| POSTROUTING.edit(r, any, |rule| {
            for one in &mut rule.matches {
                if let Match::Mark(test) = one { test.is = (0x8000, 0x8000); }
            }
        })),
        rules("refusals match every connection state", |r| ChainsOf(Filter, "").edit(r, |rule| jumps(rule, "KUBE-SERVICES") || jumps(rule, "KUBE-EXTERNAL-SERVICES"),
                |rule| strip(rule, |one| matches!(one, Match::Conntrack(..)))))
            .equivalent("conntrack translates packets of established connections before the filter table, where they never have a service address; the match only saves time"),
        rules("comments are removed", |r| ChainsOf(Nat, "KUBE-").edit(r, any, |rule| strip(rule, |one| matches!(one, Match::Comment(_)))))
            .equivalent("comments match everything"),
    ]
}

#[rustfmt::skip]
fn numbers() -> Vec<Mutant> {
    vec![
        rules("service rules match the next port", |r| SERVICES.edit(r, not_node_ports, shift_port)),
        rules("service rules match any port", |r| SERVICES.edit(r, not_node_ports, |rule| strip(rule, |one| matches!(one, Match::Ports(_))))),
        rules("service rules match the other protocol", |r| SERVICES.edit(r, not_node_ports, udp_for_tcp)),
        rules("node port rules match the next port", |r| NODE_PORTS.edit(r, any, shift_port)),
        rules("node port rules match any port", |r| NODE_PORTS.edit(r, any, |rule| strip(rule, |one| matches!(one, Match::Ports(_))))),
        rules("node port rules match the other protocol", |r| NODE_PORTS.edit(r, any, udp_for_tcp)),
        rules("translation to the next port", |r| ENDPOINT.edit(r, any, |rule| set_port(rule, |port| Some(port.wrapping_add(1))))),
        rules("translation keeps the port", |r| ENDPOINT.edit(r, any, |rule| set_port(rule, |_| None))),
        rules("refusals match the next port", |r| REFUSED.edit(r, any, shift_port) | REFUSED_EXTERNAL.edit(r, any, shift_port)),
        rules("the firewall matches the next port", |r| PROXY_FIREWALL.edit(r, any, shift_port)),
        rules("the firewall matches the other protocol", |r| PROXY_FIREWALL.edit(r, any, udp_for_tcp)),
    ]
}

#[rustfmt::skip]
fn chance() -> Vec<Mutant> {
    vec![
        rules("probabilities are halved", |r| CLUSTER.edit(r, any, |rule| threshold(rule, |old| old / 2))),
        rules("probabilities are a millionth too high", |r| CLUSTER.edit(r, any, |rule| threshold(rule, |old| old + THRESHOLD_ONE / 1_000_000))),
        rules("local probabilities are halved", |r| LOCAL.edit(r, any, |rule| threshold(rule, |old| old / 2))),
        rules("the first endpoint gets everything", |r| CLUSTER.edit(r, any, |rule| strip(rule, is_random))),
        rules("the random match is inverted", |r| CLUSTER.edit(r, any, |rule| {
            for one in &mut rule.matches {
                if let Match::Statistic(Statistic::Random { not, .. }) = one { *not = true; }
            }
        })),
        rules("the rules of the first two endpoints are swapped", |r| CLUSTER.reorder(r, |chain| {
            let first = chain.iter().position(|rule| rule.matches.iter().any(is_random));
            if let Some(first) = first.filter(|first| first + 1 < chain.len()) { chain.swap(first, first + 1); }
        })),
        rules("the last endpoint has a random match", |r| CLUSTER.reorder(r, |chain| {
            if let Some(last) = chain.last_mut().filter(|rule| jumps(rule, "KUBE-SEP-")) {
                last.matches.push(Match::Statistic(Statistic::Random { not: false, threshold: THRESHOLD_ONE / 2 }));
            }
        })),
        rules("affinity entries are not written", |r| ENDPOINT.edit(r, any, |rule| strip(rule, |one| matches!(one, Match::Recent(_))))),
        rules("affinity entries are not read", |r| CLUSTER.remove(r, checks) | LOCAL.remove(r, checks)),
        rules("affinity lasts a second", |r| CLUSTER.edit(r, checks, |rule| recent(rule, RecentAction::Check, |one| one.seconds = Some(1)))),
        rules("affinity never ends", |r| CLUSTER.edit(r, checks, |rule| recent(rule, RecentAction::Check, |one| (one.seconds, one.reap) = (None, false)))),
        rules("affinity entries hold destinations", |r| ChainsOf(Nat, "KUBE-S").edit(r, any, |rule| {
            for one in &mut rule.matches {
                if let Match::Recent(recent) = one { recent.destination = true; }
            }
        })),
        rules("the affinity match is inverted", |r| CLUSTER.edit(r, checks, |rule| recent(rule, RecentAction::Check, |one| one.not = true))),
    ]
}

#[rustfmt::skip]
fn marking() -> Vec<Mutant> {
    vec![
        rules("hairpin is not marked", |r| ENDPOINT.remove(r, marks)),
        rules("every packet to an endpoint is marked", |r| ENDPOINT.edit(r, marks, |rule| rule.header.source = None)),
        rules("packets to cluster IPs are never marked", |r| CLUSTER.remove(r, marks)),
        rules("packets to cluster IPs are always marked", |r| CLUSTER.edit(r, marks, |rule| (rule.header.source, rule.header.input) = (None, None))),
        rules("packets to external addresses are never marked", |r| EXTERNAL.remove(r, |rule| marks(rule) && !says(rule, "LOCAL"))),
        rules("the node's own packets are not marked", |r| EXTERNAL.remove(r, |rule| marks(rule) && says(rule, "LOCAL"))),
        rules("every packet to external addresses is marked like the node's own", |r| EXTERNAL.edit(r, |rule| marks(rule) && says(rule, "LOCAL"),
            |rule| strip(rule, |one| matches!(one, Match::Addrtype(_))))),
        rules("the mark is another bit", |r| MARK.edit(r, any, |rule| if let RuleTarget::Mark { value, mask } = &mut rule.target { (*value, *mask) = (0x8000, 0x8000); })),
        rules("the mark sets no bit", |r| MARK.edit(r, any, |rule| if let RuleTarget::Mark { value, .. } = &mut rule.target { *value = 0; })),
        rules("the mark clears the other bits", |r| MARK.edit(r, any, |rule| if let RuleTarget::Mark { mask, .. } = &mut rule.target { *mask = u32::MAX; }))
            .equivalent("no other program marks packets here"),
        rules("masquerade precedes the mark match", |r| POSTROUTING.reorder(r, |chain| chain.reverse())),
        rules("nothing is masqueraded", |r| POSTROUTING.remove(r, masquerades)),
        rules("everything is masqueraded", |r| POSTROUTING.remove(r, |rule| rule.target == RuleTarget::Return)),
        rules("the mark is not cleared", |r| POSTROUTING.remove(r, |rule| matches!(rule.target, RuleTarget::Mark { .. })))
            .equivalent("no later rule reads the mark"),
        rules("masquerade uses no random ports", |r| POSTROUTING.edit(r, any, |rule| if let RuleTarget::Masquerade(range) | RuleTarget::Snat(range) = &mut rule.target { range.random_fully = false; }))
            .equivalent("no verdict depends on which free port is taken"),
    ]
}

#[rustfmt::skip]
fn targets() -> Vec<Mutant> {
    vec![
        rules("the translations of endpoints are rotated", |r| ENDPOINT.rotate_targets(r, is_dnat)),
        rules("no translation", |r| ENDPOINT.remove(r, |rule| is_dnat(&rule.target))),
        rules("translation precedes the hairpin mark", |r| ENDPOINT.reorder(r, |chain| swap_first_two(chain))),
        rules("endpoints are selected before the mark", |r| CLUSTER.reorder(r, |chain| {
            if chain.first().is_some_and(marks) { chain.rotate_left(1); }
        })),
        rules("policy Local uses all endpoints", |r| elsewhere(r, EXTERNAL, "KUBE-SVL-", "KUBE-SVC-") | elsewhere(r, SERVICES, "KUBE-SVL-", "KUBE-SVC-")),
        rules("policy Cluster uses the node's endpoints", |r| elsewhere(r, EXTERNAL, "KUBE-SVC-", "KUBE-SVL-") | elsewhere(r, SERVICES, "KUBE-SVC-", "KUBE-SVL-")),
        rules("load-balancer addresses bypass the firewall", |r| elsewhere(r, SERVICES, "KUBE-FW-", "KUBE-EXT-")),
        rules("external addresses are treated as cluster IPs", |r| elsewhere(r, SERVICES, "KUBE-EXT-", "KUBE-SVC-")),
        rules("node ports are treated as cluster IPs", |r| elsewhere(r, NODE_PORTS, "KUBE-EXT-", "KUBE-SVC-")),
        rules("cluster IPs are treated as external addresses", |r| elsewhere(r, SERVICES, "KUBE-SVC-", "KUBE-EXT-")),
        rules("the chains of service rules are rotated", |r| SERVICES.rotate_targets(r, |target| matches!(target, RuleTarget::Jump(chain) if chain.starts_with("KUBE-SVC-")))),
        rules("the first endpoint's rule is missing", |r| CLUSTER.reorder(r, |chain| {
            if let Some(first) = chain.iter().position(|rule| rule.matches.iter().any(is_random)) { chain.remove(first); }
        })),
        rules("the node itself has no short circuit", |r| EXTERNAL.remove(r, |rule| says(rule, "route LOCAL"))),
        rules("external chains end after the mark", |r| EXTERNAL.reorder(r, |chain| { chain.pop(); })),
    ]
}

#[rustfmt::skip]
pub(super) fn refusals() -> Vec<Mutant> {
    vec![
        rules("cluster IPs without endpoints are dropped", |r| REFUSED.edit(r, is_reject, |rule| rule.target = RuleTarget::Drop)),
        rules("cluster IPs without endpoints accept", |r| REFUSED.remove(r, is_reject)),
        rules("external addresses without endpoints are dropped", |r| REFUSED_EXTERNAL.edit(r, is_reject, |rule| rule.target = RuleTarget::Drop)),
        rules("external addresses without endpoints accept", |r| REFUSED_EXTERNAL.remove(r, is_reject)),
        rules("cluster IPs without local endpoints are rejected", |r| REFUSED.edit(r, is_drop, |rule| rule.target = RuleTarget::Reject(RejectWith::port_unreachable(r_family(rule))))),
        rules("external addresses without local endpoints accept", |r| REFUSED_EXTERNAL.remove(r, is_drop)),
        rules("refusals accept", |r| REFUSED.edit(r, any, |rule| rule.target = RuleTarget::Accept)),
        rules("the firewall accepts", |r| PROXY_FIREWALL.remove(r, any)),
        rules("the firewall rejects", |r| PROXY_FIREWALL.edit(r, is_drop, |rule| rule.target = RuleTarget::Reject(RejectWith::port_unreachable(r_family(rule))))),
        rules("every forwarded packet is dropped", |r| FORWARD.edit(r, any, |rule| { strip(rule, |_| true); rule.target = RuleTarget::Drop; })),
        rules("invalid packets are accepted", |r| FORWARD.remove(r, is_drop))
            .equivalent("no packet of a question is outside its connection's window; the kernel tests send such packets"),
        rules("marked packets are not accepted", |r| FORWARD.remove(r, |rule| rule.target == RuleTarget::Accept))
            .equivalent("the policy of FORWARD accepts, unless another program changes it"),
    ]
}

#[rustfmt::skip]
fn structure() -> Vec<Mutant> {
    vec![
        rules("no jump from nat's PREROUTING", |r| without_jump(r, ChainsOf(Nat, "PREROUTING"), "KUBE-")),
        rules("no jump from nat's OUTPUT", |r| without_jump(r, ChainsOf(Nat, "OUTPUT"), "KUBE-")),
        rules("no jump from nat's POSTROUTING", |r| without_jump(r, ChainsOf(Nat, "POSTROUTING"), "KUBE-")),
        rules("no jump from filter's INPUT", |r| without_jump(r, ChainsOf(Filter, "INPUT"), "KUBE-")),
        rules("no jump from filter's FORWARD", |r| without_jump(r, ChainsOf(Filter, "FORWARD"), "KUBE-")),
        rules("no jump from filter's OUTPUT", |r| without_jump(r, ChainsOf(Filter, "OUTPUT"), "KUBE-")),
        rules("no jump from filter's OUTPUT to external addresses", |r| without_jump(r, ChainsOf(Filter, "OUTPUT"), "KUBE-EXTERNAL-SERVICES")),
        rules("no jump to node ports", |r| SERVICES.remove(r, to_node_ports)),
        rules("no rule for any service", |r| SERVICES.remove(r, not_node_ports)),
        rules("no rule for any node port", |r| NODE_PORTS.remove(r, any)),
        rules("no jump to the firewall", |r| without_jump(r, ChainsOf(Filter, ""), "KUBE-PROXY-FIREWALL")),
        rules("no table nat", |r| { r.tables.retain(|table| table.name != Nat); true }),
        rules("no table filter", |r| { r.tables.retain(|table| table.name != Filter); true }),
        rules("no rules of IPv4", |r| of_family(r, svclab_sim::protocol::Family::V4)),
        rules("no rules of IPv6", |r| of_family(r, svclab_sim::protocol::Family::V6)),
        rules("the first two service rules are swapped", |r| SERVICES.reorder(r, |chain| if chain.len() > 2 { chain.swap(0, 1); }))
            .equivalent("no two rules match one packet"),
        rules("the first two node port rules are swapped", |r| NODE_PORTS.reorder(r, |chain| swap_first_two(chain)))
            .equivalent("no two rules match one packet"),
        rules("the loopback range is open to the network", |r| LOOPBACK_GUARD.remove(r, is_drop))
            .equivalent("no machine sends packets for 127.0.0.0/8 out of its own stack; the kernel's tests forge them"),
    ]
}

fn is_recent(one: &Match) -> bool {
    matches!(one, Match::Recent(_))
}

/// The prefix of lists that the ports of a Service share.
const SHARED: &str = "KUBE-CLIENTS-";

/// Renames lists by their name, the chain of their endpoint, and its address.
fn rename_lists(rules: &mut Rules, name: impl Fn(&str, &str, IpAddr) -> String) -> bool {
    let before = rules.clone();
    for table in rules.tables.iter_mut().filter(|table| table.name == Nat) {
        let address =
            |rule: &Rule| if let RuleTarget::Dnat(range) = &rule.target { Some(range.addresses?.0) } else { None };
        let endpoints = table.chains.iter().filter(|chain| chain.name.starts_with(ENDPOINT.1));
        let endpoints = endpoints.filter_map(|chain| Some((chain.name.clone(), chain.rules.iter().find_map(address)?)));
        let endpoints: BTreeMap<String, IpAddr> = endpoints.collect();
        for chain in &mut table.chains {
            for rule in &mut chain.rules {
                let of = if let RuleTarget::Jump(to) = &rule.target { to } else { &chain.name };
                let Some(address) = endpoints.get(of) else { continue };
                for one in &mut rule.matches {
                    if let Match::Recent(recent) = one {
                        recent.list = name(&recent.list, of, *address);
                    }
                }
            }
        }
    }
    *rules != before
}

fn list_of(rule: &Rule) -> Option<String> {
    rule.matches.iter().find_map(|one| if let Match::Recent(recent) = one { Some(recent.list.clone()) } else { None })
}

/// Drops TCP packets from privileged source ports.
fn drop_by_source_port(like: &Rule) -> Rule {
    let source = Some(Test::is(NumberRange { first: 1, last: 1023 }));
    let ports = PortMatch { protocol: Protocol::TCP, source, destination: None, flags: None };
    let header = RuleHeader { protocol: Some(Test::is(Protocol::TCP)), ..RuleHeader::default() };
    Rule { header, matches: vec![Match::Ports(ports)], target: RuleTarget::Drop, ..like.clone() }
}

/// Mutants that concern some endpoints, addresses or clients only.
#[rustfmt::skip]
fn partial() -> Vec<Mutant> {
    vec![
        rules("every second endpoint's hairpin is not marked", |r| ENDPOINT.edit_every_second(r, |chain| chain.retain(|rule| !marks(rule)))),
        rules("every second endpoint's affinity entry is not written", |r| ENDPOINT.edit_every_second(r, |chain| {
            chain.iter_mut().for_each(|rule| strip(rule, is_recent));
        })),
        rules("the first endpoint's affinity reads the second's list", |r| CLUSTER.reorder(r, |chain| {
            let lists: Vec<String> = chain.iter().filter(|rule| checks(rule)).filter_map(list_of).collect();
            if let (Some(second), Some(first)) = (lists.get(1), chain.iter_mut().find(|rule| checks(rule))) {
                recent(first, RecentAction::Check, |one| one.list.clone_from(second));
            }
        })),
        rules("the affinity of the first two endpoints is swapped", |r| CLUSTER.reorder(r, |chain| {
            let at: Vec<usize> = chain.iter().enumerate().filter(|(_, rule)| checks(rule)).map(|(at, _)| at).take(2).collect();
            if let [first, second] = at[..] {
                let target = chain[first].target.clone();
                chain[first].target = chain[second].target.clone();
                chain[second].target = target;
            }
        })),
        rules("ports that share their clients have lists of their own", |r| rename_lists(r, |list, chain, _| {
            if list.starts_with(SHARED) { chain.to_owned() } else { list.to_owned() }
        })),
        rules("all ports share the clients of an address", |r| rename_lists(r, |list, _, address| {
            if list.starts_with(SHARED) { list.to_owned() } else { format!("{SHARED}{address}") }
        })),
        rules("affinity is of the client's network", |r| ChainsOf(Nat, "KUBE-S").edit(r, |rule| rule.matches.iter().any(is_recent), |rule| {
            for one in &mut rule.matches {
                if let Match::Recent(recent) = one {
                    recent.mask = match recent.mask {
                        IpAddr::V4(_) => Ipv4Addr::new(255, 255, 255, 0).into(),
                        IpAddr::V6(_) => Ipv6Addr::from_bits(u128::MAX << 64).into(),
                    };
                }
            }
        })),
    ]
}

/// Mutants that only calls from or to certain addresses and ports show.
#[rustfmt::skip]
pub(super) fn narrow() -> Vec<Mutant> {
    vec![
        rules("source ranges are one bit wider", |r| FIREWALL.edit(r, |rule| jumps(rule, "KUBE-EXT-"), |rule| {
            if let Some(test) = &mut rule.header.source { test.is = wider(test.is, 1); }
        })),
        rules("source ranges are one bit narrower", |r| FIREWALL.edit(r, |rule| jumps(rule, "KUBE-EXT-"), |rule| {
            if let Some(test) = &mut rule.header.source { test.is = narrower(test.is, 1); }
        })),
        rules("packets of a second interface are dropped", |r| FORWARD.reorder(r, |chain| {
            let Some(mut first) = chain.first().cloned() else { return };
            let input = Some(Test::is(InterfacePattern("eth1".to_owned())));
            (first.header, first.matches, first.target) = (RuleHeader { input, ..RuleHeader::default() }, Vec::new(), RuleTarget::Drop);
            chain.insert(0, first);
        })),
        rules("packets from privileged ports are dropped", |r| FORWARD.reorder(r, |chain| {
            if let Some(first) = chain.first().map(drop_by_source_port) { chain.insert(0, first); }
        })),
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
