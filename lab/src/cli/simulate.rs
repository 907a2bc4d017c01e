//! `svclab run --simulate`: scenarios in the simulator, as any user on any Linux.

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::jobs::{Job, jobs};
use super::run_args::RunArgs;
use super::{Exit, find, live, on_host, stop};
use crate::mode::Mode;
use crate::report::ScenarioReport;
use crate::report::terminal::Heading;
use crate::scenario::run::ProxyUnderTest;
use crate::scenario::simulated;
use crate::scenario::simulated::render::{RuleSource, Svcproxy};

pub(super) fn run(args: &RunArgs) -> Result<u8, Exit> {
    let seed = args.lab.seed.one()?;
    let ProxyUnderTest::Own(proxy) = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())? else {
        return Err(Exit::usage("--simulate asks svcproxy what it would program; another's proxy cannot be asked"));
    };
    let scenarios = args.load(seed)?;
    let modes = match &args.modes()[..] {
        [] => Mode::ALL.to_vec(),
        asked => asked.to_vec(),
    };
    let jobs = jobs(&scenarios, &modes, false)?;
    stop::watch()?;
    live::enable();
    let reports = all(&jobs, &proxy, args.keep_going);
    live::clear();
    let mut terminal = args.terminal();
    for report in &reports {
        let heading = Heading { name: &report.name, mode: &report.mode, about: &report.about, virtual_time: true };
        terminal.scenario(&heading);
        report.steps.iter().for_each(|step| terminal.step(step));
        terminal.done(report);
    }
    terminal.total(&reports);
    on_host::finish(args, &reports, stop::stop())
}

/// Every job, as many at a time as there are processors; the reports in the order of the jobs.
fn all(jobs: &[Job<'_>], proxy: &Path, keep_going: bool) -> Vec<ScenarioReport> {
    let next = Mutex::new(0..jobs.len());
    let done = Mutex::new(Vec::new());
    // A function of its own, so that the lock is not held while a job is taken.
    let take = || next.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
    let source: Arc<dyn RuleSource> = Arc::new(Svcproxy(proxy.to_owned()));
    let work = || {
        while let Some(at) = take().filter(|_| stop::stop().is_none()) {
            let job = &jobs[at];
            let report = simulated::run::run(job.scenario, Arc::clone(&source), job.mode, keep_going);
            let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            done.push((at, report));
            live::set(format!("simulated {} of {}", done.len(), jobs.len()));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let mut reports = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    reports.sort_by_key(|(at, _)| *at);
    reports.into_iter().map(|(_, report)| report).collect()
}
