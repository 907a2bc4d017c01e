//! A line per step, and the details of failures.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use super::{Evidence, ScenarioReport, StepReport, StepVerdict};
use crate::log;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Shows failures and the last line.
    Failures,
    #[default]
    Steps,
    /// Shows all steps, servers' answers, and the end of the proxies' logs.
    All,
}

#[derive(Debug, Clone, Copy)]
pub struct Heading<'a> {
    pub name: &'a str,
    pub mode: &'a str,
    pub about: &'a str,
    /// Whether the run's clock is virtual, as in deterministic microVMs and in the simulator.
    pub virtual_time: bool,
}

pub struct Terminal<W> {
    out: W,
    colour: bool,
    detail: Detail,
    /// The heading, until it is written: [`Detail::Failures`] writes it before the first failure.
    heading: Option<String>,
    virtual_time: bool,
}

impl<W: Write> Terminal<W> {
    pub fn new(out: W, colour: bool, detail: Detail) -> Self {
        Terminal { out, colour, detail, heading: None, virtual_time: false }
    }

    pub fn scenario(&mut self, heading: &Heading<'_>) {
        let title = self.paint("1", &format!("{} ({})", heading.name, heading.mode));
        self.virtual_time = heading.virtual_time;
        self.heading = Some(format!("{title}  {}", heading.about));
        if self.detail > Detail::Failures {
            self.begin();
        }
    }

    fn begin(&mut self) {
        if let Some(heading) = self.heading.take() {
            self.line(&heading);
        }
    }

    pub fn step(&mut self, step: &StepReport) {
        if self.detail == Detail::Failures && !matches!(step.verdict, StepVerdict::Failed(_) | StepVerdict::Error(_)) {
            return;
        }
        self.begin();
        let mark = match step.verdict {
            StepVerdict::Passed => self.paint("32", "ok  "),
            StepVerdict::Failed(_) | StepVerdict::Error(_) => self.paint("31", "FAIL"),
            StepVerdict::Skipped => self.paint("33", "skip"),
            StepVerdict::NotSimulated(_) | StepVerdict::NotJudged(_) => self.paint("33", "  - "),
        };
        let took = self.paint("2", &duration(step.took));
        let seen = self.seen(step);
        let seen = if seen.is_empty() { String::new() } else { format!("  {}", self.paint("2", &seen)) };
        if let StepVerdict::NotSimulated(why) | StepVerdict::NotJudged(why) = &step.verdict {
            let why = self.paint("2", &format!("{}: {why}", step.verdict.word()));
            return self.line(&format!("  {mark} {}  {why}", step.name));
        }
        self.line(&format!("  {mark} {} {took}{seen}", step.name));
        for problem in step.evidence.iter().flat_map(|evidence| &evidence.not_kept) {
            self.line(&format!("       not kept: {problem}"));
        }
    }

    fn seen(&self, step: &StepReport) -> String {
        match &step.answers {
            Some(answers) if self.detail == Detail::All => {
                step.summary.replacen(&answers.tally.brief(), &answers.tally.summary(), 1)
            }
            _ => step.summary.clone(),
        }
    }

    pub fn done(&mut self, report: &ScenarioReport) {
        if self.detail == Detail::Failures && report.passed() {
            self.heading = None;
            return;
        }
        self.begin();
        let text = if report.passed() { String::new() } else { explain(report, self.detail) };
        if self.detail == Detail::All {
            report.logs.lines().for_each(|line| self.line(&format!("    log: {line}")));
        }
        let verdict = if report.passed() { self.paint("32", "passed") } else { self.paint("31", "FAILED") };
        let line = format!("  {verdict} in {}", self.time(report.took));
        self.line(&format!("{text}{line}"));
    }

    pub fn total(&mut self, reports: &[ScenarioReport]) {
        let broken: Vec<&str> =
            reports.iter().filter(|report| !report.passed()).map(|report| report.name.as_str()).collect();
        let steps: usize = reports.iter().map(|report| report.steps.len()).sum();
        let took = self.time(reports.iter().map(|report| report.took).sum());
        let verdict = if !reports.iter().any(ScenarioReport::judged) {
            self.paint("31", "nothing was judged")
        } else if broken.is_empty() {
            self.paint("32", "all passed")
        } else {
            self.paint("31", &format!("failed: {}", broken.join(", ")))
        };
        let steps_with = |wanted: fn(&StepVerdict) -> bool| {
            reports.iter().flat_map(|report| &report.steps).filter(|step| wanted(&step.verdict)).count()
        };
        let unjudged = reports.iter().filter(|report| !report.judged()).count();
        let left_out = [
            (steps_with(|verdict| matches!(verdict, StepVerdict::NotSimulated(_))), "not simulated".to_owned()),
            (steps_with(|verdict| matches!(verdict, StepVerdict::NotJudged(_))), "not judged".to_owned()),
            (unjudged, format!("{} without a judgement", if unjudged == 1 { "scenario" } else { "scenarios" })),
        ];
        let left_out = left_out.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let left_out = left_out.collect::<Vec<_>>().join(", ");
        let left = if left_out.is_empty() { String::new() } else { format!(" ({left_out})") };
        let (scenarios, steps) = (counted(reports.len(), "scenario"), counted(steps, "step"));
        self.line(&format!("{scenarios}, {steps}{left}, {took}: {verdict}"));
    }

    fn time(&self, took: Duration) -> String {
        let clock = if self.virtual_time { " of virtual time" } else { "" };
        format!("{}{clock}", duration(took))
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn line(&mut self, text: &str) {
        // A closed pipe (`| head`) does not stop a run.
        let _ = writeln!(self.out, "{text}");
        let _ = self.out.flush();
    }
}

pub fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns the broken promises, and the command that repeats the run.
fn explain(report: &ScenarioReport, detail: Detail) -> String {
    let mut text = String::new();
    if let Some(why) = &report.not_started {
        let _ = writeln!(text, "    not started: {why}");
        report.start_evidence.iter().for_each(|evidence| evidence_lines(&mut text, evidence));
    }
    if report.interrupted {
        text.push_str("    a signal ended it before its last step\n");
    }
    for step in &report.steps {
        let place = format!("{}:{}: {}", report.path, step.line, step.name);
        match &step.verdict {
            StepVerdict::Failed(mismatches) => {
                for mismatch in mismatches {
                    let _ = writeln!(
                        text,
                        "    {place}\n      expected: {}\n      seen:     {}",
                        mismatch.expected, mismatch.seen
                    );
                }
            }
            StepVerdict::Error(why) => {
                let _ = writeln!(text, "    {place}\n      the lab failed: {why}");
            }
            StepVerdict::Passed | StepVerdict::Skipped | StepVerdict::NotSimulated(_) | StepVerdict::NotJudged(_) => {}
        }
        step.evidence.iter().for_each(|evidence| evidence_lines(&mut text, evidence));
    }
    // `Detail::All` has shown the logs. Only warnings and errors explain a failure; a proxy that did not become ready may
    // say why in a line of any kind.
    let complains = |line: &&str| {
        report.not_started.is_some() || line.split_once(": ").is_some_and(|(_, line)| log::complains(line))
    };
    for line in report.logs.lines().filter(complains).filter(|_| !report.is_explained() && detail < Detail::All) {
        let _ = writeln!(text, "    log: {line}");
    }
    let _ = writeln!(text, "    seed {}; repeat with: {}", report.seed, report.repeat());
    text
}

fn evidence_lines(text: &mut String, evidence: &Evidence) {
    for (number, line) in evidence.explanation.iter().enumerate() {
        let _ = writeln!(text, "      {:<9} {line}", if number == 0 { "why:" } else { "" });
    }
    if let Some(bundle) = &evidence.bundle {
        let _ = writeln!(text, "      bundle:   {}", bundle.display());
    }
}

fn duration(took: Duration) -> String {
    if took < Duration::from_secs(1) {
        format!("{} ms", took.as_millis())
    } else {
        format!("{:.1} s", took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(colour: bool, detail: Detail) -> String {
        let mut out = Vec::new();
        let mut terminal = Terminal::new(&mut out, colour, detail);
        let reports = super::super::sample();
        let heading =
            Heading { name: "hairpin", mode: "iptables", about: "a pod that calls itself", virtual_time: false };
        terminal.scenario(&heading);
        reports[0].steps.iter().for_each(|step| terminal.step(step));
        terminal.done(&reports[0]);
        terminal.total(&reports);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn shown(colour: bool) -> String {
        written(colour, Detail::Steps)
    }

    #[test]
    fn quiet_shows_failures_and_the_last_line() {
        let text = written(false, Detail::Failures);
        assert!(text.starts_with("hairpin (iptables)  a pod that calls itself\n  FAIL it is masked "), "{text}");
        assert!(!text.contains("ok  ") && !text.contains("skip"), "{text}");
        let mut out = Vec::new();
        let mut terminal = Terminal::new(&mut out, false, Detail::Failures);
        let mut reports = super::super::sample();
        reports[0].steps.truncate(1);
        terminal.scenario(&Heading { name: "hairpin", mode: "iptables", about: "", virtual_time: true });
        terminal.step(&reports[0].steps[0]);
        terminal.done(&reports[0]);
        terminal.total(&reports);
        assert_eq!(String::from_utf8_lossy(&out), "1 scenario, 1 step, 1.2 s of virtual time: all passed\n");
    }

    #[test]
    fn verbose_shows_the_logs_and_every_server() {
        let mut step = super::super::sample().remove(0).steps.remove(0);
        let servers = (0..9).map(|number| (format!("default/web-{number}"), number + 1)).collect();
        let tally = crate::expect::OutcomeTally { servers, ..Default::default() };
        step.summary = format!("{}; settled", tally.brief());
        step.answers = Some(crate::expect::StepAnswers { tally, ..Default::default() });
        let line = |detail| {
            let mut out = Vec::new();
            Terminal::new(&mut out, false, detail).step(&step);
            String::from_utf8_lossy(&out).into_owned()
        };
        assert!(line(Detail::Steps).ends_with("  9 pods ×45, 1 to 9 each; settled\n"), "{}", line(Detail::Steps));
        assert!(line(Detail::All).contains("default/web-0 ×1, default/web-1 ×2, "), "{}", line(Detail::All));
        assert!(written(false, Detail::All).contains("INFO started\n"));
    }

    #[test]
    fn a_failure_shows_expected_seen_seed_and_command() {
        insta::assert_snapshot!(shown(false));
    }

    #[test]
    fn an_explanation_replaces_the_logs() {
        let mut reports = super::super::sample();
        let explanation =
            ["on node-a: always  answered by pod/default/web", "decided by rule 1 of chain WEB in table nat: -j DNAT"];
        reports[0].steps[1].evidence = Some(Evidence {
            explanation: explanation.map(str::to_owned).into(),
            bundle: Some("out/hairpin-iptables-step2".into()),
            not_kept: Vec::new(),
        });
        let text = explain(&reports[0], Detail::Steps);
        let said = "      why:      on node-a: always  answered by pod/default/web\n                decided by rule 1 of chain WEB in table nat: -j DNAT\n      bundle:   out/hairpin-iptables-step2\n";
        assert!(text.contains(said) && !text.contains("log:"), "{text}");
    }

    #[test]
    fn a_run_without_judged_steps_does_not_pass() {
        let total = |reports: &[ScenarioReport]| {
            let mut out = Vec::new();
            Terminal::new(&mut out, false, Detail::Steps).total(reports);
            String::from_utf8_lossy(&out).into_owned()
        };
        let mut reports = super::super::sample();
        for step in &mut reports[0].steps {
            step.verdict = StepVerdict::NotSimulated("no model".into());
        }
        let said = "1 scenario, 3 steps (3 not simulated, 1 scenario without a judgement), 1.2 s: nothing was judged\n";
        assert_eq!(total(&reports), said);
        assert!(total(&[]).ends_with(": nothing was judged\n"));
    }

    #[test]
    fn a_proxy_that_did_not_become_ready_shows_its_log() {
        let mut reports = super::super::sample();
        assert!(!explain(&reports[0], Detail::Steps).contains("INFO started"));
        (reports[0].not_started, reports[0].steps) = (Some("not healthy".into()), Vec::new());
        assert!(explain(&reports[0], Detail::Steps).contains("    log: node-a: 2026-01-01T00:00:00Z  INFO started\n"));
    }

    #[test]
    fn colour_is_used_only_on_request() {
        assert!(!shown(false).contains('\u{1b}') && shown(true).contains("\u{1b}[31m"));
    }
}
