//! Decides whether paths are alike: they differ only in the backend, its machine and forwarding machines.

use std::mem;

use crate::network::{Journey, PacketVerdict, ReplyFailure};
use crate::render::text::describe;
use crate::trace::{DropReason, Event};

pub(super) fn likeness(journey: &Journey) -> String {
    let mut text = ending(&journey.verdict);
    for leg in std::iter::once(&journey.request).chain(&journey.reply) {
        text.push_str("\nleg");
        let mut visits = visits(&leg.trace);
        let last = visits.len().saturating_sub(1);
        for (at, visit) in visits.drain(..).enumerate() {
            // Ignores machines that only forward.
            if at == 0 || at == last || visit.acts {
                text.push_str(&visit.text);
            }
        }
    }
    text
}

#[derive(Default)]
struct VisitText {
    text: String,
    acts: bool,
}

fn visits(trace: &[Event]) -> Vec<VisitText> {
    let mut visits = Vec::new();
    let mut now = VisitText::default();
    for event in trace {
        if matches!(event, Event::Sent { .. } | Event::Arrived { .. }) && !now.text.is_empty() {
            visits.push(mem::take(&mut now));
        }
        let (acts, word) = word(event);
        now.acts |= acts;
        if !word.is_empty() {
            now.text.push('\n');
            now.text.push_str(&word);
        }
    }
    visits.push(now);
    visits
}

fn word(event: &Event) -> (bool, String) {
    let quiet = |word: &str| (false, word.to_owned());
    match event {
        Event::Sent { .. } => quiet("sent"),
        Event::Arrived { .. } => quiet("in"),
        Event::Hook(hook) => quiet(hook.chain()),
        Event::Tracked(tracked) => quiet(&format!("{tracked:?}")),
        Event::Table(_)
        | Event::Matched(_)
        | Event::NftChain(_)
        | Event::NftMatched(_)
        | Event::Chance { .. }
        | Event::Drawn { .. }
        | Event::Bridged { .. }
        | Event::Routed { interface: Some(_), .. } => quiet(""),
        Event::Routed { interface: None, .. } => quiet("here"),
        Event::Translated { by, .. } => (true, (*by).to_owned()),
        Event::Scheduled { .. } => (true, "scheduled".to_owned()),
        Event::Delivered { .. } => (true, "delivered".to_owned()),
        Event::Refused { .. } => (true, "refused".to_owned()),
        Event::Lost(DropReason::NoNeighbour(_)) => (true, "no neighbour".to_owned()),
        other => (true, describe(other).1),
    }
}

fn ending(verdict: &PacketVerdict) -> String {
    match verdict {
        PacketVerdict::Answered { .. } => "answered".to_owned(),
        PacketVerdict::Unanswered { why, .. } => format!("unanswered {}", broken(why)),
        PacketVerdict::Refused { delivered, .. } => format!("refused {delivered}"),
        PacketVerdict::Rejected { with, delivered, .. } => format!("rejected {with} {delivered}"),
        PacketVerdict::Dropped { .. } => "dropped".to_owned(),
    }
}

fn broken(why: &ReplyFailure) -> &'static str {
    match why {
        ReplyFailure::Lost { .. } => "lost",
        ReplyFailure::Rejected { .. } => "rejected",
        ReplyFailure::WrongSource { .. } => "from elsewhere",
        ReplyFailure::Strayed { .. } => "strayed",
        ReplyFailure::None => "none",
    }
}
