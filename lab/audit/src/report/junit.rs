//! JUnit XML: a suite per node, a case per service port with findings, and one for all others.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::looked_at;
use crate::audit::{Finding, Report};
use crate::page::escaped as escape;

/// Returns the JUnit XML.
#[must_use]
pub fn junit(report: &Report) -> String {
    let mut services: BTreeMap<String, Vec<&Finding>> = BTreeMap::new();
    for finding in report.wrong() {
        services.entry(format!("{} {}", finding.service, finding.protocol)).or_default().push(finding);
    }
    let (failures, skipped) = (services.len(), report.not_judged.len() + usize::from(!report.judged()));
    let tests = failures + skipped + usize::from(report.judged());
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" \
         errors=\"0\" skipped=\"{skipped}\">\n",
        escape(&looked_at(report))
    );
    let class = escape(&format!("audit.{}.{}", report.node, report.mode));
    if report.judged() {
        let _ = writeln!(xml, "    <testcase classname=\"{class}\" name=\"every other service port\"/>");
    } else {
        let _ = writeln!(
            xml,
            "    <testcase classname=\"{class}\" name=\"audit\"><skipped message=\"nothing was judged\"/></testcase>"
        );
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
    for one in &report.not_judged {
        let (name, why) = (escape(&format!("not judged: {}", one.first)), escape(&one.why));
        let _ = writeln!(
            xml,
            "    <testcase classname=\"{class}\" name=\"{name}\"><skipped message=\"{why}\"/></testcase>"
        );
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
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
