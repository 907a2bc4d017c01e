//! A packet's ways as a drawing for people: a column for each machine, time downwards, the way there and the way back, an arrow
//! with the packet's addresses wherever it changes machines.
//!
//! Ways become strands ([`merge`]: what is alike is drawn once), strands become visits, hooks and lines ([`scene`]), these get their
//! places ([`layout`]), and places become SVG ([`svg`]). A picture's size depends on the ways that differ and not on how many
//! endpoints a service has.

mod choice;
mod columns;
mod ending;
mod journey_events;
mod labels;
mod layout;
mod likeness;
mod line;
mod merge;
mod scene;
mod shape;
mod share;
mod style;
mod svg;

use crate::network::{Journey, Outcomes};
use crate::trace::Event;
use line::{Ink, Span};
use scene::Strand;

/// Journeys of a packet, each in full and under its title, one beneath the other.
#[must_use]
pub fn draw(ways: &[(String, &Journey)]) -> String {
    let first = ways.first().map(|(_, journey)| *journey);
    picture(first, &merge::each(ways))
}

/// What can become of a packet. Ways that are alike but for the backend are drawn once, and where chance divides them the picture
/// names the alternatives; with `all`, every way is drawn in full, the likeliest first.
#[must_use]
pub fn draw_outcomes(outcomes: &Outcomes, all: bool) -> String {
    let first = outcomes.ways.first().map(|(_, journey)| journey);
    if !all {
        return picture(first, &merge::merged(outcomes));
    }
    let mut ways: Vec<_> = outcomes.ways.iter().collect();
    // Stable: of equals the first in the order of the rules.
    ways.sort_by(|(a, _), (b, _)| b.cmp(a));
    let titled: Vec<(String, &Journey)> =
        ways.iter().map(|(share, journey)| (format!("probability {share}"), journey)).collect();
    draw(&titled)
}

fn picture(first: Option<&Journey>, strands: &[Strand]) -> String {
    let sent = first.and_then(|journey| journey.request.trace.first());
    let Some(Event::Sent { host, packet }) = sent else {
        return svg::write(&layout::draw(&[], "no packet", strands), "no packet");
    };
    let (ends, protocol) = labels::addresses(packet);
    let title = [Span::new(Ink::Code, ends.as_str()), Span::new(Ink::Soft, protocol.as_str())];
    let summary = strands.first().map(|strand| strand.summary.as_str()).filter(|summary| !summary.is_empty());
    let parts = summary.map(|summary| format!(": {summary}")).unwrap_or_default();
    let drawing = layout::draw(&title, &format!("sent by {host}{parts}"), strands);
    svg::write(&drawing, &format!("{ends} {protocol}, sent by {host}"))
}
