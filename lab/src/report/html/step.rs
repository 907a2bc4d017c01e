//! A step: its verdict, what was promised and seen, who answered.

use serde_json::Value;
use svclab_audit::page::Html;

use super::{bars, list, text, time};

/// A card for the step; what passed is folded.
pub(super) fn step(html: &mut Html, number: usize, one: &Value) {
    let verdict = text(one, "verdict");
    let class = match verdict {
        "passed" => "badge good",
        "failed" | "error" => "badge bad",
        _ => "badge note",
    };
    let shown = !list(one, "mismatches").is_empty() || has_bounds(one);
    let (folded, open) = ([("class", "card")], [("class", "card"), ("open", "open")]);
    html.element("details", if shown { &open } else { &folded }, |html| {
        html.element("summary", &[], |html| {
            html.leaf("span", class, verdict);
            html.leaf("strong", "", &format!("{number}. {}", text(one, "name")));
            html.leaf("span", "soft", &format!("{}, line {}, {}", text(one, "action"), one["line"], time(one)));
        });
        html.element("div", &[("class", "inside")], |html| {
            html.element("dl", &[("class", "rows")], |html| {
                if let Some(why) = one["why"].as_str() {
                    html.row("Why", |html| html.text(why));
                }
                for mismatch in list(one, "mismatches") {
                    html.row("Expected", |html| html.text(text(mismatch, "expected")));
                    html.row("Seen", |html| html.leaf("span", "bad", text(mismatch, "seen")));
                }
                let way = list(one, "explanation");
                if !way.is_empty() {
                    html.row("Its way", |html| html.list(way.iter().filter_map(Value::as_str)));
                }
                if !text(one, "bundle").is_empty() {
                    html.row("What was kept", |html| html.leaf("code", "", text(one, "bundle")));
                }
                if !text(one, "summary").is_empty() {
                    html.row("What was seen", |html| html.text(text(one, "summary")));
                }
            });
            bars::draw(html, &one["answers"]);
        });
    });
}

fn has_bounds(one: &Value) -> bool {
    one["answers"]["bounds"].as_object().is_some_and(|bounds| !bounds.is_empty())
}
