use std::sync::Arc;

use futures_util::FutureExt;

use super::lab::SimLab;
use super::render::RuleSource;
use crate::mode::Mode;
use crate::report::{SIMULATED, ScenarioReport};
use crate::scenario::{Scenario, execute};

/// Runs a scenario, up to a failed step unless `keep_going`.
pub fn run(scenario: &Scenario, source: Arc<dyn RuleSource>, mode: Mode, keep_going: bool) -> ScenarioReport {
    let mut report = execute::empty_report(scenario, mode, SIMULATED);
    match SimLab::start(scenario, source, mode) {
        Ok(mut lab) => {
            let steps = execute::steps(&mut lab, &scenario.steps, keep_going, |step| {
                report.took += step.took;
                report.steps.push(step);
            });
            // The simulator never waits, so the first poll completes.
            if steps.now_or_never().is_none() {
                report.not_started = Some("a step of the simulator waited".to_owned());
            }
        }
        Err(error) => report.not_started = Some(error.to_string()),
    }
    report
}
