//! Mutants of userspace mode.

use std::net::SocketAddr;

use svclab_sim::protocol::Protocol;
use svclab_sim::rules::TableName::{Filter, Nat};
use svclab_sim::rules::target::RuleTarget;
use svclab_sim::rules::{Match, Rules};

use super::tools::{ChainsOf, any, jumps, shift_port, strip, wider};
use super::{Expectation, Mutant, Mutation, iptables};
use svclab_sim::cluster::NodeState;
use svclab_sim::relays::Relays;

const FROM_PODS: ChainsOf = ChainsOf(Nat, "KUBE-PORTALS-CONTAINER");
const FROM_NODE: ChainsOf = ChainsOf(Nat, "KUBE-PORTALS-HOST");
const NODE_PORTS: ChainsOf = ChainsOf(Nat, "KUBE-NODEPORT-CONTAINER");
const NODE_PORTS_FROM_NODE: ChainsOf = ChainsOf(Nat, "KUBE-NODEPORT-HOST");
const OWN_PORTS: ChainsOf = ChainsOf(Filter, "KUBE-NODEPORT-NON-LOCAL");

const fn rules(name: &'static str, apply: fn(&mut Rules) -> bool) -> Mutant {
    Mutant { name, change: Mutation::Rules(apply), expectation: Expectation::Broken }
}

const fn ports(name: &'static str, apply: fn(&mut NodeState) -> bool) -> Mutant {
    Mutant { name, change: Mutation::State(apply), expectation: Expectation::Broken }
}

fn endpoints(state: &mut NodeState, how: impl Fn(&mut Vec<SocketAddr>)) -> bool {
    let before = state.relays.clone();
    state.relays.values_mut().for_each(|relay| how(&mut relay.to));
    state.relays != before
}

/// Changes the listening ports.
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

/// Listening ports.
#[rustfmt::skip]
fn relays() -> Vec<Mutant> {
    vec![
        ports("no port listens", |p| listeners(p, |_| Relays::new())),
        ports("ports of the other protocol listen", |p| listeners(p, |all| all.into_iter().map(|((family, protocol, port), to)| {
            let protocol = if protocol == Protocol::TCP { Protocol::UDP } else { Protocol::TCP };
            ((family, protocol, port), to)
        }).collect())),
        ports("the next ports listen", |p| listeners(p, |all| all.into_iter().map(|((family, protocol, port), to)| ((family, protocol, port.wrapping_add(1)), to)).collect())),
        ports("listening ports change places", |p| listeners(p, |all| {
            let mut to: Vec<_> = all.values().cloned().collect();
            if !to.is_empty() { to.rotate_left(1); }
            all.into_keys().zip(to).collect()
        })),
        ports("the first endpoint has no turn", |p| endpoints(p, |all| { all.drain(..1.min(all.len())); })),
        ports("the last endpoint has no turn", |p| endpoints(p, |all| { all.pop(); })),
        ports("the first endpoint has two turns", |p| endpoints(p, |all| if all.len() > 1 { all.push(all[0]); })),
        ports("endpoints are called at the next port", |p| endpoints(p, |all| all.iter_mut().for_each(|to| to.set_port(to.port().wrapping_add(1))))),
    ]
}

/// Rules.
#[rustfmt::skip]
fn portals() -> Vec<Mutant> {
    vec![
        rules("nothing from elsewhere is led to the ports", |r| FROM_PODS.remove(r, any)),
        rules("nothing of the node's own is led to the ports", |r| FROM_NODE.remove(r, any)),
        rules("no node port is led to the ports", |r| NODE_PORTS.remove(r, any)),
        rules("no node port of the node's own is led to the ports", |r| NODE_PORTS_FROM_NODE.remove(r, any)),
        rules("what comes from elsewhere is led to the next port", |r| FROM_PODS.edit(r, any, |rule| next_port(&mut rule.target))),
        rules("what is the node's own is led to the next port", |r| FROM_NODE.edit(r, any, |rule| next_port(&mut rule.target))),
        rules("node ports are led to the next port", |r| NODE_PORTS.edit(r, any, |rule| next_port(&mut rule.target))),
        rules("portals' ports change places", |r| FROM_PODS.rotate_targets(r, is_translation)),
        rules("portals match the next port", |r| FROM_PODS.edit(r, any, shift_port)),
        rules("portals match any port", |r| FROM_PODS.edit(r, any, |rule| strip(rule, |one| matches!(one, Match::Ports(_))))),
        rules("portals match any destination", |r| FROM_PODS.edit(r, any, |rule| rule.header.destination = None)),
        rules("portals match a network 16 bits wider", |r| FROM_PODS.edit(r, any, |rule| {
            if let Some(test) = &mut rule.header.destination { test.is = wider(test.is, 16); }
        })),
        rules("node ports match the next port", |r| NODE_PORTS.edit(r, any, shift_port)),
        rules("the ports are shut", |r| OWN_PORTS.remove(r, |rule| rule.target == RuleTarget::Accept)),
        rules("no jump from nat's PREROUTING", |r| ChainsOf(Nat, "PREROUTING").remove(r, |rule| jumps(rule, "KUBE-"))),
        rules("no jump from nat's OUTPUT", |r| ChainsOf(Nat, "OUTPUT").remove(r, |rule| jumps(rule, "KUBE-"))),
        Mutant {
            name: "the ports are open to clients that call them by their number",
            change: Mutation::Rules(|r| OWN_PORTS.remove(r, |rule| matches!(rule.target, RuleTarget::Reject(_)))),
            expectation: Expectation::Equivalent("no question is put to a number that the proxy has drawn; the kernel's tests put it"),
        },
    ]
}
