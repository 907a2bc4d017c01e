//! JUnit XML: a suite per scenario, a case per step.

use svclab_audit::page::escaped;

use super::record::{NotRunRecord, RunRecord, ScenarioRecord, StepRecord, VerdictWord};

pub fn render(run: &RunRecord) -> String {
    let suites = run.scenarios.iter().map(suite).chain(run.not_run.iter().flatten().map(not_run));
    let name = run.shard.as_ref().map(|shard| format!(" name=\"shard {}\"", shard.shard())).unwrap_or_default();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites{name}>\n{}</testsuites>\n",
        suites.collect::<String>()
    )
}

fn not_run(one: &NotRunRecord) -> String {
    let (what, errors) = if one.is_failure { ("error", 1) } else { ("skipped", 0) };
    let (name, why) = (escape(&format!("{} ({})", one.scenario, one.mode)), escape(&one.why));
    let skipped = 1 - errors;
    format!(
        "  <testsuite name=\"{name}\" tests=\"1\" failures=\"0\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"0.000\">\n    \
         <testcase classname=\"{name}\" name=\"start\">\n      <{what} message=\"{why}\"/>\n    </testcase>\n  </testsuite>\n"
    )
}

fn suite(report: &ScenarioRecord) -> String {
    // The class contains mode and place: many readers merge cases of one class and name, even across suites.
    let class = escape(&format!("{} ({}, {})", report.name, report.mode, report.place()));
    let count = |wanted: &[VerdictWord]| report.steps.iter().filter(|step| wanted.contains(&step.verdict)).count();
    let start = report.not_started.as_deref().map(|why| ("start", why));
    let end = report.interrupted.then_some(("end", "a signal ended the run before the last step"));
    let scenario_errors: Vec<(&str, &str)> = start.into_iter().chain(end).collect();
    let timestamp = report.started.iter().map(|started| format!(" timestamp=\"{}\"", escape(started)));
    let mut xml = format!(
        "  <testsuite name=\"{class}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"{} time=\"{:.3}\">\n",
        report.steps.len() + scenario_errors.len(),
        count(&[VerdictWord::Failed]),
        count(&[VerdictWord::Error]) + scenario_errors.len(),
        count(&[VerdictWord::Skipped, VerdictWord::NotSimulated, VerdictWord::NotJudged]),
        timestamp.collect::<String>(),
        report.seconds,
    );
    if !report.proxy.name.is_empty() {
        let proxy = escape(&report.proxy.title());
        xml += &format!("    <properties><property name=\"proxy\" value=\"{proxy}\"/></properties>\n");
    }
    for (case, why) in scenario_errors {
        xml += &format!("    <testcase classname=\"{class}\" name=\"{case}\">\n");
        xml += &format!("      <error message=\"{}\"/>\n    </testcase>\n", escape(why));
    }
    report.steps.iter().for_each(|step| xml += &case(&class, report, step));
    xml + "  </testsuite>\n"
}

fn case(class: &str, report: &ScenarioRecord, step: &StepRecord) -> String {
    let head = format!(
        "    <testcase classname=\"{class}\" name=\"{}\" file=\"{}\" line=\"{}\" time=\"{:.3}\"",
        escape(&step.name),
        escape(&report.path),
        step.line,
        step.seconds
    );
    let inside = match step.verdict {
        VerdictWord::Passed => return head + "/>\n",
        VerdictWord::Skipped => "      <skipped/>\n".to_owned(),
        VerdictWord::NotSimulated | VerdictWord::NotJudged => {
            let why = escape(step.why.as_deref().unwrap_or_default());
            format!("      <skipped message=\"{}: {why}\"/>\n", step.verdict.word())
        }
        VerdictWord::Error => format!("      <error message=\"{}\"/>\n", escape(step.lab_error())),
        VerdictWord::Failed => failures(report, step),
    };
    format!("{head}>\n{inside}    </testcase>\n")
}

fn failures(report: &ScenarioRecord, step: &StepRecord) -> String {
    let why: String = step.explanation.iter().flatten().map(|line| format!("why: {}\n", escape(line))).collect();
    let repeat = escape(&report.repeat);
    let failure = |(expected, seen): (String, String)| {
        format!("      <failure message=\"expected: {expected}\">seen: {seen}\n{why}repeat: {repeat}</failure>\n")
    };
    step.mismatches.iter().map(|one| failure((escape(&one.expected), escape(&one.seen)))).collect()
}

/// Escapes text. Readers turn a line break in an attribute into a space, unless it is a character reference.
fn escape(text: &str) -> String {
    escaped(text).replace('\n', "&#10;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Evidence, MicroVm, TestedProxy, sample};

    #[test]
    fn a_scenario_is_a_suite_and_a_step_a_case() {
        insta::assert_snapshot!(render(&RunRecord::of(&sample())));
    }

    #[test]
    fn a_failure_has_its_explanation() {
        let mut reports = sample();
        let explanation = vec!["on node-a: always  refused".to_owned(), "decided by 1 in <nat>".to_owned()];
        reports[0].steps[1].evidence = Some(Evidence { explanation, ..Evidence::default() });
        let expected = "seen: 10.0.0.9 &amp; &quot;others&quot;\nwhy: on node-a: always  refused\nwhy: decided by 1 in &lt;nat&gt;\nrepeat: ";
        let xml = render(&RunRecord::of(&reports));
        assert!(xml.contains(expected), "{xml}");
    }

    #[test]
    fn a_failure_of_a_described_proxy_names_it() {
        let mut reports = sample();
        let (name, given) = ("kube-proxy".to_owned(), Some("kube proxy.yaml".to_owned()));
        reports[0].proxy = TestedProxy { name, version: Some("1.36.2".into()), given };
        let xml = render(&RunRecord::of(&reports));
        assert!(xml.contains("<property name=\"proxy\" value=\"kube-proxy 1.36.2\"/>"), "{xml}");
        assert!(
            xml.contains(" --proxy &#39;kube proxy.yaml&#39; ") || xml.contains(" --proxy 'kube proxy.yaml' "),
            "{xml}"
        );
    }

    #[test]
    fn runs_of_one_scenario_on_two_kernels_have_distinct_cases() {
        let mut reports = sample();
        let (kernel, image) = ("debian-6.1".to_owned(), "0123".to_owned());
        let machine = MicroVm { kernel, deterministic: true, image, qemu: String::new() };
        reports.extend(sample());
        reports[1].machine = Some(machine);
        let xml = render(&RunRecord::of(&reports));
        let names = [
            "<testsuite name=\"hairpin (iptables, host)\"",
            "<testsuite name=\"hairpin (iptables, debian-6.1, seed 3)\"",
        ];
        assert!(names.iter().all(|name| xml.matches(name).count() == 1), "{xml}");
        let cases = xml.lines().filter_map(|line| line.split_once("<testcase "));
        let cases: Vec<&str> = cases.map(|(_, case)| case.split_once(" file=").unwrap().0).collect();
        let distinct: std::collections::BTreeSet<&&str> = cases.iter().collect();
        assert_eq!((cases.len(), distinct.len()), (6, 6), "{xml}");
    }

    #[test]
    fn a_scenario_that_was_not_run_is_skipped_or_an_error() {
        let one = |why: &str, is_failure| NotRunRecord {
            scenario: "hairpin".into(),
            mode: "ipvs".into(),
            why: why.into(),
            is_failure,
        };
        let not_run = Some(vec![one("no <network>", false), one("no network", true)]);
        let xml = render(&RunRecord { not_run, ..RunRecord::default() });
        assert!(xml.contains("skipped=\"1\"") && xml.contains("<skipped message=\"no &lt;network&gt;\"/>"), "{xml}");
        assert!(xml.contains("errors=\"1\"") && xml.contains("<error message=\"no network\"/>"), "{xml}");
        assert_eq!(xml.matches("<testsuite name=\"hairpin (ipvs)\"").count(), 2);
    }

    #[test]
    fn text_stays_inside_its_attribute() {
        assert_eq!(escape("a\"<&>\n\u{1}"), "a&quot;&lt;&amp;&gt;&#10;\u{fffd}");
    }
}
