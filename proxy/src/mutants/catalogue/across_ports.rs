//! Whether the ports of a Service remember clients together.

use super::choice::{dnat_without_renewal, translate_without_renewal};
use crate::config::Mode;
use crate::model::{Family, Protocol};
use crate::mutants::{Hook, Mutant};
use crate::nftables::{NftVerdict, Rule, Statement};
use crate::ruleset::{self, Match};

const SCENARIO: &str = "affinity-across-ports";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "across-ports-ignored",
        "does not know the annotation svcproxy/affinity-across-ports",
        SCENARIO,
        Hook::ServicePort(|_, port| port.affinity_across_ports = false),
    ),
    Mutant::new(
        "across-ports-ignored-in-nftables",
        "remembers the clients of each port in sets of its own",
        SCENARIO,
        Hook::Plan(|_, plan| plan.affinity_across_ports = false),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "across-ports-ignored-by-relays",
        "remembers the clients of each port in a memory of its own",
        SCENARIO,
        Hook::Plan(|_, plan| plan.affinity_across_ports = false),
    )
    .only(&[Mode::Userspace]),
    Mutant::new(
        "across-ports-of-every-service",
        "lets the ports of all Services with session affinity remember clients together",
        SCENARIO,
        Hook::Plan(|_, plan| plan.affinity_across_ports = plan.affinity.is_some()),
    ),
    Mutant::new(
        "across-ports-of-tcp-only",
        "leaves UDP ports out of what the ports of a Service remember together",
        SCENARIO,
        Hook::ServicePort(|_, port| port.affinity_across_ports &= port.name.protocol == Protocol::Tcp),
    ),
    Mutant::new(
        "across-ports-of-ipv4-only",
        "does not know the annotation svcproxy/affinity-across-ports over IPv6",
        SCENARIO,
        Hook::ServicePort(|state, port| port.affinity_across_ports &= state.family() == Family::V4),
    ),
    Mutant::new(
        "across-ports-renewed-by-tcp-only",
        "counts the time-out of clients that ports remember together from the last connection over TCP",
        SCENARIO,
        Hook::NftRules(|_, rules| {
            rules.iter_mut().filter(|rule| is_known_by_udp(rule)).for_each(translate_without_renewal)
        }),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "across-ports-renewed-by-tcp-only-in-iptables",
        "counts the time-out of clients that ports remember together from the last connection over TCP",
        SCENARIO,
        Hook::Rules(|_, rules| *rules = rules.drain(..).flat_map(dnat_of_dns_without_renewal).collect()),
    )
    .only(&[Mode::Iptables]),
];

fn is_known_by_udp(rule: &Rule) -> bool {
    matches!(rule.statements.as_slice(), [Statement::InSet { .. }, Statement::Verdict(NftVerdict::Goto(chain))]
        if chain.starts_with("endpoint-") && chain.contains("/udp/"))
}

/// A rule of iptables mode that finds a known client does not name the protocol, so the port's name tells it.
fn dnat_of_dns_without_renewal(rule: ruleset::Rule) -> Vec<ruleset::Rule> {
    let is_dns = rule.matches.iter().any(|one| matches!(one, Match::Comment(text) if text.contains(":dns -> ")));
    if is_dns { dnat_without_renewal(rule) } else { vec![rule] }
}
