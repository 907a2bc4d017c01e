use svclab_audit::page::Html;

use super::super::record::{StepRecord, VerdictWord};
use super::{bars, time};

/// Writes a step, folded unless it has mismatches or promised shares.
pub(super) fn step(html: &mut Html, number: usize, one: &StepRecord) {
    let class = match one.verdict {
        VerdictWord::Passed => "badge good",
        VerdictWord::Failed | VerdictWord::Error => "badge bad",
        _ => "badge note",
    };
    let has_bounds = one.answers.as_ref().is_some_and(|answers| !answers.bounds.is_empty());
    let (folded, open) = ([("class", "card")], [("class", "card"), ("open", "open")]);
    let is_open = !one.mismatches.is_empty() || has_bounds;
    html.element("details", if is_open { &open } else { &folded }, |html| {
        html.element("summary", &[], |html| {
            html.leaf("span", class, one.verdict.word());
            html.leaf("strong", "", &format!("{number}. {}", one.name));
            html.leaf("span", "soft", &format!("{}, line {}, {}", one.action, one.line, time(one.seconds)));
        });
        html.element("div", &[("class", "inside")], |html| {
            html.element("dl", &[("class", "rows")], |html| rows(html, one));
            if let Some(answers) = &one.answers {
                bars::draw(html, answers);
            }
        });
    });
}

fn rows(html: &mut Html, one: &StepRecord) {
    if let Some(why) = &one.why {
        html.row("Why", |html| html.text(why));
    }
    for mismatch in &one.mismatches {
        html.row("Expected", |html| html.text(&mismatch.expected));
        html.row("Seen", |html| html.leaf("span", "bad", &mismatch.seen));
    }
    if let Some(way) = one.explanation.as_ref().filter(|way| !way.is_empty()) {
        html.row("Its way", |html| html.list(way.iter().map(String::as_str)));
    }
    if let Some(bundle) = &one.bundle {
        html.row("What was kept", |html| html.leaf("code", "", &bundle.display().to_string()));
    }
    if !one.summary.is_empty() {
        html.row("What was seen", |html| html.text(&one.summary));
    }
}
