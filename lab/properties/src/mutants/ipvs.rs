//! Mutants of IPVS mode.

use std::net::SocketAddr;

use svclab_sim::ipvs::{Scheduler, VirtualService};
use svclab_sim::protocol::Protocol;
use svclab_sim::rules::TableName::{Filter, Mangle, Nat};
use svclab_sim::rules::matches::Match;
use svclab_sim::rules::target::{RejectWith, RuleTarget};
use svclab_sim::rules::{Rule, Rules};
use svclab_sim::set::{Element, PartValue};

use super::tools::{ChainsOf, any, jumps, strip};
use super::{Expectation, Mutant, Mutation};
use svclab_sim::cluster::NodeState;

const SERVICES: ChainsOf = ChainsOf(Nat, "KUBE-SERVICES");
const BALANCERS: ChainsOf = ChainsOf(Nat, "KUBE-LOAD-BALANCER");
const NODE_PORTS: ChainsOf = ChainsOf(Nat, "KUBE-NODE-PORT");
const MARK: ChainsOf = ChainsOf(Nat, "KUBE-MARK-MASQ");
const POSTROUTING: ChainsOf = ChainsOf(Nat, "KUBE-POSTROUTING");
const OWN_LISTENERS: ChainsOf = ChainsOf(Filter, "KUBE-IPVS-FILTER");
const FIREWALL: ChainsOf = ChainsOf(Filter, "KUBE-PROXY-FIREWALL");
const RANGES: ChainsOf = ChainsOf(Filter, "KUBE-SOURCE-RANGES-FIREWALL");
const OWN_CALLS: ChainsOf = ChainsOf(Mangle, "KUBE-IPVS-OUT-FILTER");

const fn rules(name: &'static str, apply: fn(&mut Rules) -> bool) -> Mutant {
    Mutant { name, change: Mutation::Rules(apply), expectation: Expectation::Broken }
}

const fn broken(name: &'static str, apply: fn(&mut NodeState) -> bool) -> Mutant {
    Mutant { name, change: Mutation::State(apply), expectation: Expectation::Broken }
}

/// `None` removes the element.
fn elements(state: &mut NodeState, set: &str, how: impl Fn(usize, &Element) -> Option<Element>) -> bool {
    let mut changed = false;
    for one in &mut state.sets.sets {
        if one.name.replacen("KUBE-6-", "KUBE-", 1) == set {
            let new: Vec<Element> =
                one.elements.iter().enumerate().filter_map(|(index, element)| how(index, element)).collect();
            changed |= new != one.elements;
            one.elements = new;
        }
    }
    changed
}

fn empty(state: &mut NodeState, set: &str) -> bool {
    elements(state, set, |_, _| None)
}

fn next_ports(state: &mut NodeState, set: &str) -> bool {
    elements(state, set, |_, element| {
        let mut element = element.clone();
        for value in &mut element.values {
            match value {
                PartValue::Port(_, port) | PartValue::PlainPort(port) => *port = port.wrapping_add(1),
                PartValue::Ip(_) | PartValue::Net(_) => {}
            }
        }
        Some(element)
    })
}

fn servers(state: &mut NodeState, which: impl Fn(&VirtualService) -> bool, how: impl Fn(&mut VirtualService)) -> bool {
    let before = state.servers.clone();
    state.servers.services.iter_mut().filter(|server| which(server)).for_each(how);
    state.servers != before
}

fn every(_: &VirtualService) -> bool {
    true
}

fn sticks(server: &VirtualService) -> bool {
    server.persistence.is_some()
}

fn takes_turns(server: &VirtualService) -> bool {
    matches!(server.scheduler, Scheduler::RoundRobin | Scheduler::WeightedRoundRobin) && server.servers.len() > 1
}

fn port(address: &mut SocketAddr) {
    address.set_port(address.port().wrapping_add(1));
}

fn asks(rule: &Rule, set: &str) -> bool {
    rule.matches.iter().any(|one| matches!(one, Match::Set(test) if test.set.replacen("KUBE-6-", "KUBE-", 1) == set))
}

fn is_drop(rule: &Rule) -> bool {
    rule.target == RuleTarget::Drop
}

fn is_local(one: &Match) -> bool {
    matches!(one, Match::Addrtype(_))
}

fn without_jump(rules: &mut Rules, place: ChainsOf, to: &str) -> bool {
    place.remove(rules, |rule| jumps(rule, to))
}

pub fn catalogue() -> Vec<Mutant> {
    [virtual_servers(), addresses(), sets(), marking(), refusals(), structure()].concat()
}

/// Virtual and real servers.
#[rustfmt::skip]
fn virtual_servers() -> Vec<Mutant> {
    vec![
        broken("no virtual server", |p| { let any = !p.servers.services.is_empty(); p.servers.services.clear(); any }),
        broken("the first virtual server is missing", |p| { let any = !p.servers.services.is_empty(); p.servers.services.drain(..1.min(p.servers.services.len())); any }),
        broken("virtual servers have no real server", |p| servers(p, every, |one| one.servers.clear())),
        broken("the first real server is missing", |p| servers(p, every, |one| { one.servers.drain(..1.min(one.servers.len())); })),
        broken("the last real server is missing", |p| servers(p, every, |one| { one.servers.pop(); })),
        broken("the first real server drains", |p| servers(p, every, |one| if let Some(first) = one.servers.first_mut() { first.weight = 0; })),
        broken("virtual servers at the next port", |p| servers(p, every, |one| port(&mut one.address))),
        broken("real servers at the next port", |p| servers(p, every, |one| one.servers.iter_mut().for_each(|real| port(&mut real.address)))),
        broken("virtual servers of the other protocol", |p| servers(p, every, |one| {
            one.protocol = if one.protocol == Protocol::TCP { Protocol::UDP } else { Protocol::TCP };
        })),
        broken("virtual servers' addresses change places", |p| {
            let Some(first) = p.servers.services.first().map(|one| one.address) else { return false };
            let before = p.servers.clone();
            let count = p.servers.services.len();
            for at in 1..count {
                let next = p.servers.services[at].address;
                p.servers.services[at - 1].address = next;
            }
            p.servers.services[count - 1].address = first;
            p.servers != before
        }),
        broken("turns become a hash of the client", |p| servers(p, takes_turns, |one| one.scheduler = Scheduler::SourceHash)),
        broken("turns become a hash of destinations", |p| servers(p, takes_turns, |one| one.scheduler = Scheduler::DestinationHash)),
        broken("turns become a hash of connections", |p| servers(p, takes_turns, |one| one.scheduler = Scheduler::Maglev)),
        broken("the first real server has two turns", |p| servers(p, |one| one.scheduler == Scheduler::WeightedRoundRobin && takes_turns(one), |one| one.servers[0].weight = 2)),
        Mutant {
            name: "the first real server is twice as heavy under rr",
            change: Mutation::State(|p| servers(p, |one| one.scheduler == Scheduler::RoundRobin && takes_turns(one), |one| one.servers[0].weight = 2)),
            expectation: Expectation::Equivalent("rr knows no weight but zero (net/netfilter/ipvs/ip_vs_rr.c)"),
        },
        broken("affinity is not kept", |p| servers(p, sticks, |one| one.persistence = None)),
        broken("affinity lasts a second", |p| servers(p, sticks, |one| if let Some(kept) = &mut one.persistence { kept.seconds = 1; })),
        broken("affinity lasts a year", |p| servers(p, sticks, |one| if let Some(kept) = &mut one.persistence { kept.seconds = 31_536_000; })),
        broken("affinity where none is asked for", |p| servers(p, |one| one.persistence.is_none(), |one| {
            one.persistence = Some(svclab_sim::ipvs::Persistence { seconds: 10_800, prefix: if one.address.is_ipv4() { 32 } else { 128 } });
        })),
    ]
}

/// Addresses of `kube-ipvs0`.
#[rustfmt::skip]
fn addresses() -> Vec<Mutant> {
    vec![
        broken("no address on the node", |p| { let any = !p.addresses.is_empty(); p.addresses.clear(); any }),
        broken("the first address is missing", |p| { let any = !p.addresses.is_empty(); p.addresses.drain(..1.min(p.addresses.len())); any }),
        broken("addresses of IPv6 are taken for the node's own", |p| {
            let mut changed = false;
            for address in p.addresses.iter_mut().filter(|address| address.ip.is_ipv6()) {
                changed |= std::mem::take(&mut address.secondary);
            }
            changed
        }),
    ]
}

/// IP sets.
#[rustfmt::skip]
fn sets() -> Vec<Mutant> {
    vec![
        broken("no hairpin is known", |p| empty(p, "KUBE-LOOP-BACK")),
        broken("hairpins are known at the next port", |p| next_ports(p, "KUBE-LOOP-BACK")),
        broken("no cluster IP is known", |p| empty(p, "KUBE-CLUSTER-IP")),
        broken("the first cluster IP is not known", |p| elements(p, "KUBE-CLUSTER-IP", |index, one| (index > 0).then(|| one.clone()))),
        broken("cluster IPs are known at the next port", |p| next_ports(p, "KUBE-CLUSTER-IP")),
        broken("no external IP is known", |p| empty(p, "KUBE-EXTERNAL-IP")),
        broken("no external IP of policy Local is known", |p| empty(p, "KUBE-EXTERNAL-IP-LOCAL")),
        broken("no load balancer's address is known", |p| empty(p, "KUBE-LOAD-BALANCER")),
        broken("no load balancer's address of policy Local is known", |p| empty(p, "KUBE-LOAD-BALANCER-LOCAL")),
        broken("no load balancer's address has a firewall", |p| empty(p, "KUBE-LOAD-BALANCER-FW")),
        broken("no source range is let in", |p| empty(p, "KUBE-LOAD-BALANCER-SOURCE-CIDR")),
        broken("the first source range is not let in", |p| elements(p, "KUBE-LOAD-BALANCER-SOURCE-CIDR", |index, one| (index > 0).then(|| one.clone()))),
        broken("every second source range is not let in", |p| elements(p, "KUBE-LOAD-BALANCER-SOURCE-CIDR", |index, one| (index % 2 == 1).then(|| one.clone()))),
        broken("source ranges are let in at the next port", |p| next_ports(p, "KUBE-LOAD-BALANCER-SOURCE-CIDR")),
        broken("no node port of TCP is known", |p| empty(p, "KUBE-NODE-PORT-TCP")),
        broken("no node port of UDP is known", |p| empty(p, "KUBE-NODE-PORT-UDP")),
        broken("no node port of SCTP is known", |p| empty(p, "KUBE-NODE-PORT-SCTP-HASH")),
        broken("no node port of TCP with policy Local is known", |p| empty(p, "KUBE-NODE-PORT-LOCAL-TCP")),
        broken("no node port of UDP with policy Local is known", |p| empty(p, "KUBE-NODE-PORT-LOCAL-UDP")),
        broken("no service is known to be without local endpoints", |p| empty(p, "KUBE-NO-LOCAL-ENDPOINTS")),
        broken("no cluster IP is known to be without local endpoints", |p| empty(p, "KUBE-CLUSTER-IP-NO-LOCAL")),
        broken("no address is known to be a service's", |p| empty(p, "KUBE-IPVS-IPS")),
    ]
}

/// Mark and masquerade.
#[rustfmt::skip]
fn marking() -> Vec<Mutant> {
    vec![
        rules("hairpin is not masqueraded", |r| POSTROUTING.remove(r, |rule| asks(rule, "KUBE-LOOP-BACK"))),
        rules("everything to an endpoint is masqueraded", |r| POSTROUTING.edit(r, |rule| asks(rule, "KUBE-LOOP-BACK"), |rule| strip(rule, |one| matches!(one, Match::Set(_))))),
        rules("everything is masqueraded", |r| POSTROUTING.remove(r, |rule| rule.target == RuleTarget::Return)),
        rules("nothing marked is masqueraded", |r| POSTROUTING.remove(r, |rule| matches!(rule.target, RuleTarget::Masquerade(_)) && !asks(rule, "KUBE-LOOP-BACK"))),
        rules("the mark is another bit", |r| MARK.edit(r, any, |rule| if let RuleTarget::Mark { value, mask } = &mut rule.target { (*value, *mask) = (0x8000, 0x8000); })),
        rules("what goes to cluster IPs is never marked", |r| SERVICES.remove(r, |rule| asks(rule, "KUBE-CLUSTER-IP") && jumps(rule, "KUBE-MARK"))),
        rules("what goes to cluster IPs is always marked", |r| SERVICES.edit(r, |rule| asks(rule, "KUBE-CLUSTER-IP") && jumps(rule, "KUBE-MARK"),
            |rule| (rule.header.source, rule.header.input) = (None, None))),
        rules("what goes to external IPs is never marked", |r| SERVICES.remove(r, |rule| asks(rule, "KUBE-EXTERNAL-IP") && jumps(rule, "KUBE-MARK"))),
        rules("what goes to external IPs of policy Local is always marked", |r| SERVICES.edit(r, |rule| asks(rule, "KUBE-EXTERNAL-IP-LOCAL") && jumps(rule, "KUBE-MARK"), |rule| strip(rule, is_local))),
        rules("what goes to load balancers' addresses is never marked", |r| BALANCERS.remove(r, |rule| jumps(rule, "KUBE-MARK"))),
        rules("what goes to load balancers' addresses of policy Local is marked", |r| BALANCERS.remove(r, |rule| rule.target == RuleTarget::Return)),
        rules("what goes to node ports is never marked", |r| NODE_PORTS.remove(r, |rule| jumps(rule, "KUBE-MARK"))),
        rules("what goes to node ports of policy Local is marked", |r| NODE_PORTS.remove(r, |rule| rule.target == RuleTarget::Return)),
    ]
}

/// Drop and reject.
#[rustfmt::skip]
fn refusals() -> Vec<Mutant> {
    vec![
        rules("the node's own listeners answer on services' addresses", |r| OWN_LISTENERS.remove(r, |rule| matches!(rule.target, RuleTarget::Reject(_)))),
        rules("other ports of services' addresses are dropped", |r| OWN_LISTENERS.edit(r, |rule| matches!(rule.target, RuleTarget::Reject(_)), |rule| rule.target = RuleTarget::Drop)),
        rules("services' own ports are refused", |r| OWN_LISTENERS.remove(r, |rule| rule.target == RuleTarget::Return)),
        rules("refusals come first", |r| OWN_LISTENERS.reorder(r, |chain| chain.reverse())),
        rules("source ranges let every client in", |r| RANGES.remove(r, is_drop)),
        rules("source ranges reject the others", |r| RANGES.edit(r, is_drop, |rule| rule.target = RuleTarget::Reject(RejectWith::TcpReset))),
        rules("source ranges let no client in", |r| RANGES.remove(r, |rule| asks(rule, "KUBE-LOAD-BALANCER-SOURCE-CIDR"))),
        rules("source ranges are not asked", |r| FIREWALL.remove(r, |rule| jumps(rule, "KUBE-SOURCE-RANGES"))),
        rules("the node's own calls pass source ranges", |r| OWN_CALLS.remove(r, |rule| asks(rule, "KUBE-LOAD-BALANCER-FW"))),
        rules("frontends without local endpoints let pass", |r| FIREWALL.remove(r, |rule| asks(rule, "KUBE-NO-LOCAL-ENDPOINTS"))),
        rules("frontends without local endpoints are closed to pods and nodes, too", |r| FIREWALL.edit(r, |rule| asks(rule, "KUBE-NO-LOCAL-ENDPOINTS"), |rule| {
            (rule.header.source, rule.header.input) = (None, None);
            strip(rule, is_local);
        })),
        rules("cluster IPs without local endpoints let pass", |r| FIREWALL.remove(r, |rule| asks(rule, "KUBE-CLUSTER-IP-NO-LOCAL"))),
        rules("cluster IPs without local endpoints let the node's own calls pass", |r| OWN_CALLS.remove(r, |rule| asks(rule, "KUBE-CLUSTER-IP-NO-LOCAL"))),
    ]
}

/// Jumps, tables.
#[rustfmt::skip]
fn structure() -> Vec<Mutant> {
    vec![
        rules("no jump from nat's PREROUTING", |r| without_jump(r, ChainsOf(Nat, "PREROUTING"), "KUBE-")),
        rules("no jump from nat's OUTPUT", |r| without_jump(r, ChainsOf(Nat, "OUTPUT"), "KUBE-")),
        rules("no jump from nat's POSTROUTING", |r| without_jump(r, ChainsOf(Nat, "POSTROUTING"), "KUBE-")),
        rules("no jump from filter's INPUT", |r| without_jump(r, ChainsOf(Filter, "INPUT"), "KUBE-")),
        rules("no jump from filter's INPUT to the firewall", |r| without_jump(r, ChainsOf(Filter, "INPUT"), "KUBE-PROXY-FIREWALL")),
        rules("no jump from mangle's OUTPUT", |r| without_jump(r, ChainsOf(Mangle, "OUTPUT"), "KUBE-")),
        rules("no jump to node ports", |r| SERVICES.remove(r, |rule| jumps(rule, "KUBE-NODE-PORT"))),
        rules("no jump to load balancers", |r| SERVICES.remove(r, |rule| jumps(rule, "KUBE-LOAD-BALANCER"))),
        rules("no table nat", |r| { r.tables.retain(|table| table.name != Nat); true }),
        rules("no table filter", |r| { r.tables.retain(|table| table.name != Filter); true }),
    ]
}
