use std::sync::Arc;

use super::labels;
use crate::fraction::Fraction;
use crate::network::{Journey, PacketVerdict};
use crate::trace::Event;

pub(super) struct JourneyEvents<'a> {
    pub(super) share: &'a Fraction,
    pub(super) journey: &'a Journey,
    pub(super) events: Vec<&'a Event>,
}

impl<'a> JourneyEvents<'a> {
    pub(super) fn new(share: &'a Fraction, journey: &'a Journey) -> JourneyEvents<'a> {
        let back = journey.reply.iter().flat_map(|reply| &reply.trace);
        JourneyEvents { share, journey, events: journey.request.trace.iter().chain(back).collect() }
    }

    pub(super) fn only_chance(&self, from: usize, to: usize) -> bool {
        let events = self.events.get(from..to).unwrap_or_default();
        events.iter().all(|event| is_chance(event))
    }

    /// Returns the backend's address, and its machine with the forwarding machines after event `from`.
    pub(super) fn backend(&self, from: usize) -> (String, String) {
        let trace = &self.journey.request.trace;
        let address = trace.iter().rev().find_map(|event| match event {
            Event::Sent { packet, .. }
            | Event::Arrived { packet, .. }
            | Event::Translated { packet, .. }
            | Event::Delivered { packet, .. }
            | Event::Refused { packet, .. } => Some(labels::destination(packet)),
            _ => None,
        });
        let met = |event: &'a Event| match event {
            Event::Arrived { host, .. } => Some(host),
            _ => None,
        };
        let mut by: Vec<&Arc<str>> = trace.get(from..).unwrap_or_default().iter().filter_map(met).collect();
        let last = by.pop().or_else(|| trace.iter().rev().find_map(machine));
        let end = match &self.journey.verdict {
            PacketVerdict::Answered { .. } | PacketVerdict::Unanswered { .. } => "on",
            PacketVerdict::Refused { .. } => "refused on",
            PacketVerdict::Rejected { .. } => "rejected on",
            PacketVerdict::Dropped { .. } => "lost on",
        };
        let mut on = last.map(|last| format!("{end} {last}")).unwrap_or_default();
        if !by.is_empty() {
            on = format!("{on} by {}", by.iter().map(|host| &***host).collect::<Vec<_>>().join(", "));
        }
        (address.unwrap_or_default(), on)
    }
}

pub(super) fn machine(event: &Event) -> Option<&Arc<str>> {
    match event {
        Event::Sent { host, .. }
        | Event::Arrived { host, .. }
        | Event::Delivered { host, .. }
        | Event::Refused { host, .. } => Some(host),
        _ => None,
    }
}

pub(super) fn is_chance(event: &Event) -> bool {
    matches!(event, Event::Chance { .. } | Event::Drawn { .. })
}

pub(super) fn shared(ways: &[&JourneyEvents<'_>]) -> usize {
    let Some(first) = ways.first() else { return 0 };
    let same = |at: &usize| ways.iter().all(|way| way.events.get(*at) == first.events.get(*at));
    (0..first.events.len()).take_while(same).count()
}

pub(super) fn sum(ways: &[&JourneyEvents<'_>]) -> Fraction {
    ways.iter().fold(Fraction::zero(), |sum, way| sum.plus(way.share))
}
