use std::path::Path;
use std::sync::Arc;

use svclab::mode::Mode;
use svclab::report::{ScenarioReport, StepVerdict};
use svclab::scenario::Scenario;
use svclab::scenario::simulated::render::{RenderError, RuleSource};
use svclab::scenario::simulated::rendered::Rendered;
use svclab::scenario::simulated::run::run;
use svcproxy::mutants::{Mutant, activate_for_thread};

use crate::scenarios::render;

/// Renders in this process, as a wrong proxy.
#[derive(Debug)]
struct WrongRenderer(&'static Mutant);

impl RuleSource for WrongRenderer {
    fn render(
        &self,
        node: &str,
        configuration: &Path,
        flags: &[String],
        manifests: &Path,
    ) -> Result<Rendered, RenderError> {
        let _active = activate_for_thread(self.0);
        render(node, configuration, flags, manifests)
    }
}

/// Returns the first scenario that the wrong proxy fails, and its step.
pub(super) fn first_red(mutant: &'static Mutant, scenarios: &[&Scenario], mode: Mode) -> Option<(String, String)> {
    let scenarios = scenarios.iter().filter(|scenario| scenario.modes.contains(&mode));
    scenarios
        .filter_map(|scenario| {
            let report = run(scenario, Arc::new(WrongRenderer(mutant)), mode, false);
            Some((scenario.name.clone(), red_step(&report)?))
        })
        .next()
}

/// Returns the first failed step. What the simulator cannot read or carry out is no verdict: the kernel judges it.
fn red_step(report: &ScenarioReport) -> Option<String> {
    let red = report.steps.iter().find(|step| matches!(step.verdict, StepVerdict::Failed(_)));
    red.map(|step| step.name.clone())
}
