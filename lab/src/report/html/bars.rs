//! Each server's share of answers as a bar, with the promised share and its accepted interval.

use std::collections::BTreeSet;

use svclab_audit::page::Html;

use super::super::record::AnswersRecord;
use crate::expect::Bounds;

/// The drawing's width in its own units; it stretches to the page's width.
const WIDTH: f64 = 1000.0;

pub(super) fn draw(html: &mut Html, answers: &AnswersRecord) {
    let AnswersRecord { servers, failures, bounds, .. } = answers;
    let sent: usize = servers.values().chain(failures.values()).sum();
    if sent == 0 {
        return;
    }
    let names: BTreeSet<&String> = servers.keys().chain(bounds.keys()).collect();
    let judged = !bounds.is_empty();
    html.element("div", &[("class", "bars")], |html| {
        for name in names {
            let (bounds, count) = (bounds.get(name), servers.get(name).copied().unwrap_or_default());
            let is_within = bounds.is_some_and(|bounds| (bounds.low..=bounds.high).contains(&count));
            bar(html, name, (count, sent), bounds, judged && !is_within);
        }
        for (what, count) in failures {
            bar(html, what, (*count, sent), None, judged);
        }
    });
    if judged {
        html.leaf("p", "soft", "Line: the promised share. Frame: how many answers chance is given.");
    }
}

fn bar(html: &mut Html, name: &str, (count, sent): (usize, usize), bounds: Option<&Bounds>, is_wrong: bool) {
    let at = |number: usize| (number as f64 / sent as f64).clamp(0.0, 1.0) * WIDTH;
    let fixed = |number: f64| format!("{number:.1}");
    let promised =
        bounds.map(|Bounds { share, low, high }| format!(" (promised {:.1} %, {low} to {high})", share * 100.0));
    let words = format!("{count} of {sent}{}", promised.unwrap_or_default());
    html.leaf("span", "code", name);
    let view = format!("0 0 {WIDTH} 18");
    let attributes =
        [("viewBox", view.as_str()), ("preserveAspectRatio", "none"), ("role", "img"), ("aria-label", &words)];
    svg(html, &attributes, |html| {
        let rect = |html: &mut Html, class: &str, x: f64, width: f64, (y, height): (&str, &str)| {
            let (x, width) = (fixed(x), fixed(width));
            html.empty("rect", &[("class", class), ("x", &x), ("y", y), ("width", &width), ("height", height)]);
        };
        rect(html, "track", 0.0, WIDTH, ("3", "12"));
        rect(html, if is_wrong { "fill-bad" } else { "fill" }, 0.0, at(count), ("3", "12"));
        if let Some(Bounds { share, low, high }) = bounds {
            rect(html, "bounds", at(*low), at(*high) - at(*low), ("1", "16"));
            let x = fixed(share * WIDTH);
            html.empty("line", &[("class", "share"), ("x1", &x), ("x2", &x), ("y1", "0"), ("y2", "18")]);
        }
    });
    html.leaf("span", if is_wrong { "number bad" } else { "number" }, &words);
}

/// Writes an `svg` element with its namespace, which XML readers need and browsers do not.
pub(super) fn svg(html: &mut Html, attributes: &[(&str, &str)], inside: impl FnOnce(&mut Html)) {
    let all: Vec<(&str, &str)> =
        [("xmlns", "http://www.w3.org/2000/svg")].into_iter().chain(attributes.iter().copied()).collect();
    html.element("svg", &all, inside);
}
