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
    pub(super) fn take(&mut self, line: &str) -> bool {
        let arrived = line.strip_prefix(MARK).and_then(|text| serde_json::from_str(text).ok());
        let is_step = arrived.is_some();
        self.0.extend(arrived);
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
