//! A packet's way as a drawing: a column for each machine, time downwards, an arrow wherever it changes machines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::Event;
use super::text::describe;
use crate::network::{Journey, Outcomes};

/// Sizes in the drawing's own units, which browsers take for pixels.
const COLUMN: usize = 620;
const LINE: usize = 18;
const MARGIN: usize = 20;
const INDENT: usize = 14;
/// What a character takes, whatever font there is. Text that does not fit into its column is cut, and told as a whole where a
/// pointer rests on it.
const CHARACTER: usize = 8;

/// ModeSemantics of a packet, each with a title, one beneath the other.
#[must_use]
pub fn draw(ways: &[(String, &Journey)]) -> String {
    let mut drawing = Drawing { columns: BTreeMap::new(), y: MARGIN, body: String::new() };
    for (title, journey) in ways {
        drawing.way(title, journey);
    }
    let (width, height) = (drawing.columns.len().max(1) * COLUMN + 2 * MARGIN, drawing.y + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n\
         <style>.machine{{font-weight:bold}}.hook{{fill:#036;font-weight:bold}}.change{{fill:#a40}}.end{{fill:#060;font-weight:bold}}\
         .lost{{fill:#b00;font-weight:bold}}.title{{font-size:15px;font-weight:bold}}path{{stroke:#555;fill:none}}</style>\n\
         <defs><marker id=\"tip\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" orient=\"auto\">\
         <path d=\"M0,0 L8,4 L0,8\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
        drawing.body
    )
}

/// Every way with its probability, the likeliest first; or the likeliest alone.
#[must_use]
pub fn draw_outcomes(outcomes: &Outcomes, all: bool) -> String {
    let mut ways: Vec<_> = outcomes.ways.iter().collect();
    // Stable: of equals the first in the order of the rules.
    ways.sort_by(|(a, _), (b, _)| b.cmp(a));
    let ways = ways.into_iter().take(if all { usize::MAX } else { 1 });
    let titled: Vec<(String, &Journey)> =
        ways.map(|(share, journey)| (format!("probability {share}"), journey)).collect();
    draw(&titled)
}

struct Drawing {
    /// Machines in the order of their first appearance.
    columns: BTreeMap<Arc<str>, usize>,
    y: usize,
    body: String,
}

impl Drawing {
    fn way(&mut self, title: &str, journey: &Journey) {
        self.y += LINE;
        self.text(0, "title", title);
        let mut last = None;
        self.leg(&journey.request.trace, &mut last);
        if let Some(reply) = &journey.reply {
            self.leg(&reply.trace, &mut last);
        }
        self.y += LINE;
    }

    fn leg(&mut self, trace: &[Event], last: &mut Option<(usize, usize)>) {
        for event in trace {
            let at = match event {
                Event::Sent { host, .. } | Event::Arrived { host, .. } => Some(self.column(host)),
                _ => None,
            };
            self.y += LINE;
            if let (Some(to), Some((from, y))) = (at, *last)
                && to != from
            {
                self.arrow(from, y, to);
            }
            let column = at.or(last.map(|(column, _)| column)).unwrap_or_default();
            let (depth, words) = describe(event);
            let x = column * COLUMN + depth * INDENT;
            self.text(x, class(event), &words);
            *last = Some((column, self.y));
        }
    }

    fn column(&mut self, host: &Arc<str>) -> usize {
        let next = self.columns.len();
        *self.columns.entry(Arc::clone(host)).or_insert(next)
    }

    /// From the end of one machine's lines to the next of another's.
    fn arrow(&mut self, from: usize, y: usize, to: usize) {
        let middle = |column: usize| MARGIN + column * COLUMN + COLUMN / 8;
        let (from, to, end) = (middle(from), middle(to), self.y - LINE + 6);
        let _ = writeln!(self.body, "<path d=\"M{from},{} L{to},{end}\" marker-end=\"url(#tip)\"/>", y + 4,);
        self.y += LINE / 2;
    }

    fn text(&mut self, x: usize, class: &str, words: &str) {
        let short: String = words.chars().take((COLUMN - x % COLUMN) / CHARACTER).collect();
        let cut = if short.len() < words.len() { "…" } else { "" };
        let (short, whole) = (escaped(&short), escaped(words));
        let title = if cut.is_empty() { String::new() } else { format!("<title>{whole}</title>") };
        let _ = writeln!(
            self.body,
            "<text x=\"{}\" y=\"{}\" class=\"{class}\">{title}{short}{cut}</text>",
            MARGIN + x,
            self.y
        );
    }
}

fn class(event: &Event) -> &'static str {
    match event {
        Event::Sent { .. } | Event::Arrived { .. } => "machine",
        Event::Hook(_) => "hook",
        Event::Mark { .. }
        | Event::Translated { .. }
        | Event::Scheduled { .. }
        | Event::Chance { .. }
        | Event::Drawn { .. } => "change",
        Event::Delivered { .. } => "end",
        Event::Refused { .. } | Event::Rejected(_) | Event::Lost(_) => "lost",
        _ => "step",
    }
}

/// Rules have comments, and comments whatever somebody called a service.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // No XML has them, however they are written.
            char if char.is_control() => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_place() {
        assert_eq!(escaped("</text><script>&\"\u{7}"), "&lt;/text&gt;&lt;script&gt;&amp;&quot;\u{fffd}");
    }
}
