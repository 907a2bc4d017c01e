//! Carries a scenario out on the kernel: one cluster, one proxy per node, one step after the other.

mod applied;
mod audit;
mod backend;
mod background;
mod churn;
mod command;
mod error;
mod evidence;
mod fakes;
mod faults;
mod feed;
mod idle;
mod kill_on_child;
mod lab;
mod live;
mod marker;
mod measure;
mod metric;
mod node_modes;
mod partition;
mod proxies;
mod proxy;
pub mod soak;
mod stray;

use std::time::{Duration, Instant};

pub use error::LabError;
pub use evidence::Keep;
pub use feed::Source;
pub use lab::Lab;
pub use proxy::{ForeignProxy, Proxy, ProxyFileError};

use svclab_control_plane::Programs;

use super::values::NodeChoice;
use super::{Scenario, Variant, execute};
use crate::mode::Mode;
use crate::report::{ControlPlane, MicroVm, ScenarioReport, StepReport, StepVerdict};

/// How a scenario is run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The proxy.
    pub proxy: Proxy,
    /// Its mode.
    pub mode: Mode,
    /// Its iptables.
    pub variant: Variant,
    /// Where the proxies get the objects from.
    pub source: Source,
    /// The real control plane that serves the objects, where it is not the lab's own API.
    pub control_plane: Option<Programs>,
    /// How long a probe waits for a promised answer, where the step does not say.
    pub patience: Duration,
    /// Goes on after a failed step.
    pub keep_going: bool,
    /// Measures the proxies, by the same means whatever they tell of themselves; after the last step they are looked at over
    /// so much time in which nothing happens, unless a step has done that.
    pub measure: Option<Duration>,
    /// The microVM that this is run in, if it is.
    pub machine: Option<MicroVm>,
    /// Damage done on purpose, to show that a scenario can fail.
    pub breaks: Vec<Break>,
    /// What is kept of a failed step.
    pub evidence: Keep,
    /// Audits all nodes before the first step and after each one that changes rules.
    pub audit: bool,
}

/// Damage done just before a step, with the proxies stopped (SIGSTOP) so that they cannot mend it.
#[derive(Debug, Clone)]
pub struct Break {
    /// The only scenario that is damaged; it ends with a failed step, for it may have hours before it. `None`: whichever has
    /// the step.
    pub scenario: Option<String>,
    /// The step's name.
    pub before: String,
    /// Where.
    pub on: NodeChoice,
    /// Shell commands; none: the proxies are merely stopped.
    pub commands: Vec<String>,
}

impl Break {
    /// Whether it is done before step `step` of scenario `scenario`.
    pub fn is_before(&self, scenario: &str, step: &str) -> bool {
        self.before == step && self.is_for(scenario)
    }

    /// Whether it is for a scenario of that name.
    pub fn is_for(&self, scenario: &str) -> bool {
        self.scenario.as_ref().is_none_or(|only| only == scenario)
    }
}

/// What a run tells while it works.
pub trait Progress: Send {
    /// The scenario begins.
    fn begins(&mut self, scenario: &Scenario, options: &RunOptions);
    /// A step is done.
    fn step(&mut self, step: &StepReport);
    /// The scenario is done.
    fn done(&mut self, report: &ScenarioReport);
    /// Lines of each proxy's log that are kept of a scenario.
    fn log_lines(&self, passed: bool) -> usize {
        if passed { 0 } else { LOG_LINES }
    }
}

/// Says nothing.
pub struct Quiet;

impl Progress for Quiet {
    fn begins(&mut self, _: &Scenario, _: &RunOptions) {}
    fn step(&mut self, _: &StepReport) {}
    fn done(&mut self, _: &ScenarioReport) {}
}

/// Lines of each proxy's log that a broken run shows.
pub const LOG_LINES: usize = 5;

/// The report of a scenario that begins to be run.
pub fn begun(scenario: &Scenario, mode: Mode, variant: Variant) -> ScenarioReport {
    let mut report = execute::empty_report(scenario, mode, scenario.variant.unwrap_or(variant).name());
    let kernel = nix::sys::utsname::uname();
    report.kernel = kernel.ok().map(|name| name.release().to_string_lossy().into_owned());
    report.started = Some(format!("{:.3}", jiff::Timestamp::now()));
    report
}

/// What a signal leaves of a scenario in a mode: `report` has its steps until then, the others are skipped.
pub fn cut_short(scenario: &Scenario, mode: Mode, mut report: ScenarioReport) -> ScenarioReport {
    let done: Vec<usize> = report.steps.iter().map(|step| step.line).collect();
    let left = scenario.steps.iter().filter(|step| step.modes.contains(&mode) && !done.contains(&step.line));
    report.steps.extend(left.map(|step| step.report(StepVerdict::Skipped)));
    report.interrupted = true;
    report
}

/// Runs `scenario` from a fresh cluster to its last step.
pub async fn run(scenario: &Scenario, options: &RunOptions, progress: &mut dyn Progress) -> ScenarioReport {
    let start = Instant::now();
    let options = &RunOptions { variant: scenario.variant.unwrap_or(options.variant), ..options.clone() };
    progress.begins(scenario, options);
    let mut report = begun(scenario, options.mode, options.variant);
    report.machine = options.machine.clone();
    report.audited = options.audit;
    report.control_plane = options.control_plane.as_ref().map(ControlPlane::of);
    match Lab::start(scenario, options).await {
        Ok(mut lab) => {
            // A scenario that is damaged on purpose may have hours before it.
            let is_damaged = options.breaks.iter().any(|damage| damage.scenario.as_ref() == Some(&scenario.name));
            let keep_going = options.keep_going && !is_damaged;
            execute::steps(&mut lab, &scenario.steps, keep_going, |done| {
                progress.step(&done);
                report.steps.push(done);
            })
            .await;
            if let Some(rest) = options.measure {
                lab.rest(rest).await;
                report.figures = lab.figures().await;
            }
            report.logs = match progress.log_lines(report.passed()) {
                0 => String::new(),
                lines => lab.logs(lines),
            };
        }
        Err(error) => {
            report.unable = error.is_of_this_machine();
            report.not_started = Some(error.to_string());
        }
    }
    report.took = start.elapsed();
    progress.done(&report);
    report
}
