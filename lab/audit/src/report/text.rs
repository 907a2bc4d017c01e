use std::fmt::Write as _;

use super::{by_kind, count, head, known, met, services, subject, verdict};
use crate::audit::{Finding, Report};

pub(super) fn text(report: &Report, ways: bool) -> String {
    let mut text = head(report);
    for (kind, title, all) in by_kind(report) {
        let _ = writeln!(text, "  {:>5}  {kind:<18} {title}", all.len());
    }
    for (_, _, all) in by_kind(report) {
        for finding in all {
            text.push('\n');
            one(&mut text, finding, ways);
        }
    }
    rest(&mut text, report);
    let _ = writeln!(text, "\n{}", verdict(report));
    text
}

fn one(text: &mut String, finding: &Finding, ways: bool) {
    let _ = writeln!(text, "{}: {}", finding.kind, subject(finding));
    if let Some(services) = services(finding) {
        let _ = writeln!(text, "  services  {services}");
    }
    for call in &finding.calls {
        let _ = writeln!(text, "  call      {call}");
    }
    if finding.count > finding.calls.len() {
        let _ = writeln!(text, "            and {}", count(finding.count - finding.calls.len(), "more call"));
    }
    let _ = writeln!(text, "  promised  {}", finding.promised);
    for reason in &finding.because {
        let _ = writeln!(text, "            {reason}");
    }
    let _ = writeln!(text, "  found     {}", finding.found);
    let _ = writeln!(text, "  cause     {}", finding.cause);
    if ways && !finding.way.is_empty() {
        text.push_str("  way\n");
        for line in finding.way.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
}

fn rest(text: &mut String, report: &Report) {
    if !known(report).is_empty() {
        text.push_str("\nknown differences, on every node of this proxy:\n");
    }
    for (why, number) in known(report) {
        let _ = writeln!(text, "  {why} ({})", count(number, "finding"));
    }
    if report.unsettled > 0 {
        let _ = writeln!(
            text,
            "\nnot settled: {} changed too late to be judged",
            count(report.unsettled, "address").replace("addresss", "addresses")
        );
    }
    if !report.not_judged.is_empty() {
        text.push_str("\nnot judged:\n");
    }
    for one in &report.not_judged {
        let _ = writeln!(text, "  {} ({}), the first: {}", one.why, count(one.count, "call"), one.first);
    }
    if let Some(met) = met(report) {
        let _ = writeln!(text, "\n{met}");
    }
    for line in &report.coverage.unmet {
        let _ = writeln!(text, "  {line}");
    }
    for (title, lines) in [("not asked", &report.not_asked), ("assumed", &report.assumed), ("not read", &report.unread)]
    {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{title}:");
        }
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
    }
}
