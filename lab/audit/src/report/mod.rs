//! Reports of an audit: text, Markdown, HTML, JSON, JUnit XML, SARIF.

mod html;
mod junit;
mod markdown;
mod sarif;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use crate::audit::{Finding, Report};

pub use html::html;
pub use junit::junit;
pub use markdown::markdown;
pub use sarif::sarif;
pub use text::text;

/// Returns the fields of [`Report`] as JSON.
///
/// # Errors
/// Never: the fields are text and numbers.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}

/// Returns counts, findings by kind, and the verdict.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut text = format!("{}\n", looked_at(report));
    for (kind, title, all) in by_kind(report) {
        text += &format!("  {:>5}  {kind:<18} {title}\n", all.len());
    }
    text + &format!("{}\n", verdict(report))
}

/// Groups findings by kind, the most frequent kind first.
fn by_kind(report: &Report) -> Vec<(&'static str, &'static str, Vec<&Finding>)> {
    let mut kinds: BTreeMap<&'static str, Vec<&Finding>> = BTreeMap::new();
    for finding in report.wrong() {
        kinds.entry(finding.kind).or_default().push(finding);
    }
    let mut kinds: Vec<_> =
        kinds.into_iter().map(|(kind, all)| (kind, all.first().map_or("", |one| one.title), all)).collect();
    kinds.sort_by_key(|(_, _, all)| std::cmp::Reverse(all.len()));
    kinds
}

fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

fn known(report: &Report) -> BTreeMap<&str, usize> {
    let mut known = BTreeMap::new();
    for why in report.findings.iter().filter_map(|finding| finding.known.as_deref()) {
        *known.entry(why).or_default() += 1;
    }
    known
}

fn looked_at(report: &Report) -> String {
    format!(
        "{} at {}, mode {}: {} with {}, {} judged",
        report.node,
        report.taken,
        report.mode,
        count(report.service_ports, "service port"),
        count(report.frontends, "address"),
        count(report.calls, "call"),
    )
    .replace("addresss", "addresses")
}

fn verdict(report: &Report) -> String {
    let wrong = report.wrong().count();
    if wrong > 0 {
        let services: BTreeSet<&str> = report.wrong().map(|finding| finding.service.as_str()).collect();
        return format!("{} of {}", count(wrong, "finding"), count(services.len(), "service port"));
    }
    match (report.judged(), report.not_judged.is_empty() && report.unsettled == 0) {
        (false, _) => "nothing was judged".to_owned(),
        (true, true) => "nothing is wrong".to_owned(),
        (true, false) => "nothing is wrong in what could be judged".to_owned(),
    }
}
