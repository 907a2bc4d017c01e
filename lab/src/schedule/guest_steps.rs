//! A guest's finished steps, as lines of JSON. The host reports them even if the guest is stopped.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::report::{ScenarioReport, StepRecord, StepReport};
use crate::scenario::Scenario;

/// The prefix of a line with a step.
const MARK: &str = "svclab-step ";

#[derive(Debug, Serialize, Deserialize)]
struct GuestStep {
    scenario: String,
    step: StepRecord,
}

pub(super) fn send(scenario: &str, step: &StepReport) {
    let sent = GuestStep { scenario: scenario.to_owned(), step: StepRecord::from(step) };
    if let Ok(text) = serde_json::to_string(&sent) {
        eprintln!("{MARK}{text}");
    }
}

#[derive(Debug, Default)]
pub(super) struct GuestSteps(Vec<GuestStep>);

impl GuestSteps {
    /// Takes the step of a line of the serial console, which may share the line with messages of the kernel. Returns
    /// whether the line has a step.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let step = line.split_once(MARK).and_then(|(_, after)| {
            let mut values = serde_json::Deserializer::from_str(after).into_iter();
            values.next()?.ok()
        });
        let is_step = step.is_some();
        self.0.extend(step);
        is_step
    }

    fn of<'a>(&'a self, scenario: &'a Scenario) -> impl Iterator<Item = &'a StepRecord> {
        self.0.iter().filter(|one| one.scenario == scenario.name).map(|one| &one.step)
    }

    pub(super) fn has(&self, scenario: &Scenario) -> bool {
        self.of(scenario).next().is_some()
    }

    pub(super) fn fill(&self, scenario: &Scenario, report: &mut ScenarioReport) {
        for record in self.of(scenario) {
            let Some(step) = scenario.steps.iter().find(|step| step.line == record.line) else { continue };
            let took = Duration::try_from_secs_f64(record.seconds).unwrap_or_default();
            report.took += took;
            let summary = record.summary.clone();
            report.steps.push(StepReport { summary, took, ..step.report(record.step_verdict()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_shares_its_line_with_a_message_of_the_kernel_is_read() {
        let step = StepRecord { name: "a {\"brace\"} [1] svclab-step".into(), line: 7, ..StepRecord::default() };
        let sent = serde_json::to_string(&GuestStep { scenario: "hairpin".into(), step: step.clone() }).unwrap();
        let line = format!("{MARK}{sent}");
        for (line, is_step) in [
            (line.clone(), true),
            (format!("{line}[  272.3] IPVS: rr: FWM 5 - no destination"), true),
            (format!("[  272.3] IPVS: ftp: loaded{line}"), true),
            (format!("[  1.0] a {line}[  1.1] b"), true),
            (format!("{line}\r"), true),
            (line[..line.len() - 1].to_owned(), false),
            (format!("{MARK}[  272.3] IPVS: {sent}"), false),
            ("  ok   svclab-step is a word of this name".to_owned(), false),
            (String::new(), false),
        ] {
            let mut steps = GuestSteps::default();
            assert_eq!(steps.take(&line), is_step, "{line}");
            let taken: Vec<&StepRecord> = steps.0.iter().map(|one| &one.step).collect();
            assert_eq!(taken, if is_step { vec![&step] } else { vec![] }, "{line}");
        }
    }
}
