//! Who answered how often, as bars, each with the share that is promised and the bounds that chance is given.

use std::collections::BTreeSet;

use serde_json::Value;
use svclab_audit::page::Html;

/// Width of a bar in units of the drawing, which is stretched to the page's.
const WIDTH: f64 = 1000.0;

/// A bar for each server that answers or should, and for whatever was no answer.
pub(super) fn draw(html: &mut Html, answers: &Value) {
    let counts = |field: &str| answers[field].as_object().into_iter().flatten();
    let sent: u64 = counts("servers").chain(counts("failures")).filter_map(|(_, count)| count.as_u64()).sum();
    if sent == 0 {
        return;
    }
    let names: BTreeSet<&String> = counts("servers").chain(counts("bounds")).map(|(name, _)| name).collect();
    let judged = counts("bounds").next().is_some();
    html.element("div", &[("class", "bars")], |html| {
        for name in names {
            let bounds = &answers["bounds"][name.as_str()];
            let count = answers["servers"][name.as_str()].as_u64().unwrap_or_default();
            let wrong = judged && !is_within(bounds, count);
            one(html, name, (count, sent), bounds, wrong);
        }
        for (what, count) in counts("failures") {
            one(html, what, (count.as_u64().unwrap_or_default(), sent), &Value::Null, judged);
        }
    });
    if judged {
        html.leaf("p", "soft", "Line: the promised share. Frame: how many answers chance is given.");
    }
}

fn is_within(bounds: &Value, count: u64) -> bool {
    let edge = |field: &str| bounds[field].as_u64();
    edge("low").is_some_and(|low| low <= count) && edge("high").is_some_and(|high| count <= high)
}

fn one(html: &mut Html, name: &str, (count, sent): (u64, u64), bounds: &Value, wrong: bool) {
    let at = |number: f64| (number / sent as f64).clamp(0.0, 1.0) * WIDTH;
    let fixed = |number: f64| format!("{number:.1}");
    let promised = match (bounds["share"].as_f64(), &bounds["low"], &bounds["high"]) {
        (Some(share), low, high) => format!(" (promised {:.1} %, {low} to {high})", share * 100.0),
        _ => String::new(),
    };
    let words = format!("{count} of {sent}{promised}");
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
        rect(html, if wrong { "fill-bad" } else { "fill" }, 0.0, at(count as f64), ("3", "12"));
        if let (Some(low), Some(high), Some(share)) =
            (bounds["low"].as_f64(), bounds["high"].as_f64(), bounds["share"].as_f64())
        {
            rect(html, "bounds", at(low), at(high) - at(low), ("1", "16"));
            let x = fixed(share * WIDTH);
            html.empty("line", &[("class", "share"), ("x1", &x), ("x2", &x), ("y1", "0"), ("y2", "18")]);
        }
    });
    html.leaf("span", if wrong { "number bad" } else { "number" }, &words);
}

/// A drawing; browsers know it without its namespace, readers of XML do not.
pub(super) fn svg(html: &mut Html, attributes: &[(&str, &str)], inside: impl FnOnce(&mut Html)) {
    let all: Vec<(&str, &str)> =
        [("xmlns", "http://www.w3.org/2000/svg")].into_iter().chain(attributes.iter().copied()).collect();
    html.element("svg", &all, inside);
}
