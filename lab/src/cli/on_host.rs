//! Runs scenarios on this machine's kernel, inside a sandbox.

use std::time::Duration;

use svclab_netns::sandbox;

use super::jobs::Job;
use super::output::{status, write, write_value};
use super::run_args::RunArgs;
use super::runtime::{interrupted, runtime};
use super::speak::Stream;
use super::{Exit, FAILED, find, live};
use crate::report::terminal::{Detail, Heading, Terminal};
use crate::report::{ScenarioReport, StepReport, json, junit};
use crate::scenario::run::{Keep, Progress, Proxy, RunOptions};
use crate::scenario::{self, Scenario};

/// Runs `jobs` and writes the reports; returns the exit status.
pub(super) fn run(args: &RunArgs, jobs: &[Job<'_>], proxy: &Proxy) -> Result<u8, Exit> {
    args.lab.seed.one()?;
    find::tools()?;
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    let reports = runtime()?.block_on(async {
        tokio::select! {
            reports = all(args, jobs, proxy) => Ok(reports),
            () = interrupted() => Err(Exit { status: FAILED, message: "interrupted".to_owned() }),
        }
    })?;
    write_value(args, &json::render(&reports))?;
    write(args.junit.as_deref(), &junit::render(&reports))?;
    Ok(status(&reports))
}

async fn all(args: &RunArgs, jobs: &[Job<'_>], proxy: &Proxy) -> Vec<ScenarioReport> {
    live::enable();
    let mut progress =
        OnTerminal { terminal: args.terminal(), detail: args.detail(), title: String::new(), steps: Vec::new() };
    let mut reports = Vec::new();
    for Job { scenario, mode } in jobs {
        let options = RunOptions {
            proxy: proxy.clone(),
            mode: *mode,
            variant: args.lab.iptables_variant.into(),
            source: args.lab.source.into(),
            patience: Duration::from_millis(args.patience),
            keep_going: args.keep_going,
            measure: None,
            machine: args.vm.machine.clone(),
            breaks: args.breaks.iter().map(|damage| damage.meant.clone()).collect(),
            evidence: args.bundles().map_or(Keep::Explanation, Keep::Bundle),
        };
        let report = scenario::run::run(scenario, &options, &mut progress).await;
        let go_on = report.passed() || args.keep_going;
        reports.push(report);
        if !go_on {
            break;
        }
    }
    live::clear();
    if !(args.part && args.quiet) {
        progress.terminal.total(&reports);
    }
    reports
}

/// Lines of the proxies' logs with all details.
const LOG_LINES: usize = 20;

struct OnTerminal {
    terminal: Terminal<Stream>,
    detail: Detail,
    title: String,
    /// Line and name of the steps that are still to come.
    steps: Vec<(usize, String)>,
}

impl OnTerminal {
    fn next(&self) {
        match self.steps.first() {
            Some((_, name)) => live::set(format!("{}: {name}", self.title)),
            None => live::set(format!("{}: taking the cluster down", self.title)),
        }
    }
}

impl Progress for OnTerminal {
    fn begins(&mut self, scenario: &Scenario, options: &RunOptions) {
        let mode = options.mode.to_string();
        let virtual_time = options.machine.as_ref().is_some_and(|machine| machine.deterministic);
        self.terminal.scenario(&Heading { name: &scenario.name, mode: &mode, about: &scenario.about, virtual_time });
        self.title = format!("{} ({mode})", scenario.name);
        self.steps = scenario.steps.iter().map(|step| (step.line, step.name.clone())).collect();
        live::set(format!("{}: building the cluster, up to the first step", self.title));
    }

    fn step(&mut self, step: &StepReport) {
        self.terminal.step(step);
        self.steps.retain(|(line, _)| *line > step.line);
        self.next();
    }

    fn done(&mut self, report: &ScenarioReport) {
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
