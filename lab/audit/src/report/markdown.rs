use std::fmt::Write as _;

use super::{by_kind, count, known, looked_at, met, services, subject, verdict};
use crate::audit::{Finding, Report};

pub(super) fn markdown(report: &Report) -> String {
    let mut text = format!(
        "# Service proxy audit of {}\n\n{}.\n\n**{}.**\n",
        plain(&report.node),
        plain(&looked_at(report)),
        plain(&verdict(report))
    );
    if !report.findings.is_empty() {
        text.push_str("\n| kind | findings | meaning |\n| --- | ---: | --- |\n");
        for (kind, title, all) in by_kind(report) {
            let _ = writeln!(text, "| {kind} | {} | {title} |", all.len());
        }
    }
    for (_, _, all) in by_kind(report) {
        all.into_iter().for_each(|finding| one(&mut text, finding));
    }
    if !known(report).is_empty() {
        text.push_str("\n## Known differences, on every node of this proxy\n\n");
    }
    for (why, number) in known(report) {
        let _ = writeln!(text, "- {why} ({})", count(number, "finding"));
    }
    if !report.not_judged.is_empty() {
        text.push_str("\n## Not judged\n\n");
    }
    for one in &report.not_judged {
        let _ = writeln!(text, "- {} ({})", code(&one.why), count(one.count, "call"));
    }
    if let Some(met) = met(report) {
        let _ = writeln!(text, "\n{}\n", plain(&met));
    }
    for line in &report.coverage.unmet {
        let _ = writeln!(text, "- {}", code(line));
    }
    for (title, lines) in [
        ("Not looked at", &report.incomplete),
        ("Not asked", &report.not_asked),
        ("Assumed", &report.assumed),
        ("Not read", &report.unread),
    ] {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n## {title}\n");
        }
        for line in lines {
            let _ = writeln!(text, "- {}", plain(line));
        }
    }
    text
}

fn one(text: &mut String, finding: &Finding) {
    let _ = writeln!(text, "\n## {}: {}\n", finding.kind, plain(&subject(finding)));
    if let Some(services) = services(finding) {
        let _ = writeln!(text, "- **Services:** {}", plain(&services));
    }
    let _ =
        writeln!(text, "- **Call:** {}", finding.calls.iter().map(|call| code(call)).collect::<Vec<_>>().join(", "));
    if finding.count > finding.calls.len() {
        let _ = writeln!(text, "  and {}", count(finding.count - finding.calls.len(), "more call"));
    }
    let _ = writeln!(text, "- **Promised:** {}", code(&finding.promised));
    for reason in &finding.because {
        let _ = writeln!(text, "  - {}", plain(reason));
    }
    let _ = writeln!(text, "- **Found:** {}\n- **Likely cause:** {}", code(&finding.found), code(&finding.cause));
    if !finding.way.is_empty() {
        let _ = writeln!(
            text,
            "\n<details><summary>The packet's way</summary>\n\n~~~~~~text\n{}\n~~~~~~\n\n</details>",
            finding.way.trim_end()
        );
    }
}

pub(crate) fn code(text: &str) -> String {
    let longest = text.split(|char| char != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let text = text.replace('\n', " ");
    if longest == 0 { format!("{fence}{text}{fence}") } else { format!("{fence} {text} {fence}") }
}

pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '~' => out.extend(['\\', char]),
            '\n' => out.push(' '),
            char => out.push(char),
        }
    }
    out
}
