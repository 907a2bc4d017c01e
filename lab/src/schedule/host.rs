//! Runs scenarios on this process's kernel, in a sandbox.

use std::time::{Duration, Instant};

use svclab_control_plane::Programs;
use svclab_netns::sandbox;

use super::args::RunArgs;
use super::guest_steps;
use super::job::Job;
use super::output::finish;
use super::runtime::{runtime, stopped};
use super::starts::Starts;
use crate::console::{Stream, progress};
use crate::exit::Exit;
use crate::find;
use crate::report::terminal::{Detail, Heading, Terminal};
use crate::report::{ControlPlane, NotRunRecord, RunRecord, ScenarioReport, StepReport};
use crate::scenario::run::{EvidenceLevel, Progress, ProxyUnderTest, RunOptions};
use crate::scenario::{self, Scenario};

pub(super) fn run(args: &RunArgs, jobs: &[Job<'_>], proxy: &ProxyUnderTest) -> Result<u8, Exit> {
    args.lab.seed.one()?;
    find::tools()?;
    let programs = args.control_plane()?;
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    progress::enable();
    let mut run = TerminalRun {
        terminal: args.terminal(),
        detail: args.detail(),
        is_guest: args.machine.is_some(),
        title: String::new(),
        left: Vec::new(),
        current: None,
    };
    let (mut reports, mut not_run) = (Vec::new(), Vec::new());
    let stopped = runtime()?.block_on(async {
        tokio::select! {
            () = all(args, jobs, (proxy, programs.as_ref()), &mut run, (&mut reports, &mut not_run)) => None,
            stop = stopped() => Some(stop),
        }
    });
    progress::clear();
    if stopped.is_some() {
        let current = run.current.take();
        // Jobs run in order, so the current report belongs to the first job without a report.
        if let (Some((report, begin)), Some(job)) = (current, jobs.get(reports.len() + not_run.len())) {
            let report = ScenarioReport { took: begin.elapsed(), ..report };
            reports.push(scenario::run::cut_short(job.scenario, job.mode, report));
            reports.iter().rev().take(1).for_each(|report| run.terminal.done(report));
        }
    }
    if !(args.is_part || args.is_batch && args.quiet) {
        run.terminal.total(&reports);
    }
    let not_run = Some(not_run).filter(|not_run| !not_run.is_empty());
    finish(args, RunRecord { not_run, ..RunRecord::of(&reports) }, stopped)
}

async fn all(
    args: &RunArgs,
    jobs: &[Job<'_>],
    (proxy, programs): (&ProxyUnderTest, Option<&Programs>),
    progress: &mut TerminalRun,
    (reports, not_run): (&mut Vec<ScenarioReport>, &mut Vec<NotRunRecord>),
) {
    let mut starts = Starts::default();
    for Job { scenario, mode, .. } in jobs {
        if let Some(why) = starts.refusal(scenario, *mode) {
            eprintln!("{} is not run: {why}", scenario.name);
            let (scenario, mode) = (scenario.name.clone(), mode.to_string());
            not_run.push(NotRunRecord { scenario, mode, why, is_failure: true });
            continue;
        }
        let options = RunOptions {
            proxy: proxy.clone(),
            proxy_given: args.proxy_given(),
            mode: *mode,
            variant: args.lab.iptables_variant,
            source: args.lab.source,
            control_plane: programs.cloned(),
            patience: args.patience.map(Duration::from_millis),
            keep_going: args.keep_going,
            measure: args.figures.then_some(Duration::ZERO),
            machine: args.machine.clone(),
            breaks: args.breaks.iter().map(|damage| damage.meant.clone()).collect(),
            audit: args.audit,
            evidence: args.bundles().map_or(EvidenceLevel::Explanation, EvidenceLevel::Bundle),
        };
        let report = scenario::run::run(scenario, &options, progress).await;
        starts.record(scenario, *mode, &report);
        let go_on = report.passed() || args.keep_going;
        reports.push(report);
        if !go_on {
            break;
        }
    }
}

/// The most log lines per proxy in a report with all details.
const LOG_LINES: usize = 20;

struct TerminalRun {
    terminal: Terminal<Stream>,
    detail: Detail,
    /// Whether this is a guest, whose host needs each step.
    is_guest: bool,
    title: String,
    /// Line and name of the remaining steps.
    left: Vec<(usize, String)>,
    /// The current scenario's report so far, and its start.
    current: Option<(ScenarioReport, Instant)>,
}

impl TerminalRun {
    fn next(&self) {
        match self.left.first() {
            Some((_, name)) => progress::set(format!("{}: {name}", self.title)),
            None => progress::set(format!("{}: taking the cluster down", self.title)),
        }
    }
}

impl Progress for TerminalRun {
    fn begins(&mut self, scenario: &Scenario, options: &RunOptions) {
        let plane = options.control_plane.as_ref().map(|plane| format!(", Kubernetes {}", plane.version()));
        let proxy = options.proxy.is_foreign().then(|| format!(", {}", options.tested_proxy().title()));
        let mode = format!("{}{}{}", options.mode, plane.unwrap_or_default(), proxy.unwrap_or_default());
        let virtual_time = options.machine.as_ref().is_some_and(|machine| machine.deterministic);
        self.terminal.scenario(&Heading { name: &scenario.name, mode: &mode, about: &scenario.about, virtual_time });
        self.title = format!("{} ({mode})", scenario.name);
        self.left = scenario.steps.iter().map(|step| (step.line, step.name.clone())).collect();
        let report = scenario::run::begun(scenario, options.mode, options.variant);
        let control_plane = options.control_plane.as_ref().map(ControlPlane::of);
        let (machine, proxy) = (options.machine.clone(), options.tested_proxy());
        let report = ScenarioReport { machine, control_plane, proxy, ..report };
        self.current = Some((report, Instant::now()));
        progress::set(format!("{}: building the cluster, up to the first step", self.title));
    }

    fn step(&mut self, step: &StepReport) {
        self.terminal.step(step);
        self.left.retain(|(line, _)| *line > step.line);
        if let Some((report, _)) = &mut self.current {
            if self.is_guest {
                guest_steps::send(&report.name, step);
            }
            report.steps.push(step.clone());
        }
        self.next();
    }

    fn done(&mut self, report: &ScenarioReport) {
        self.current = None;
        self.terminal.done(report);
    }

    fn log_lines(&self, passed: bool) -> usize {
        match (self.detail, passed) {
            (Detail::All, _) => LOG_LINES,
            (_, true) => 0,
            (_, false) => scenario::run::LOG_LINES,
        }
    }
}
