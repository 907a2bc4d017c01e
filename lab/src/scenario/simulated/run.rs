//! Carries a scenario out in the simulator: the same steps, the same judgement, no kernel.

use std::sync::Arc;

use futures_util::FutureExt;

use super::lab::SimLab;
use super::render::RuleSource;
use crate::mode::Mode;
use crate::report::{SIMULATED, ScenarioReport};
use crate::scenario::{Scenario, execute};

/// Runs `scenario` with a proxy in `mode`; after a failed step the others are left out, unless told to go on.
pub fn run(scenario: &Scenario, source: Arc<dyn RuleSource>, mode: Mode, keep_going: bool) -> ScenarioReport {
    let mut report = execute::empty_report(scenario, mode, SIMULATED);
    match SimLab::start(scenario, source, mode) {
        Ok(mut lab) => {
            let steps = execute::steps(&mut lab, &scenario.steps, keep_going, |step| {
                report.took += step.took;
                report.steps.push(step);
            });
            // Nothing that the simulator does waits, so that one poll is all.
            if steps.now_or_never().is_none() {
                report.not_started = Some("a step of the simulator waited".to_owned());
            }
        }
        Err(error) => report.not_started = Some(error.to_string()),
    }
    report
}
