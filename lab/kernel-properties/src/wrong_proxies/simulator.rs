use std::path::Path;
use std::sync::Arc;

use svclab::mode::Mode;
use svclab::report::{ScenarioReport, StepVerdict};
use svclab::scenario::Scenario;
use svclab::scenario::simulated::render::{RenderError, RuleSource};
use svclab::scenario::simulated::rendered::Rendered;
use svclab::scenario::simulated::run::run;
use svcproxy::mutants::{Mutant, activate_for_thread};

use super::RedStep;
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

/// Returns the first step that the wrong proxy fails. What the simulator cannot read or carry out is no verdict: the
/// kernel judges it.
pub(super) fn first_red(mutant: &'static Mutant, scenarios: &[&Scenario], mode: Mode) -> Option<RedStep> {
    let mut scenarios = scenarios.iter().filter(|scenario| scenario.modes.contains(&mode));
    scenarios.find_map(|scenario| red_step(&run(scenario, Arc::new(WrongRenderer(mutant)), mode, false)))
}

fn red_step(report: &ScenarioReport) -> Option<RedStep> {
    let red = report.steps.iter().find(|step| matches!(step.verdict, StepVerdict::Failed(_)))?;
    let promise = red.promise.or(report.promise).map(str::to_owned);
    Some(RedStep { scenario: report.name.clone(), step: red.name.clone(), promise })
}
