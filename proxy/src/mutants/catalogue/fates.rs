//! What becomes of established TCP connections whose endpoint is lost.

use crate::config::Mode;
use crate::model::{FlowFate, Protocol};
use crate::mutants::{Hook, Mutant};
use crate::nftables::Statement;
use crate::ruleset::RuleTarget;

/// The modes that end connections.
const ENDING: &[Mode] = &[Mode::Nftables, Mode::Userspace, Mode::Iptables];

const fn fate(id: &'static str, does: &'static str, hook: Hook) -> Mutant {
    Mutant::new(id, does, "flow-fate", hook).only(ENDING)
}

pub(super) const MUTANTS: &[Mutant] = &[
    fate(
        "fates-ignored",
        "keeps connections of a lost endpoint, though the Service asks for a reset",
        Hook::Plan(|_, plan| plan.flow_fate = FlowFate::Keep),
    ),
    fate(
        "fates-for-all",
        "resets connections of lost endpoints of every Service once one asks for it",
        Hook::ServicePort(|_, port| port.flow_fate = Some(FlowFate::Reset)),
    ),
    fate(
        "fates-without-drain",
        "resets connections at once, though the Service asks for a drain",
        Hook::Plan(|_, plan| {
            if plan.flow_fate != FlowFate::Keep {
                plan.flow_fate = FlowFate::Reset;
            }
        }),
    ),
    fate(
        "fates-of-terminating-endpoints",
        "resets connections to an endpoint that terminates and still serves",
        Hook::Plan(|input, plan| {
            let stays = |address: &std::net::SocketAddr| {
                input.endpoints.iter().any(|endpoint| endpoint.ready && endpoint.address == *address)
            };
            plan.serving.retain(stays);
        }),
    ),
    fate(
        "fates-by-endpoint",
        "resets every translated connection, whichever endpoint is lost",
        Hook::NftRules(|chain, rules| {
            if chain == "lost-flows-check" {
                for rule in rules {
                    rule.statements.retain(|statement| !matches!(statement, Statement::InSet { .. }));
                }
            }
        }),
    )
    .only(&[Mode::Nftables]),
    fate(
        "fates-without-reset",
        "rejects open connections by ICMP, which they ignore, where the Service has no endpoints",
        Hook::Rules(|_, rules| rules.retain(|rule| rule.target != RuleTarget::Reset)),
    )
    .only(&[Mode::Iptables]),
    fate(
        "fates-entries-stay",
        "deletes no conntrack entries of TCP, so that connections of a lost endpoint stay translated",
        Hook::Stale(|filter, flow| flow.protocol != Protocol::Tcp && filter.is_stale(flow)),
    )
    .only(&[Mode::Iptables]),
];
