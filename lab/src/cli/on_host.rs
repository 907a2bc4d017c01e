//! Runs scenarios on this machine's kernel, inside a sandbox.

use std::time::Duration;

use svclab_netns::sandbox;

use super::jobs::Job;
use super::output::{colour, status, write, write_value};
use super::run_args::RunArgs;
use super::runtime::{interrupted, runtime};
use super::{Exit, FAILED, find};
use crate::report::terminal::Terminal;
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
    let mut progress = OnTerminal(Terminal::new(std::io::stderr(), colour()));
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
            audit: args.audit,
            evidence: args.bundles().map_or(Keep::Explanation, Keep::Bundle),
        };
        let report = scenario::run::run(scenario, &options, &mut progress).await;
        let go_on = report.passed() || args.keep_going;
        reports.push(report);
        if !go_on {
            break;
        }
    }
    progress.0.total(&reports);
    reports
}

struct OnTerminal(Terminal<std::io::Stderr>);

impl Progress for OnTerminal {
    fn begins(&mut self, scenario: &Scenario, options: &RunOptions) {
        self.0.scenario(&scenario.name, &options.mode.to_string(), &scenario.about);
    }

    fn step(&mut self, step: &StepReport) {
        self.0.step(step);
    }

    fn done(&mut self, report: &ScenarioReport) {
        self.0.done(report);
    }
}
