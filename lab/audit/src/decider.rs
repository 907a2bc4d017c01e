//! The rule, virtual server or policy that decided an outcome, and its owner.

use svclab_oracle::Mode;
use svclab_sim::network::{Journey, Outcomes, PacketVerdict};
use svclab_sim::rules::ChainPolicy;
use svclab_sim::trace::{DropReason, Event, RuleRef, Trace};

use crate::owner::{ProxyTables, RuleOwner, of_chain};

/// What decided an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    /// The rule's or virtual server's owner.
    pub program: RuleOwner,
    /// The rule's chain; `None` for a virtual server and for a policy of iptables.
    pub chain: Option<String>,
    /// The position and text of the rule or virtual server.
    pub text: String,
}

/// Returns the last rule that translated, rejected or dropped the request.
#[must_use]
pub fn decider(journey: &Journey, tables: &ProxyTables) -> Option<Decider> {
    let mut decided = None;
    walk(&journey.request.trace, tables, |event, last| match event {
        Event::Scheduled { service, server, .. } => {
            let text = format!("the virtual server {service} leads to {server}");
            decided = Some(Decider { program: RuleOwner::Proxy(Mode::Ipvs), chain: None, text });
        }
        Event::Translated { by: "DNAT", .. } => decided = last(),
        event => decided = refused_by(event, tables, last).or(decided.take()),
    });
    decided
}

/// kube-proxy's default `masqueradeBit`, 14 (KubeProxyIPTablesConfiguration).
const MASQUERADE: u32 = 1 << 14;

/// Returns the rule that masqueraded the request: another program's, if that was the first to set the masquerade mark.
#[must_use]
pub fn masquerader(journey: &Journey, tables: &ProxyTables) -> Option<Decider> {
    let (mut marker, mut decided): (Option<Decider>, Option<Decider>) = (None, None);
    walk(&journey.request.trace, tables, |event, last| match event {
        Event::Mark { from, to } if to & !from & MASQUERADE != 0 => marker = last(),
        Event::Translated { by: "SNAT", .. } => {
            let foreign = marker.take().filter(|marker| !matches!(marker.program, RuleOwner::Proxy(_)));
            decided = foreign.or_else(last);
        }
        _ => {}
    });
    decided
}

/// Returns the last rule of another program that accepted the request, perhaps ahead of the proxy's refusal.
#[must_use]
pub fn foreign_accepter(journey: &Journey, tables: &ProxyTables) -> Option<Decider> {
    let accepts = |event: &&Event| match event {
        Event::Matched(rule) => rule.table() == "filter" && rule.to_string().ends_with("-j ACCEPT"),
        Event::NftMatched(rule) => rule.to_string().ends_with(" accept"),
        _ => false,
    };
    let mut accepted = journey.request.trace.iter().filter(accepts).filter_map(|event| matched_rule(event, tables));
    accepted.rfind(|rule| !matches!(rule.program, RuleOwner::Proxy(_)))
}

/// Returns the rule that rejected or dropped the answer, the reset or the ICMP error.
#[must_use]
pub fn answer_refuser(journey: &Journey, tables: &ProxyTables) -> Option<Decider> {
    let mut decided = None;
    walk(&journey.reply.as_ref()?.trace, tables, |event, last| {
        decided = refused_by(event, tables, last).or(decided.take())
    });
    decided
}

/// Calls `visit` with each event, and a way to get the rule that matched last before it.
fn walk(trace: &Trace, tables: &ProxyTables, mut visit: impl FnMut(&Event, &dyn Fn() -> Option<Decider>)) {
    let mut matched = None;
    for event in trace {
        if matches!(event, Event::Matched(_) | Event::NftMatched(_)) {
            matched = Some(event);
        } else {
            visit(event, &|| matched.and_then(|event| matched_rule(event, tables)));
        }
    }
}

fn matched_rule(event: &Event, tables: &ProxyTables) -> Option<Decider> {
    match event {
        Event::Matched(rule) | Event::NftMatched(rule) => Some(of_rule(rule, tables)),
        _ => None,
    }
}

fn of_rule(rule: &RuleRef, tables: &ProxyTables) -> Decider {
    let (program, text) = match rule.table_of_nftables() {
        None => {
            let (chain, written) = (rule.chain(), rule.to_string());
            let matches = written.strip_prefix(&format!("-A {chain} ")).unwrap_or(&written);
            let place = format!("rule {} of chain {chain} in table {}", rule.number(), rule.table());
            (of_chain(chain), format!("{place}: {matches}"))
        }
        Some(table) => (tables.owner(table, rule.chain()), format!("{}: {rule}", rule.place())),
    };
    Decider { program, chain: Some(rule.chain().to_owned()), text }
}

fn refused_by(event: &Event, tables: &ProxyTables, last: &dyn Fn() -> Option<Decider>) -> Option<Decider> {
    match event {
        Event::Rejected(_) => last(),
        Event::Lost(why) => loser(why, tables),
        Event::Policy(table, hook, ChainPolicy::Drop) => loser(&DropReason::Policy(*table, *hook), tables),
        _ => None,
    }
}

/// Returns the rule or policy that lost a packet.
fn loser(why: &DropReason, tables: &ProxyTables) -> Option<Decider> {
    match why {
        DropReason::Rule(rule) | DropReason::NftRule(rule) | DropReason::HopLimit(Some(rule)) => {
            Some(of_rule(rule, tables))
        }
        DropReason::Policy(table, hook) => {
            let text = format!("the policy of {} in {table}", hook.chain());
            Some(Decider { program: RuleOwner::Unknown, chain: None, text })
        }
        DropReason::NftPolicy(chain) => Some(Decider {
            program: tables.owner(chain.table_of_nftables()?, chain.chain()),
            chain: Some(chain.chain().to_owned()),
            text: format!("the policy of {}", chain.place()),
        }),
        DropReason::Discovery(stopped) => {
            let decider = loser(&stopped.why, tables)?;
            Some(Decider { text: format!("{} (neighbour discovery)", decider.text), ..decider })
        }
        _ => None,
    }
}

/// Returns the first journey with this verdict.
#[must_use]
pub fn journey_of<'a>(found: &'a Outcomes, verdict: Option<&PacketVerdict>) -> Option<&'a Journey> {
    let ways = found.ways.iter().map(|(_, journey)| journey);
    match verdict {
        Some(verdict) => ways.clone().find(|journey| journey.verdict == *verdict).or_else(|| ways.clone().next()),
        None => ways.clone().next(),
    }
}
