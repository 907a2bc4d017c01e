//! Reports of an audit: text, Markdown, HTML, JSON, JUnit XML, SARIF. Control characters of the node's files are escaped
//! ([`printable`]) or, in XML, replaced ([`crate::page`]).

mod html;
mod junit;
mod markdown;
mod sarif;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use svclab_sim::render::printable;

use crate::audit::{Coverage, Finding, Report};

pub use html::html;
pub use junit::junit;
pub(crate) use markdown::{code, plain};
pub use sarif::sarif;

/// Returns a summary by kind, then every finding, with packets' paths if `ways`.
#[must_use]
pub fn text(report: &Report, ways: bool) -> String {
    printable(&text::text(report, ways))
}

/// Returns the Markdown.
#[must_use]
pub fn markdown(report: &Report) -> String {
    printable(&markdown::markdown(report))
}

/// Returns the fields of [`Report`] as JSON.
///
/// # Errors
/// Never: the fields are text and numbers.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(report).map(|text| printable(&text) + "\n")
}

/// Returns counts, findings by kind, and the verdict.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut text = head(report);
    for (kind, title, all) in by_kind(report) {
        text += &format!("  {:>5}  {kind:<18} {title}\n", all.len());
    }
    printable(&(text + &format!("{}\n", verdict(report))))
}

/// Returns the first lines: what was judged, and what was not looked at.
fn head(report: &Report) -> String {
    let gaps = report.incomplete.iter().map(|gap| format!("  not looked at: {gap}\n"));
    format!("{}\n{}", looked_at(report), gaps.collect::<String>())
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
        "{} at {}, mode {}: {} with {}, judged {} of {}",
        report.node,
        report.taken,
        report.mode,
        count(report.service_ports, "service port"),
        count(report.frontends, "address"),
        report.judged,
        count(report.calls, "call"),
    )
    .replace("addresss", "addresses")
}

fn verdict(report: &Report) -> String {
    let wrong = report.wrong().count();
    if wrong > 0 {
        let services: BTreeSet<&String> = report.wrong().flat_map(|finding| &finding.services).collect();
        let most = report.wrong().map(|finding| finding.service_count).max().unwrap_or(0);
        return format!("{} of {}", count(wrong, "finding"), count(services.len().max(most), "service port"));
    }
    if report.is_complete() {
        return "nothing is wrong".to_owned();
    }
    format!("not judged: {}", gaps(report).join("; "))
}

/// Returns why an audit without findings does not show that nothing is wrong.
fn gaps(report: &Report) -> Vec<String> {
    let mut gaps = report.incomplete.clone();
    match (report.calls, report.calls - report.judged) {
        (0, _) => gaps.push("there was no call to judge".to_owned()),
        (_, 0) => {}
        (calls, open) => gaps.push(format!("{open} of {} could not be judged", count(calls, "call"))),
    }
    gaps
}

/// Returns how much of the proxy's rules the calls met.
fn met(report: &Report) -> Option<String> {
    let Coverage { total, met, .. } = report.coverage;
    match total - met {
        _ if total == 0 => None,
        0 => Some(format!("all {total} rules and elements of the proxy were met")),
        others => Some(format!("{met} of {total} rules and elements of the proxy were met, but not {others}:")),
    }
}

/// Returns what a finding is about: a service port, or how many.
fn subject(finding: &Finding) -> String {
    match finding.service_count {
        0 => finding.service.clone(),
        1 => format!("{} {} ({})", finding.service, finding.protocol, finding.frontend),
        many => count(many, "service port"),
    }
}

/// Returns the service ports of a finding that has several.
fn services(finding: &Finding) -> Option<String> {
    let shown = finding.services.len();
    (finding.service_count > 1).then(|| match finding.service_count - shown.min(finding.service_count) {
        0 => finding.services.join(", "),
        more => format!("{} and {more} more", finding.services.join(", ")),
    })
}
