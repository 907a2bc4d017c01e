//! The report as JUnit XML, in the shape that CI systems read: a suite per scenario, a case per step.

use std::fmt::Write;

use super::{ScenarioReport, StepReport, StepVerdict};

/// How every document begins.
const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";

/// The whole document.
pub fn render(reports: &[ScenarioReport]) -> String {
    let mut xml = String::from(HEAD);
    for report in reports {
        suite(&mut xml, report);
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// One document of the suites of several that [`render`] made.
pub fn join(documents: &[String]) -> String {
    let suites = documents.iter().filter_map(|document| Some(document.split_once("<testsuites>\n")?.1));
    let suites: String = suites.filter_map(|rest| Some(rest.rsplit_once("</testsuites>")?.0)).collect();
    format!("{HEAD}{suites}</testsuites>\n")
}

/// The document of a scenario that was not run in a mode; `counts`: that is a failure.
pub fn not_run(scenario: &str, mode: &str, why: &str, counts: bool) -> String {
    let (what, errors) = if counts { ("error", 1) } else { ("skipped", 0) };
    let (name, why) = (escape(&format!("{scenario} ({mode})")), escape(why));
    let skipped = 1 - errors;
    format!(
        "{HEAD}  <testsuite name=\"{name}\" tests=\"1\" failures=\"0\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"0.000\">\n    \
         <testcase classname=\"{name}\" name=\"start\">\n      <{what} message=\"{why}\"/>\n    </testcase>\n  \
         </testsuite>\n</testsuites>\n"
    )
}

fn suite(xml: &mut String, report: &ScenarioReport) {
    let count = |wanted: fn(&StepVerdict) -> bool| report.steps.iter().filter(|step| wanted(&step.verdict)).count();
    let failures = count(|verdict| matches!(verdict, StepVerdict::Failed(_)));
    let whole = whole(report);
    let errors = count(|verdict| matches!(verdict, StepVerdict::Error(_))) + whole.len();
    let skipped = count(|verdict| !verdict.is_judged());
    let tests = report.steps.len() + whole.len();
    let name = name(report);
    let begin = report.started.iter().map(|started| format!(" timestamp=\"{}\"", escape(started))).collect::<String>();
    // Writing to a String cannot fail.
    let _ = writeln!(
        xml,
        "  <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\"{begin} time=\"{:.3}\">",
        escape(&name),
        report.took.as_secs_f64()
    );
    for (case, why) in whole {
        let _ = writeln!(xml, "    <testcase classname=\"{}\" name=\"{case}\">", escape(&name));
        let _ = writeln!(xml, "      <error message=\"{}\"/>\n    </testcase>", escape(why));
    }
    for step in &report.steps {
        case(xml, report, step);
    }
    xml.push_str("  </testsuite>\n");
}

/// Of a suite, and of the class of its cases: many readers put cases of one class and name together, from whichever suite.
fn name(report: &ScenarioReport) -> String {
    format!("{} ({}, {})", report.name, report.mode, report.place())
}

/// Errors of the whole scenario, by the case that stands for each.
fn whole(report: &ScenarioReport) -> Vec<(&'static str, &str)> {
    let start = report.not_started.as_deref().map(|why| ("start", why));
    let end = report.interrupted.then_some(("end", "a signal ended the run before the last step"));
    start.into_iter().chain(end).collect()
}

fn case(xml: &mut String, report: &ScenarioReport, step: &StepReport) {
    let _ = write!(
        xml,
        "    <testcase classname=\"{}\" name=\"{}\" file=\"{}\" line=\"{}\" time=\"{:.3}\"",
        escape(&name(report)),
        escape(&step.name),
        escape(&report.path),
        step.line,
        step.took.as_secs_f64()
    );
    match &step.verdict {
        StepVerdict::Passed => xml.push_str("/>\n"),
        StepVerdict::Skipped => xml.push_str(">\n      <skipped/>\n    </testcase>\n"),
        StepVerdict::NotSimulated(why) | StepVerdict::NotJudged(why) => {
            xml.push_str(&format!(
                ">\n      <skipped message=\"{}: {}\"/>\n    </testcase>\n",
                step.verdict.word(),
                escape(why)
            ));
        }
        StepVerdict::Error(why) => {
            let _ = writeln!(xml, ">\n      <error message=\"{}\"/>\n    </testcase>", escape(why));
        }
        StepVerdict::Failed(mismatches) => {
            xml.push_str(">\n");
            let why: String = explained(step).map(|line| format!("why: {}\n", escape(line))).collect();
            for mismatch in mismatches {
                let (expected, seen) = (escape(&mismatch.expected), escape(&mismatch.seen));
                let _ = writeln!(
                    xml,
                    "      <failure message=\"expected: {expected}\">seen: {seen}\n{why}repeat: {}</failure>",
                    escape(&report.repeat())
                );
            }
            xml.push_str("    </testcase>\n");
        }
    }
}

/// Why the request of a failed step went where it went.
fn explained(step: &StepReport) -> impl Iterator<Item = &str> {
    step.evidence.iter().flat_map(|evidence| &evidence.explanation).map(String::as_str)
}

/// XML text: the five special characters, and nothing that XML 1.0 forbids.
fn escape(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\n' => "&#10;".to_owned(),
            c if c.is_control() => "\u{fffd}".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Evidence, MicroVm};

    #[test]
    fn a_suite_per_scenario_a_case_per_step() {
        insta::assert_snapshot!(render(&super::super::sample()));
    }

    #[test]
    fn a_failure_says_why() {
        let mut reports = super::super::sample();
        let explanation = vec!["on node-a: always  refused".to_owned(), "decided by 1 in <nat>".to_owned()];
        reports[0].steps[1].evidence = Some(Evidence { explanation, ..Evidence::default() });
        let said = "seen: 10.0.0.9 &amp; &quot;others&quot;\nwhy: on node-a: always  refused\nwhy: decided by 1 in &lt;nat&gt;\nrepeat: ";
        assert!(render(&reports).contains(said), "{}", render(&reports));
    }

    #[test]
    fn several_documents_are_one() {
        let mut reports = super::super::sample();
        let first = render(&reports);
        reports[0].machine = Some(MicroVm {
            kernel: "debian-6.1".into(),
            deterministic: true,
            image: "0123".into(),
            qemu: String::new(),
        });
        let joined = join(&[first, render(&reports), join(&[])]);
        assert_eq!(joined.matches("<testsuites>").count(), 1);
        let names = [
            "<testsuite name=\"hairpin (iptables, host)\"",
            "<testsuite name=\"hairpin (iptables, debian-6.1, seed 3)\"",
        ];
        assert!(names.iter().all(|name| joined.matches(name).count() == 1), "{joined}");
        // Readers put cases of one class and name together.
        let cases = joined
            .lines()
            .filter_map(|line| line.split_once("<testcase "))
            .map(|(_, case)| case.split_once(" file=").unwrap().0);
        let cases: Vec<&str> = cases.collect();
        let distinct: std::collections::BTreeSet<&&str> = cases.iter().collect();
        assert_eq!((cases.len(), distinct.len()), (6, 6), "{joined}");
        assert!(joined.ends_with("  </testsuite>\n</testsuites>\n"));
    }

    #[test]
    fn what_was_not_run_is_skipped_or_an_error() {
        let skipped = not_run("hairpin", "ipvs", "no <network>", false);
        assert!(skipped.contains("skipped=\"1\"") && skipped.contains("<skipped message=\"no &lt;network&gt;\"/>"));
        let error = not_run("hairpin", "ipvs", "no network", true);
        assert!(error.contains("errors=\"1\"") && error.contains("<error message=\"no network\"/>"), "{error}");
        assert_eq!(join(&[skipped, error]).matches("<testsuite name=\"hairpin (ipvs)\"").count(), 2);
    }

    #[test]
    fn nothing_breaks_out_of_its_attribute() {
        assert_eq!(escape("a\"<&>\n\u{1}"), "a&quot;&lt;&amp;&gt;&#10;\u{fffd}");
    }
}
