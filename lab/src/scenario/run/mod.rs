//! Runs a scenario on the kernel: one cluster, a proxy per node, steps in order.

mod applied;
mod audit;
mod backend;
mod background;
mod changes;
mod command;
mod command_faults;
mod error;
mod evidence;
mod faults;
mod feed;
mod idle;
mod kill_on_child;
mod lab;
mod live;
mod machine_time;
mod marker;
mod measure;
mod metric;
mod node_modes;
mod partition;
mod patience;
mod proxies;
mod proxy;
pub mod soak;
mod stray;

use std::time::{Duration, Instant};

pub use error::LabError;
pub use evidence::EvidenceLevel;
pub use feed::ObjectSource;
pub use lab::KernelLab;
pub use proxy::{ForeignProxy, ProxyFileError, ProxyUnderTest};

use svclab_control_plane::Programs;

use super::values::NodeChoice;
use super::{IptablesVariant, Scenario, execute};
use crate::mode::Mode;
use crate::report::{ControlPlane, MicroVm, ScenarioReport, StepReport, StepVerdict, TestedProxy};

#[derive(Debug, Clone)]
pub struct RunOptions {
    pub proxy: ProxyUnderTest,
    /// The value of `--proxy`, or of $SVCPROXY, for the command that repeats the run.
    pub proxy_given: Option<String>,
    pub mode: Mode,
    pub variant: IptablesVariant,
    pub source: ObjectSource,
    /// `None`: the lab's own API.
    pub control_plane: Option<Programs>,
    /// The most that a failing step waits; `None`: each kind of step has its own limit.
    pub patience: Option<Duration>,
    pub keep_going: bool,
    /// Measures proxies from outside; after the last step measures idle proxies for this time, unless a step has done
    /// so.
    pub measure: Option<Duration>,
    pub machine: Option<MicroVm>,
    pub breaks: Vec<Damage>,
    pub evidence: EvidenceLevel,
    pub audit: bool,
}

impl RunOptions {
    pub fn tested_proxy(&self) -> TestedProxy {
        self.proxy.tested(self.proxy_given.clone())
    }
}

/// Damage before a step, with stopped proxies (SIGSTOP), so that they cannot repair it.
#[derive(Debug, Clone)]
pub struct Damage {
    /// The scenario to damage, which ends at the first failed step; `None`: all that have the step.
    pub scenario: Option<String>,
    pub before: String,
    pub at: NodeChoice,
    /// Shell commands; if empty, only stops the proxies.
    pub commands: Vec<String>,
}

impl Damage {
    pub fn is_before(&self, scenario: &str, step: &str) -> bool {
        self.before == step && self.is_for(scenario)
    }

    pub fn is_for(&self, scenario: &str) -> bool {
        self.scenario.as_ref().is_none_or(|only| only == scenario)
    }
}

pub trait Progress: Send {
    fn begins(&mut self, scenario: &Scenario, options: &RunOptions);
    fn step(&mut self, step: &StepReport);
    fn done(&mut self, report: &ScenarioReport);
    fn log_lines(&self, passed: bool) -> usize {
        if passed { 0 } else { LOG_LINES }
    }
}

pub struct NoProgress;

impl Progress for NoProgress {
    fn begins(&mut self, _: &Scenario, _: &RunOptions) {}
    fn step(&mut self, _: &StepReport) {}
    fn done(&mut self, _: &ScenarioReport) {}
}

pub const LOG_LINES: usize = 5;

pub fn begun(scenario: &Scenario, mode: Mode, variant: IptablesVariant) -> ScenarioReport {
    let mut report = execute::empty_report(scenario, mode, scenario.variant.unwrap_or(variant).name());
    let kernel = nix::sys::utsname::uname();
    report.kernel = kernel.ok().map(|name| name.release().to_string_lossy().into_owned());
    report.started = Some(format!("{:.3}", jiff::Timestamp::now()));
    report
}

pub fn cut_short(scenario: &Scenario, mode: Mode, mut report: ScenarioReport) -> ScenarioReport {
    let done: Vec<usize> = report.steps.iter().map(|step| step.line).collect();
    let left = scenario.steps.iter().filter(|step| step.modes.contains(&mode) && !done.contains(&step.line));
    report.steps.extend(left.map(|step| step.report(StepVerdict::Skipped)));
    report.interrupted = true;
    report
}

pub async fn run(scenario: &Scenario, options: &RunOptions, progress: &mut dyn Progress) -> ScenarioReport {
    let start = Instant::now();
    let options = &RunOptions { variant: scenario.variant.unwrap_or(options.variant), ..options.clone() };
    progress.begins(scenario, options);
    let mut report = begun(scenario, options.mode, options.variant);
    report.machine = options.machine.clone();
    report.proxy = options.tested_proxy();
    report.audited = options.audit;
    report.control_plane = options.control_plane.as_ref().map(ControlPlane::of);
    match KernelLab::start(scenario, options).await {
        Ok(mut lab) => {
            // A damaged scenario ends at the failed step, as hours of steps may follow.
            let is_damaged = options.breaks.iter().any(|damage| damage.scenario.as_ref() == Some(&scenario.name));
            let keep_going = options.keep_going && !is_damaged;
            execute::steps(&mut lab, &scenario.steps, keep_going, |done| {
                progress.step(&done);
                report.steps.push(done);
            })
            .await;
            if let Some(rest) = options.measure {
                lab.measure_idle(rest).await;
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
            if let LabError::Proxy(start) = error {
                (report.logs, report.never_ready, report.start_evidence) =
                    (start.logs, start.never_ready, start.evidence);
            }
        }
    }
    report.took = start.elapsed();
    progress.done(&report);
    report
}
