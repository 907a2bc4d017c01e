//! A path's result as a sentence, with machine names from events, because verdicts have only ids.

use std::sync::Arc;

use super::journey_events::{JourneyEvents, machine};
use super::labels::{self, lost};
use super::line::Tone;
use super::scene;
use crate::network::{Journey, JourneyLeg, LegEnd, PacketVerdict, ReplyFailure};
use crate::trace::Event;

pub(super) fn verdict(way: &JourneyEvents<'_>, lines: Vec<String>) -> scene::VerdictBox {
    let journey = way.journey;
    let by = name(&journey.request);
    let unheard = |delivered: &bool| if *delivered { "" } else { ", without an error to the caller" };
    let (good, text) = match &journey.verdict {
        PacketVerdict::Answered { at, saw, .. } => (true, format!("Answered by {by} at {at}, which sees {}", saw.ip())),
        PacketVerdict::Unanswered { at, saw, why, .. } => {
            let back = journey.reply.as_ref().map(name).unwrap_or_default();
            (false, format!("{by} takes it at {at} and sees {}, but {}", saw.ip(), broken(why, &back)))
        }
        PacketVerdict::Refused { at, delivered, .. } => {
            (false, format!("Refused by {by}: nothing listens at {at}{}", unheard(delivered)))
        }
        PacketVerdict::Rejected { with, delivered, .. } => {
            (false, format!("Rejected by {by} with {with}{}", unheard(delivered)))
        }
        PacketVerdict::Dropped { why, .. } => (false, format!("Lost on {by}: {}", lost(why))),
    };
    scene::VerdictBox { good, text, rule: culprit(journey), lines }
}

fn broken(why: &ReplyFailure, back: &str) -> String {
    match why {
        ReplyFailure::Lost { why, .. } => format!("the answer is lost on {back}: {}", lost(why)),
        ReplyFailure::Rejected { with, .. } => format!("the answer is rejected by {back} with {with}"),
        ReplyFailure::WrongSource { from } => format!("the answer comes from {from}"),
        ReplyFailure::Strayed { .. } => format!("the answer goes to {back}"),
        ReplyFailure::None => "there is no answer".to_owned(),
    }
}

fn culprit(journey: &Journey) -> Option<String> {
    let legs = std::iter::once(&journey.request).chain(&journey.reply);
    let leg = match &journey.verdict {
        PacketVerdict::Answered { .. } | PacketVerdict::Refused { .. } => return None,
        PacketVerdict::Unanswered { .. } => legs.last(),
        PacketVerdict::Rejected { .. } | PacketVerdict::Dropped { .. } => Some(&journey.request),
    };
    let ended = leg.is_some_and(|leg| !matches!(leg.end, LegEnd::Reached { .. }));
    leg.filter(|_| ended)?.trace.iter().rev().find_map(|event| match event {
        Event::Matched(rule) => Some(Some(labels::rule(rule)).filter(|row| row.tone == Tone::Bad).map(|row| row.whole)),
        Event::NftMatched(rule) => {
            Some(Some(labels::nft_rule(rule)).filter(|row| row.tone == Tone::Bad).map(|row| row.whole))
        }
        Event::Rejected(_) | Event::Lost(_) => None,
        _ => Some(None),
    })?
}

fn name(leg: &JourneyLeg) -> Arc<str> {
    let last = leg.trace.iter().rev().find_map(|event: &Event| machine(event));
    last.cloned().unwrap_or_else(|| Arc::from("?"))
}
