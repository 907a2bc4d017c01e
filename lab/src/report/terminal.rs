//! The report for people: a line per step while it works, and what broke with all that is needed to see it again.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use super::{Evidence, ScenarioReport, StepReport, Verdict};

/// Writes progress; colour only where the caller says that it is a terminal.
pub struct Terminal<W> {
    out: W,
    colour: bool,
}

impl<W: Write> Terminal<W> {
    /// Progress to `out`.
    pub fn new(out: W, colour: bool) -> Self {
        Terminal { out, colour }
    }

    /// A scenario begins.
    pub fn scenario(&mut self, name: &str, mode: &str, about: &str) {
        let title = self.paint("1", &format!("{name} ({mode})"));
        self.line(&format!("{title}  {about}"));
    }

    /// A step is done.
    pub fn step(&mut self, step: &StepReport) {
        let mark = match step.verdict {
            Verdict::Passed => self.paint("32", "ok  "),
            Verdict::Failed(_) | Verdict::Error(_) => self.paint("31", "FAIL"),
            Verdict::Skipped => self.paint("33", "skip"),
            Verdict::NotSimulated(_) | Verdict::NotJudged(_) => self.paint("33", "  - "),
        };
        let took = self.paint("2", &duration(step.took));
        let summary =
            if step.summary.is_empty() { String::new() } else { format!("  {}", self.paint("2", &step.summary)) };
        if let Verdict::NotSimulated(why) | Verdict::NotJudged(why) = &step.verdict {
            let why = self.paint("2", &format!("{}: {why}", step.verdict.word()));
            return self.line(&format!("  {mark} {}  {why}", step.name));
        }
        self.line(&format!("  {mark} {} {took}{summary}", step.name));
        for problem in step.evidence.iter().flat_map(|evidence| &evidence.not_kept) {
            self.line(&format!("       not kept: {problem}"));
        }
    }

    /// A scenario is done.
    pub fn done(&mut self, report: &ScenarioReport) {
        let text = if report.passed() { String::new() } else { explain(report) };
        let verdict = if report.passed() { self.paint("32", "passed") } else { self.paint("31", "FAILED") };
        let line = format!("  {verdict} in {}", duration(report.took));
        self.line(&format!("{text}{line}"));
    }

    /// All scenarios are done.
    pub fn total(&mut self, reports: &[ScenarioReport]) {
        let broken: Vec<&str> =
            reports.iter().filter(|report| !report.passed()).map(|report| report.name.as_str()).collect();
        let steps: usize = reports.iter().map(|report| report.steps.len()).sum();
        let took = duration(reports.iter().map(|report| report.took).sum());
        let verdict = if !reports.iter().any(ScenarioReport::judged) {
            self.paint("31", "nothing was judged")
        } else if broken.is_empty() {
            self.paint("32", "all passed")
        } else {
            self.paint("31", &format!("failed: {}", broken.join(", ")))
        };
        let steps_with = |wanted: fn(&Verdict) -> bool| {
            reports.iter().flat_map(|report| &report.steps).filter(|step| wanted(&step.verdict)).count()
        };
        let left_out = [
            (steps_with(|verdict| matches!(verdict, Verdict::NotSimulated(_))), "not simulated"),
            (steps_with(|verdict| matches!(verdict, Verdict::NotJudged(_))), "not judged"),
            (reports.iter().filter(|report| !report.judged()).count(), "scenarios without a judgement"),
        ];
        let left_out = left_out.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let left_out = left_out.collect::<Vec<_>>().join(", ");
        let left = if left_out.is_empty() { String::new() } else { format!(" ({left_out})") };
        self.line(&format!("{} scenarios, {steps} steps{left}, {took}: {verdict}", reports.len()));
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn line(&mut self, text: &str) {
        // A reader that went away (`| head`) is no reason to stop a run.
        let _ = writeln!(self.out, "{text}");
        let _ = self.out.flush();
    }
}

/// What broke, where, and how to see it again.
fn explain(report: &ScenarioReport) -> String {
    let mut text = String::new();
    if let Some(why) = &report.not_started {
        let _ = writeln!(text, "    not started: {why}");
    }
    for step in &report.steps {
        let place = format!("{}:{}: {}", report.path, step.line, step.name);
        match &step.verdict {
            Verdict::Failed(mismatches) => {
                for mismatch in mismatches {
                    let _ = writeln!(
                        text,
                        "    {place}\n      expected: {}\n      seen:     {}",
                        mismatch.expected, mismatch.seen
                    );
                }
            }
            Verdict::Error(why) => {
                let _ = writeln!(text, "    {place}\n      the lab failed: {why}");
            }
            Verdict::Passed | Verdict::Skipped | Verdict::NotSimulated(_) | Verdict::NotJudged(_) => {}
        }
        step.evidence.iter().for_each(|evidence| kept(&mut text, evidence));
    }
    for line in report.logs.lines().filter(|_| !report.is_explained()) {
        let _ = writeln!(text, "    log: {line}");
    }
    let _ = writeln!(text, "    seed {}; repeat with: {}", report.seed, report.repeat());
    text
}

/// Why the request went where it went, and where all that was kept is.
fn kept(text: &mut String, evidence: &Evidence) {
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

    fn shown(colour: bool) -> String {
        let mut out = Vec::new();
        let mut terminal = Terminal::new(&mut out, colour);
        let reports = super::super::sample();
        terminal.scenario("hairpin", "iptables", "a pod that calls itself");
        reports[0].steps.iter().for_each(|step| terminal.step(step));
        terminal.done(&reports[0]);
        terminal.total(&reports);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn a_failure_shows_expected_seen_seed_and_command() {
        insta::assert_snapshot!(shown(false));
    }

    #[test]
    fn an_explanation_takes_the_place_of_the_logs() {
        let mut reports = super::super::sample();
        let explanation = ["on node-a: always  answered by pod/default/web", "decided by 1 in nat: -j DNAT"];
        reports[0].steps[1].evidence = Some(Evidence {
            explanation: explanation.map(str::to_owned).into(),
            bundle: Some("out/hairpin-iptables-step2".into()),
            not_kept: Vec::new(),
        });
        let text = explain(&reports[0]);
        let said = "      why:      on node-a: always  answered by pod/default/web\n                decided by 1 in nat: -j DNAT\n      bundle:   out/hairpin-iptables-step2\n";
        assert!(text.contains(said) && !text.contains("log:"), "{text}");
    }

    #[test]
    fn a_run_that_judged_nothing_is_not_called_kept() {
        let total = |reports: &[ScenarioReport]| {
            let mut out = Vec::new();
            Terminal::new(&mut out, false).total(reports);
            String::from_utf8_lossy(&out).into_owned()
        };
        let mut reports = super::super::sample();
        for step in &mut reports[0].steps {
            step.verdict = Verdict::NotSimulated("no model".into());
        }
        let said =
            "1 scenarios, 3 steps (3 not simulated, 1 scenarios without a judgement), 1.2 s: nothing was judged\n";
        assert_eq!(total(&reports), said);
        assert!(total(&[]).ends_with(": nothing was judged\n"));
    }

    #[test]
    fn colour_only_when_told() {
        assert!(!shown(false).contains('\u{1b}') && shown(true).contains("\u{1b}[31m"));
    }
}
