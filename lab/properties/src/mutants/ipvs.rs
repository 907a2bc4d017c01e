use std::net::SocketAddr;

use svclab_sim::ipvs::{Scheduler, VirtualService};
use svclab_sim::protocol::Protocol;
use svclab_sim::rules::Rule;
use svclab_sim::rules::TableName::{Filter, Mangle, Nat};
use svclab_sim::rules::matches::Match;
use svclab_sim::rules::target::{RejectWith, RuleTarget};
use svclab_sim::set::{Element, PartValue};

use super::Mutant;
use super::iptables::masquerades;
use super::tools::{ChainsOf, any, is_drop, jumps, rules, state, strip, without_jump};
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

/// Changes the elements of a set; `None` removes an element.
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
                _ => {}
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

fn is_local(one: &Match) -> bool {
    matches!(one, Match::Addrtype(_))
}

pub fn catalogue() -> Vec<Mutant> {
    [virtual_servers(), addresses(), sets(), marking(), refusals(), structure()].concat()
}

#[rustfmt::skip]
fn virtual_servers() -> Vec<Mutant> {
    vec![
        state("no virtual server", |p| { let any = !p.servers.services.is_empty(); p.servers.services.clear(); any }),
        state("the first virtual server is missing", |p| { let any = !p.servers.services.is_empty(); p.servers.services.drain(..1.min(p.servers.services.len())); any }),
        state("virtual servers have no real server", |p| servers(p, every, |one| one.servers.clear())),
        state("the first real server is missing", |p| servers(p, every, |one| { one.servers.drain(..1.min(one.servers.len())); })),
        state("the last real server is missing", |p| servers(p, every, |one| { one.servers.pop(); })),
        state("the first real server drains", |p| servers(p, every, |one| if let Some(first) = one.servers.first_mut() { first.weight = 0; })),
        state("virtual servers at the next port", |p| servers(p, every, |one| port(&mut one.address))),
        state("real servers at the next port", |p| servers(p, every, |one| one.servers.iter_mut().for_each(|real| port(&mut real.address)))),
        state("virtual servers of the other protocol", |p| servers(p, every, |one| {
            one.protocol = if one.protocol == Protocol::TCP { Protocol::UDP } else { Protocol::TCP };
        })),
        state("the addresses of virtual servers are rotated", |p| {
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
        state("round robin becomes a hash of the client", |p| servers(p, takes_turns, |one| one.scheduler = Scheduler::SourceHash)),
        state("round robin becomes a hash of destinations", |p| servers(p, takes_turns, |one| one.scheduler = Scheduler::DestinationHash)),
        state("round robin becomes a hash of connections", |p| servers(p, takes_turns, |one| one.scheduler = Scheduler::Maglev)),
        state("the first real server has two turns", |p| servers(p, |one| one.scheduler == Scheduler::WeightedRoundRobin && takes_turns(one), |one| one.servers[0].weight = 2)),
        state("the first real server is twice as heavy under rr", |p| servers(p, |one| one.scheduler == Scheduler::RoundRobin && takes_turns(one), |one| one.servers[0].weight = 2))
            .equivalent("rr knows no weight but zero (net/netfilter/ipvs/ip_vs_rr.c)"),
        state("affinity entries are not written", |p| servers(p, sticks, |one| one.persistence = None)),
        state("affinity lasts a second", |p| servers(p, sticks, |one| if let Some(kept) = &mut one.persistence { kept.seconds = 1; })),
        state("affinity lasts a year", |p| servers(p, sticks, |one| if let Some(kept) = &mut one.persistence { kept.seconds = 31_536_000; })),
        state("affinity is of the client's network", |p| servers(p, sticks, |one| {
            let prefix = if one.address.is_ipv4() { 24 } else { 64 };
            if let Some(kept) = &mut one.persistence { kept.prefix = prefix; }
        })),
        state("every second virtual server has no affinity", |p| {
            let before = p.servers.clone();
            p.servers.services.iter_mut().filter(|one| sticks(one)).skip(1).step_by(2).for_each(|one| one.persistence = None);
            p.servers != before
        }),
        state("affinity without sessionAffinity", |p| servers(p, |one| one.persistence.is_none(), |one| {
            one.persistence = Some(svclab_sim::ipvs::Persistence { seconds: 10_800, prefix: if one.address.is_ipv4() { 32 } else { 128 } });
        })),
    ]
}

#[rustfmt::skip]
fn addresses() -> Vec<Mutant> {
    vec![
        state("no address on the node", |p| { let any = !p.addresses.is_empty(); p.addresses.clear(); any }),
        state("the first address is missing", |p| { let any = !p.addresses.is_empty(); p.addresses.drain(..1.min(p.addresses.len())); any }),
        state("IPv6 addresses become source addresses of the node", |p| {
            let mut changed = false;
            for address in p.addresses.iter_mut().filter(|address| address.ip.is_ipv6()) {
                changed |= std::mem::take(&mut address.secondary);
            }
            changed
        }),
    ]
}

#[rustfmt::skip]
fn sets() -> Vec<Mutant> {
    vec![
        state("the hairpin set is empty", |p| empty(p, "KUBE-LOOP-BACK")),
        state("every second hairpin is missing", |p| elements(p, "KUBE-LOOP-BACK", |index, one| (index % 2 == 0).then(|| one.clone()))),
        state("hairpins are at the next port", |p| next_ports(p, "KUBE-LOOP-BACK")),
        state("the set of cluster IPs is empty", |p| empty(p, "KUBE-CLUSTER-IP")),
        state("the first cluster IP is missing", |p| elements(p, "KUBE-CLUSTER-IP", |index, one| (index > 0).then(|| one.clone()))),
        state("cluster IPs are at the next port", |p| next_ports(p, "KUBE-CLUSTER-IP")),
        state("the set of external IPs is empty", |p| empty(p, "KUBE-EXTERNAL-IP")),
        state("the set of external IPs with policy Local is empty", |p| empty(p, "KUBE-EXTERNAL-IP-LOCAL")),
        state("the set of load-balancer addresses is empty", |p| empty(p, "KUBE-LOAD-BALANCER")),
        state("the set of load-balancer addresses with policy Local is empty", |p| empty(p, "KUBE-LOAD-BALANCER-LOCAL")),
        state("no load-balancer address has a firewall", |p| empty(p, "KUBE-LOAD-BALANCER-FW")),
        state("no source range is allowed", |p| empty(p, "KUBE-LOAD-BALANCER-SOURCE-CIDR")),
        state("the first source range is not allowed", |p| elements(p, "KUBE-LOAD-BALANCER-SOURCE-CIDR", |index, one| (index > 0).then(|| one.clone()))),
        state("every second source range is not allowed", |p| elements(p, "KUBE-LOAD-BALANCER-SOURCE-CIDR", |index, one| (index % 2 == 1).then(|| one.clone()))),
        state("source ranges are allowed at the next port", |p| next_ports(p, "KUBE-LOAD-BALANCER-SOURCE-CIDR")),
        state("the set of TCP node ports is empty", |p| empty(p, "KUBE-NODE-PORT-TCP")),
        state("the set of UDP node ports is empty", |p| empty(p, "KUBE-NODE-PORT-UDP")),
        state("the set of SCTP node ports is empty", |p| empty(p, "KUBE-NODE-PORT-SCTP-HASH")),
        state("the set of TCP node ports with policy Local is empty", |p| empty(p, "KUBE-NODE-PORT-LOCAL-TCP")),
        state("the set of UDP node ports with policy Local is empty", |p| empty(p, "KUBE-NODE-PORT-LOCAL-UDP")),
        state("the set of services without local endpoints is empty", |p| empty(p, "KUBE-NO-LOCAL-ENDPOINTS")),
        state("the set of cluster IPs without local endpoints is empty", |p| empty(p, "KUBE-CLUSTER-IP-NO-LOCAL")),
        state("the set of service addresses is empty", |p| empty(p, "KUBE-IPVS-IPS")),
    ]
}

#[rustfmt::skip]
fn marking() -> Vec<Mutant> {
    vec![
        rules("hairpin is not masqueraded", |r| POSTROUTING.remove(r, |rule| asks(rule, "KUBE-LOOP-BACK"))),
        rules("every packet to an endpoint is masqueraded", |r| POSTROUTING.edit(r, |rule| asks(rule, "KUBE-LOOP-BACK"), |rule| strip(rule, |one| matches!(one, Match::Set(_))))),
        rules("everything is masqueraded", |r| POSTROUTING.remove(r, |rule| rule.target == RuleTarget::Return)),
        rules("nothing marked is masqueraded", |r| POSTROUTING.remove(r, |rule| masquerades(rule) && !asks(rule, "KUBE-LOOP-BACK"))),
        rules("the mark is another bit", |r| MARK.edit(r, any, |rule| if let RuleTarget::Mark { value, mask } = &mut rule.target { (*value, *mask) = (0x8000, 0x8000); })),
        rules("packets to cluster IPs are never marked", |r| SERVICES.remove(r, |rule| asks(rule, "KUBE-CLUSTER-IP") && jumps(rule, "KUBE-MARK"))),
        rules("packets to cluster IPs are always marked", |r| SERVICES.edit(r, |rule| asks(rule, "KUBE-CLUSTER-IP") && jumps(rule, "KUBE-MARK"),
            |rule| (rule.header.source, rule.header.input) = (None, None))),
        rules("packets to external IPs are never marked", |r| SERVICES.remove(r, |rule| asks(rule, "KUBE-EXTERNAL-IP") && jumps(rule, "KUBE-MARK"))),
        rules("packets to external IPs with policy Local are always marked", |r| SERVICES.edit(r, |rule| asks(rule, "KUBE-EXTERNAL-IP-LOCAL") && jumps(rule, "KUBE-MARK"), |rule| strip(rule, is_local))),
        rules("packets to load-balancer addresses are never marked", |r| BALANCERS.remove(r, |rule| jumps(rule, "KUBE-MARK"))),
        rules("packets to load-balancer addresses with policy Local are marked", |r| BALANCERS.remove(r, |rule| rule.target == RuleTarget::Return)),
        rules("packets to node ports are never marked", |r| NODE_PORTS.remove(r, |rule| jumps(rule, "KUBE-MARK"))),
        rules("packets to node ports with policy Local are marked", |r| NODE_PORTS.remove(r, |rule| rule.target == RuleTarget::Return)),
    ]
}

#[rustfmt::skip]
fn refusals() -> Vec<Mutant> {
    vec![
        rules("the node's own sockets answer on service addresses", |r| OWN_LISTENERS.remove(r, |rule| matches!(rule.target, RuleTarget::Reject(_)))),
        rules("other ports of service addresses drop", |r| OWN_LISTENERS.edit(r, |rule| matches!(rule.target, RuleTarget::Reject(_)), |rule| rule.target = RuleTarget::Drop)),
        rules("the services' own ports reject", |r| OWN_LISTENERS.remove(r, |rule| rule.target == RuleTarget::Return)),
        rules("refusals come first", |r| OWN_LISTENERS.reorder(r, |chain| chain.reverse())),
        rules("source ranges allow every client", |r| RANGES.remove(r, is_drop)),
        rules("source ranges reject the others", |r| RANGES.edit(r, is_drop, |rule| rule.target = RuleTarget::Reject(RejectWith::TcpReset))),
        rules("source ranges allow no client", |r| RANGES.remove(r, |rule| asks(rule, "KUBE-LOAD-BALANCER-SOURCE-CIDR"))),
        rules("source ranges are not checked", |r| FIREWALL.remove(r, |rule| jumps(rule, "KUBE-SOURCE-RANGES"))),
        rules("source ranges do not apply to the node's own packets", |r| OWN_CALLS.remove(r, |rule| asks(rule, "KUBE-LOAD-BALANCER-FW"))),
        rules("frontends without local endpoints accept", |r| FIREWALL.remove(r, |rule| asks(rule, "KUBE-NO-LOCAL-ENDPOINTS"))),
        rules("frontends without local endpoints also drop packets of pods", |r| FIREWALL.edit(r, |rule| asks(rule, "KUBE-NO-LOCAL-ENDPOINTS"), |rule| {
            (rule.header.source, rule.header.input) = (None, None);
            strip(rule, is_local);
        })),
        rules("cluster IPs without local endpoints accept", |r| FIREWALL.remove(r, |rule| asks(rule, "KUBE-CLUSTER-IP-NO-LOCAL"))),
        rules("cluster IPs without local endpoints accept the node's own packets", |r| OWN_CALLS.remove(r, |rule| asks(rule, "KUBE-CLUSTER-IP-NO-LOCAL"))),
    ]
}

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
