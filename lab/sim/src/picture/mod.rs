//! Draws a packet's paths: a column per machine, time downwards.
//!
//! `merge` turns paths into strands, `scene` events into machines, hooks and lines; `layout` places, `svg` writes them.
//! The size depends on the kinds of paths, not on endpoints.

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

/// Draws whole journeys under titles.
#[must_use]
pub fn draw(ways: &[(String, &Journey)]) -> String {
    let first = ways.first().map(|(_, journey)| *journey);
    picture(first, &merge::each(ways))
}

/// Draws alike paths once, or with `all` every path; the most likely first.
#[must_use]
pub fn draw_outcomes(outcomes: &Outcomes, all: bool) -> String {
    let first = outcomes.ways.first().map(|(_, journey)| journey);
    if !all {
        return picture(first, &merge::merged(outcomes));
    }
    let mut ways: Vec<_> = outcomes.ways.iter().collect();
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
