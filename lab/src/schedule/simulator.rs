//! `--simulate`: needs no privileges, on any Linux.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::args::RunArgs;
use super::job::{Job, jobs};
use super::share::take_share;
use super::{output, signals};
use crate::console::progress;
use crate::exit::Exit;
use crate::find;
use crate::report::terminal::Heading;
use crate::report::{RunRecord, SIMULATED, ScenarioReport, TestedProxy};
use crate::scenario::run::ProxyUnderTest;
use crate::scenario::simulated;
use crate::scenario::simulated::render::{RuleSource, Svcproxy};
use crate::shard::WorkItem;

pub(super) fn run(args: &RunArgs) -> Result<u8, Exit> {
    let seed = args.lab.seed.one()?;
    let found = find::proxy(args.lab.proxy.as_deref(), args.lab.source)?;
    let ProxyUnderTest::Own(proxy) = &found else {
        return Err(Exit::usage("--simulate asks svcproxy what it would program; another's proxy cannot be asked"));
    };
    let scenarios = args.load(seed)?;
    let mut jobs = jobs(&scenarios, &args.mode, &found)?;
    let simulated = |job: &Job<'_>| WorkItem {
        scenario: job.scenario.name.clone(),
        mode: job.mode.to_string(),
        place: SIMULATED.to_owned(),
        seed,
    };
    let items: Vec<WorkItem> = jobs.iter().map(simulated).collect();
    let args = &take_share(args, &found, &items)?;
    jobs.retain(|job| args.share.as_ref().is_none_or(|share| share.has(&simulated(job))));
    signals::watch()?;
    progress::enable();
    let tested = found.tested(args.proxy_given());
    let reports = all(&jobs, proxy, &tested, args.keep_going);
    progress::clear();
    let mut terminal = args.terminal();
    for report in &reports {
        let heading = Heading { name: &report.name, mode: &report.mode, about: &report.about, virtual_time: true };
        terminal.scenario(&heading);
        report.steps.iter().for_each(|step| terminal.step(step));
        terminal.done(report);
    }
    terminal.total(&reports);
    output::finish(args, RunRecord::of(&reports), signals::stop())
}

/// Simulates one job per processor at a time. Keeps the jobs' order.
fn all(jobs: &[Job<'_>], proxy: &Path, tested: &TestedProxy, keep_going: bool) -> Vec<ScenarioReport> {
    let next = Mutex::new(0..jobs.len());
    let done = Mutex::new(Vec::new());
    // A separate closure releases the lock before the job runs.
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    let source: Arc<dyn RuleSource> = Arc::new(Svcproxy(proxy.to_owned()));
    let work = || {
        while let Some(index) = take().filter(|_| signals::stop().is_none()) {
            let job = &jobs[index];
            let report = simulated::run::run(job.scenario, Arc::clone(&source), job.mode, keep_going);
            let report = ScenarioReport { proxy: tested.clone(), ..report };
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((index, report));
            progress::set(format!("simulated {} of {}", done.len(), jobs.len()));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut reports = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    reports.sort_by_key(|(index, _)| *index);
    reports.into_iter().map(|(_, report)| report).collect()
}
