//! JUnit XML: a suite per node, a case per service port with findings, and one for all others.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{count, gaps, looked_at, subject};
use crate::audit::{Finding, Report};
use crate::page::escaped as escape;

/// Returns the JUnit XML.
#[must_use]
pub fn junit(report: &Report) -> String {
    let mut services: BTreeMap<String, Vec<&Finding>> = BTreeMap::new();
    for finding in report.wrong() {
        let name = match finding.service_count {
            0 | 1 => format!("{} {}", finding.service, finding.protocol).trim_end().to_owned(),
            _ => format!("{}: {}", subject(finding), finding.cause),
        };
        services.entry(name).or_default().push(finding);
    }
    let skipped = skipped(report);
    let (failures, skips) = (services.len(), skipped.len());
    let tests = failures + skips + usize::from(report.judged > 0);
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" \
         errors=\"0\" skipped=\"{skips}\">\n",
        escape(&looked_at(report))
    );
    let class = escape(&format!("audit.{}.{}", report.node, report.mode));
    if report.judged > 0 {
        let _ = writeln!(xml, "    <testcase classname=\"{class}\" name=\"every other service port\"/>");
    }
    for (service, findings) in services {
        let _ = writeln!(xml, "    <testcase classname=\"{class}\" name=\"{}\">", escape(&service));
        let kinds: Vec<&str> = findings.iter().map(|finding| finding.kind).collect();
        let _ =
            writeln!(xml, "      <failure type=\"{}\" message=\"{}\">", kinds.join(" "), escape(&findings[0].found));
        for finding in findings {
            let _ = writeln!(xml, "{}", escape(&words(finding)));
        }
        xml.push_str("      </failure>\n    </testcase>\n");
    }
    for (name, why) in skipped {
        let (name, why) = (escape(&name), escape(&why));
        let _ = writeln!(
            xml,
            "    <testcase classname=\"{class}\" name=\"{name}\"><skipped message=\"{why}\"/></testcase>"
        );
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// Returns the name of each skipped case, and why it was skipped.
fn skipped(report: &Report) -> Vec<(String, String)> {
    let gaps = gaps(report).into_iter().map(|gap| ("the whole node".to_owned(), gap));
    let calls = report.not_judged.iter().map(|one| (format!("not judged: {}", one.first), one.why.clone()));
    let late = format!("{} changed too late to be judged", count(report.unsettled, "frontend"));
    let late = (report.unsettled > 0).then(|| ("not settled".to_owned(), late));
    let not_asked = report.not_asked.iter().map(|what| ("not asked".to_owned(), what.clone()));
    gaps.chain(calls).chain(not_asked).chain(late).collect()
}

fn words(finding: &Finding) -> String {
    format!(
        "{} ({})\n  {}\n  promised: {}\n    {}\n  found: {}\n  cause: {}\n{}",
        finding.kind,
        finding.frontend,
        finding.calls.join("\n  "),
        finding.promised,
        finding.because.join("\n    "),
        finding.found,
        finding.cause,
        finding.way
    )
}
