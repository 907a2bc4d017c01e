use std::net::SocketAddr;

use svclab_sim::protocol::Protocol;
use svclab_sim::rules::Match;
use svclab_sim::rules::TableName::{Filter, Nat};
use svclab_sim::rules::target::RuleTarget;

use super::tools::{ChainsOf, any, jumps, rules, shift_port, state, strip, wider};
use super::{Mutant, iptables};
use svclab_sim::cluster::NodeState;
use svclab_sim::relays::Relays;

const FROM_PODS: ChainsOf = ChainsOf(Nat, "KUBE-PORTALS-CONTAINER");
const FROM_NODE: ChainsOf = ChainsOf(Nat, "KUBE-PORTALS-HOST");
const NODE_PORTS: ChainsOf = ChainsOf(Nat, "KUBE-NODEPORT-CONTAINER");
const NODE_PORTS_FROM_NODE: ChainsOf = ChainsOf(Nat, "KUBE-NODEPORT-HOST");
const OWN_PORTS: ChainsOf = ChainsOf(Filter, "KUBE-NODEPORT-NON-LOCAL");

fn endpoints(state: &mut NodeState, how: impl Fn(&mut Vec<SocketAddr>)) -> bool {
    let before = state.relays.clone();
    state.relays.values_mut().for_each(|relay| how(&mut relay.to));
    state.relays != before
}

fn listeners(state: &mut NodeState, how: impl Fn(Relays) -> Relays) -> bool {
    let before = state.relays.clone();
    state.relays = how(before.clone());
    state.relays != before
}

fn next_port(target: &mut RuleTarget) {
    if let RuleTarget::Dnat(range) | RuleTarget::Redirect(range) = target {
        range.ports = range.ports.map(|(first, last)| (first.wrapping_add(1), last.wrapping_add(1)));
    }
}

fn is_translation(target: &RuleTarget) -> bool {
    matches!(target, RuleTarget::Dnat(_) | RuleTarget::Redirect(_))
}

pub(super) fn all() -> Vec<Mutant> {
    [relays(), portals(), iptables::refusals()].concat()
}

#[rustfmt::skip]
fn relays() -> Vec<Mutant> {
    vec![
        state("no port listens", |p| listeners(p, |_| Relays::new())),
        state("listening ports have the other protocol", |p| listeners(p, |all| all.into_iter().map(|((family, protocol, port), to)| {
            let protocol = if protocol == Protocol::TCP { Protocol::UDP } else { Protocol::TCP };
            ((family, protocol, port), to)
        }).collect())),
        state("listening ports are the next ones", |p| listeners(p, |all| all.into_iter().map(|((family, protocol, port), to)| ((family, protocol, port.wrapping_add(1)), to)).collect())),
        state("listening ports are rotated", |p| listeners(p, |all| {
            let mut to: Vec<_> = all.values().cloned().collect();
            if !to.is_empty() { to.rotate_left(1); }
            all.into_keys().zip(to).collect()
        })),
        state("the first endpoint gets no connection", |p| endpoints(p, |all| { all.drain(..1.min(all.len())); })),
        state("the last endpoint gets no connection", |p| endpoints(p, |all| { all.pop(); })),
        state("the first endpoint gets two turns", |p| endpoints(p, |all| if all.len() > 1 { all.push(all[0]); })),
        state("endpoints are at the next port", |p| endpoints(p, |all| all.iter_mut().for_each(|to| to.set_port(to.port().wrapping_add(1))))),
    ]
}

#[rustfmt::skip]
fn portals() -> Vec<Mutant> {
    vec![
        rules("incoming packets are not redirected", |r| FROM_PODS.remove(r, any)),
        rules("the node's own packets are not redirected", |r| FROM_NODE.remove(r, any)),
        rules("packets to node ports are not redirected", |r| NODE_PORTS.remove(r, any)),
        rules("the node's own packets to node ports are not redirected", |r| NODE_PORTS_FROM_NODE.remove(r, any)),
        rules("incoming packets are redirected to the next port", |r| FROM_PODS.edit(r, any, |rule| next_port(&mut rule.target))),
        rules("the node's own packets are redirected to the next port", |r| FROM_NODE.edit(r, any, |rule| next_port(&mut rule.target))),
        rules("packets to node ports are redirected to the next port", |r| NODE_PORTS.edit(r, any, |rule| next_port(&mut rule.target))),
        rules("the ports of portals are rotated", |r| FROM_PODS.rotate_targets(r, is_translation)),
        rules("portals match the next port", |r| FROM_PODS.edit(r, any, shift_port)),
        rules("portals match any port", |r| FROM_PODS.edit(r, any, |rule| strip(rule, |one| matches!(one, Match::Ports(_))))),
        rules("portals match any destination", |r| FROM_PODS.edit(r, any, |rule| rule.header.destination = None)),
        rules("portals match a network 16 bits wider", |r| FROM_PODS.edit(r, any, |rule| {
            if let Some(test) = &mut rule.header.destination { test.is = wider(test.is, 16); }
        })),
        rules("node ports match the next port", |r| NODE_PORTS.edit(r, any, shift_port)),
        rules("listening ports reject redirected packets", |r| OWN_PORTS.remove(r, |rule| rule.target == RuleTarget::Accept)),
        rules("no jump from nat's PREROUTING", |r| ChainsOf(Nat, "PREROUTING").remove(r, |rule| jumps(rule, "KUBE-"))),
        rules("no jump from nat's OUTPUT", |r| ChainsOf(Nat, "OUTPUT").remove(r, |rule| jumps(rule, "KUBE-"))),
        rules("listening ports accept direct packets", |r| OWN_PORTS.remove(r, |rule| matches!(rule.target, RuleTarget::Reject(_))))
            .equivalent("no question calls a port number that the proxy drew; the kernel tests do"),
    ]
}
