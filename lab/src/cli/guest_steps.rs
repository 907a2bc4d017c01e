//! The finished steps of a run in a microVM, sent as they end, so that they are reported even if the guest is stopped. Each step is a
//! line of JSON among the lines for people.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::expect::Mismatch;
use crate::report::{ScenarioReport, StepReport, StepVerdict};
use crate::scenario::Scenario;

/// What such a line begins with.
const MARK: &str = "svclab-step ";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct GuestStep {
    scenario: String,
    line: usize,
    passed: bool,
    /// What was expected and what was seen.
    broken: Vec<(String, String)>,
    /// Why it could not be carried out.
    why: Option<String>,
    summary: String,
    took: Duration,
}

/// Inside the guest: sends a step.
pub(super) fn send(scenario: &str, step: &StepReport) {
    let broken = match &step.verdict {
        StepVerdict::Failed(mismatches) => {
            mismatches.iter().map(|mismatch| (mismatch.expected.clone(), mismatch.seen.clone())).collect()
        }
        _ => Vec::new(),
    };
    let why = match &step.verdict {
        StepVerdict::Error(why) | StepVerdict::NotJudged(why) | StepVerdict::NotSimulated(why) => Some(why.clone()),
        _ => None,
    };
    let sent = GuestStep {
        scenario: scenario.to_owned(),
        line: step.line,
        passed: step.verdict.is_green(),
        broken,
        why,
        summary: step.summary.clone(),
        took: step.took,
    };
    if let Ok(text) = serde_json::to_string(&sent) {
        eprintln!("{MARK}{text}");
    }
}

/// Outside: the steps that have arrived.
#[derive(Debug, Default)]
pub(super) struct Steps(Vec<GuestStep>);

impl Steps {
    /// Whether a line is one of these; if so it is taken in.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let arrived = line.strip_prefix(MARK).and_then(|text| serde_json::from_str(text).ok());
        let is_one = arrived.is_some();
        self.0.extend(arrived);
        is_one
    }

    /// Whether any step of a scenario has arrived.
    pub(super) fn has(&self, scenario: &Scenario) -> bool {
        self.0.iter().any(|one| one.scenario == scenario.name)
    }

    /// Puts the steps of a scenario into its report.
    pub(super) fn fill(&self, scenario: &Scenario, report: &mut ScenarioReport) {
        for arrived in self.0.iter().filter(|one| one.scenario == scenario.name) {
            let Some(step) = scenario.steps.iter().find(|step| step.line == arrived.line) else { continue };
            let broken = || arrived.broken.iter().map(|(expected, seen)| Mismatch::new(expected, seen)).collect();
            let verdict = match (&arrived.why, arrived.passed) {
                (None, true) => StepVerdict::Passed,
                (None, false) => StepVerdict::Failed(broken()),
                (Some(why), true) => StepVerdict::NotJudged(why.clone()),
                (Some(why), false) => StepVerdict::Error(why.clone()),
            };
            report.took += arrived.took;
            let (summary, took) = (arrived.summary.clone(), arrived.took);
            report.steps.push(StepReport { summary, took, ..step.report(verdict) });
        }
    }
}
