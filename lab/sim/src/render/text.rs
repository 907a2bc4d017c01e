use std::fmt::Write as _;

use crate::conntrack::TrackingState;
use crate::fraction::Fraction;
use crate::network::{Journey, Outcomes};
use crate::rules::ChainPolicy;
use crate::trace::Event;

/// Returns the events of both directions.
#[must_use]
pub fn journey(journey: &Journey) -> String {
    let mut text = String::new();
    for event in &journey.request.trace {
        line(&mut text, "", event);
    }
    if let Some(reply) = &journey.reply {
        text.push_str("and back\n");
        for event in &reply.trace {
            line(&mut text, "", event);
        }
    }
    text
}

/// Returns a tree: shared events once, branches with probability.
#[must_use]
pub fn tree(outcomes: &Outcomes) -> String {
    let ways: Vec<(Vec<&Event>, &Fraction)> =
        outcomes.ways.iter().map(|(share, journey)| (events(journey), share)).collect();
    let mut text = String::new();
    branch(&mut text, "", &ways.iter().map(|(way, share)| (way.as_slice(), *share)).collect::<Vec<_>>());
    text
}

fn events(journey: &Journey) -> Vec<&Event> {
    let reply = journey.reply.iter().flat_map(|reply| &reply.trace);
    journey.request.trace.iter().chain(reply).collect()
}

fn branch(text: &mut String, indent: &str, ways: &[(&[&Event], &Fraction)]) {
    let Some((first, _)) = ways.first() else {
        return;
    };
    let shared = (0..first.len()).take_while(|at| ways.iter().all(|(way, _)| way.get(*at) == first.get(*at))).count();
    for event in &first[..shared] {
        line(text, indent, event);
    }
    if ways.len() == 1 {
        return;
    }
    let mut rest = ways;
    while let Some((head, _)) = rest.first() {
        let split = head.get(shared);
        let same = rest.iter().take_while(|(way, _)| way.get(shared) == split).count();
        let (mine, others) = rest.split_at(same);
        let sum = mine.iter().fold(Fraction::zero(), |sum, (_, share)| sum.plus(share));
        let _ = writeln!(text, "{indent}+-- probability {sum}");
        let deeper = format!("{indent}{}   ", if others.is_empty() { " " } else { "|" });
        let mine: Vec<(&[&Event], &Fraction)> =
            mine.iter().map(|(way, share)| (way.get(shared..).unwrap_or_default(), *share)).collect();
        if mine.iter().all(|(way, _)| way.is_empty()) {
            return;
        }
        branch(text, &deeper, &mine);
        rest = others;
    }
}

fn line(text: &mut String, indent: &str, event: &Event) {
    let (depth, words) = describe(event);
    let _ = writeln!(text, "{indent}{}{words}", "  ".repeat(depth));
}

pub(crate) fn describe(event: &Event) -> (usize, String) {
    match event {
        Event::Sent { host, packet } => (0, format!("{host} sends {packet}")),
        Event::Arrived { host, interface, port: None, packet } => (0, format!("{host}, in by {interface}: {packet}")),
        Event::Arrived { host, interface, port: Some(port), packet } => {
            (0, format!("{host}, in by {interface} (port {port}): {packet}"))
        }
        Event::Hook(hook) => (1, hook.chain().to_owned()),
        Event::Tracked(tracked) => (2, format!("conntrack: {}", tracked_name(*tracked))),
        Event::Table(table) => (2, format!("{table}:")),
        Event::Matched(rule) => (3, rule.numbered()),
        Event::Chance { rule, held, share } => {
            let share = Fraction::new(share.0, share.1);
            let held = if *held { "for" } else { "against" };
            (3, format!("chance is {held} {} {} ({share})", rule.chain(), rule.number()))
        }
        Event::Undecided { asked, holds } => {
            let name = if asked.name.is_empty() { &asked.what } else { &asked.name };
            let place = asked.rule.as_ref().map(|rule| format!(" in {} {}", rule.chain(), rule.number()));
            (3, format!("{name}: unknown, taken as {}{}", yes_no(*holds), place.unwrap_or_default()))
        }
        Event::Assumed { name, holds } => (3, format!("{name}: assumed {}", yes_no(*holds))),
        Event::Arp { host, request, sender, target } => {
            let what = if *request { "request" } else { "reply" };
            (1, format!("{host}: ARP {what} from {sender} to {target}"))
        }
        Event::NftChain(chain) => (2, format!("nftables, {}:", chain.place())),
        Event::NftMatched(rule) => (3, rule.numbered()),
        Event::Drawn { rule, number, of } => (3, format!("{} {} draws {number} of {of}", rule.chain(), rule.number())),
        Event::Policy(table, hook, policy) => {
            let policy = if *policy == ChainPolicy::Drop { "DROP" } else { "ACCEPT" };
            (3, format!("policy of {} in {table}: {policy}", hook.chain()))
        }
        Event::Mark { from, to } => (4, format!("mark 0x{from:x} becomes 0x{to:x}")),
        Event::Translated { by, packet } => (2, format!("{by}: {packet}")),
        Event::Scheduled { service, scheduler, server, share } => {
            let share = share.map(|(share, of)| format!(", {share} of {of}")).unwrap_or_default();
            (2, format!("IPVS: {service} is served by {server} ({scheduler}{share})"))
        }
        Event::Routed { interface: None, .. } => (1, "route: to this machine".to_owned()),
        Event::Routed { interface: Some(interface), next_hop } => {
            let next_hop = next_hop.map(|hop| format!(" to {hop}")).unwrap_or_default();
            (1, format!("route: out by {interface}{next_hop}"))
        }
        Event::Bridged { port } => (1, format!("bridge: stays, towards port {port}")),
        Event::Delivered { host, packet } => (0, format!("{host} takes {packet}")),
        Event::Refused { host, packet } => (0, format!("{host} has no socket for {packet}")),
        Event::Rejected(with) => (1, format!("rejected with {with}")),
        Event::Lost(why) => (1, format!("lost: {}", why)),
    }
}

fn yes_no(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

fn tracked_name(tracked: TrackingState) -> &'static str {
    match tracked {
        TrackingState::New => "NEW",
        TrackingState::Established => "ESTABLISHED",
        TrackingState::Related => "RELATED",
        TrackingState::Invalid => "INVALID",
        TrackingState::Untracked => "UNTRACKED",
    }
}
