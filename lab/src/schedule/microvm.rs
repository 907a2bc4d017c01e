//! Runs scenarios in a microVM, or in one per seed.

use std::time::Duration;

use super::args::RunArgs;
use super::batch::RunBatch;
use super::guest_run::GuestRun;
use super::guest_steps::GuestSteps;
use super::job::Job;
use super::output::{finish, write_run};
use super::target::GuestTarget;
use super::{every_seed, signals};
use crate::console::progress;
use crate::exit::Exit;
use crate::find;
use crate::report::{RunRecord, ScenarioReport};
use crate::scenario::file::Action;
use crate::scenario::run::{ProxyUnderTest, cut_short as cut_short_in};
use crate::scenario::{Scenario, Step};

/// Limits for the boot, and per scenario and mode: ten times the values of an idle machine.
pub(crate) const BOOT: Duration = Duration::from_secs(120);
pub(crate) const SCENARIO: Duration = Duration::from_secs(300);
/// The least ratio of virtual to host time. Two shared processors reached 58.
const SPEED: u32 = 20;

fn default_deadline<'a>(scenarios: impl Iterator<Item = &'a Scenario>) -> Duration {
    let skipped = |step: &Step| match step.action {
        Action::Advance(time) | Action::Idle(time) => time.0,
        _ => step.eventually.unwrap_or_default(),
    };
    let one = |scenario: &'a Scenario| SCENARIO + scenario.steps.iter().map(skipped).sum::<Duration>() / SPEED;
    BOOT + scenarios.map(one).sum::<Duration>()
}

/// Fetches and builds the batch's microVM.
pub(super) fn try_out(args: &RunArgs, guest: &GuestTarget, batch: &RunBatch<'_>) -> Result<(), Exit> {
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source)?;
    let job = |scenario| Job { scenario, mode: batch.mode, foreign: proxy.is_foreign() };
    let jobs: Vec<Job<'_>> = batch.scenarios.iter().copied().map(job).collect();
    prepare(args, guest, &jobs, &proxy).map(drop)
}

fn prepare(args: &RunArgs, guest: &GuestTarget, jobs: &[Job<'_>], proxy: &ProxyUnderTest) -> Result<GuestRun, Exit> {
    GuestRun::prepare(args.vm.cache_dir.as_deref(), args.lab.proxy.as_deref(), guest, jobs, proxy)
}

/// Runs `jobs`, which all have one mode.
pub(super) fn run(args: &RunArgs, target: &GuestTarget, jobs: &[Job<'_>]) -> Result<u8, Exit> {
    signals::watch()?;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source)?;
    let guest = prepare(args, target, jobs, &proxy)?;
    let deadline = args.vm.deadline.map(Duration::from_secs);
    let deadline = deadline.unwrap_or_else(|| default_deadline(jobs.iter().map(|job| job.scenario)));
    let how = match (target.deterministic, guest.kvm) {
        (true, _) => "deterministic",
        (false, true) => "KVM",
        (false, false) => "fast",
    };
    let image = &guest.image.hash()[..12];
    args.notice(&format!("kernel: {} in a microVM ({how}, image {image}){}", target.kernel, target.because));
    progress::enable();
    if args.lab.seed.are_several() {
        return every_seed::run(args, &guest, deadline);
    }
    let seed = args.lab.seed.first();
    progress::set(format!("{}: booting", target.kernel));
    let (stream, mut last, mut steps) = (args.stream(), String::new(), GuestSteps::default());
    let result = guest.run(args, seed, deadline, &mut |line| {
        if steps.take(line) {
            return;
        }
        stream.line(line);
        // A line begins with the name of a scenario or of its last step.
        line.trim().split("  ").next().unwrap_or_default().clone_into(&mut last);
        progress::set(format!("{}: after {last}", target.kernel));
    });
    progress::clear();
    if let Some(stop) = signals::stop() {
        return finish(args, RunRecord::of(&cut_short(args, &guest, seed, jobs, &steps)), Some(stop));
    }
    let result = result?;
    result.report.map_or(Ok(result.status), |report| write_run(args, report, result.status, None))
}

/// Returns the reports of jobs that a signal ended. The guest runs jobs in order.
fn cut_short(args: &RunArgs, guest: &GuestRun, seed: u64, jobs: &[Job<'_>], steps: &GuestSteps) -> Vec<ScenarioReport> {
    let begun = jobs.iter().rposition(|job| steps.has(job.scenario)).unwrap_or(0);
    let one = |job: &Job<'_>| {
        let mut report = guest.begun(job, args, seed);
        steps.fill(job.scenario, &mut report);
        report
    };
    let mut reports: Vec<ScenarioReport> = jobs.iter().take(begun + 1).map(one).collect();
    if let Some((last, job)) = reports.pop().zip(jobs.get(begun)) {
        reports.push(cut_short_in(job.scenario, job.mode, last));
    }
    reports
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_deadline_grows_with_the_virtual_time_of_steps() {
        let load = |name: &str| crate::scenario::load(&Path::new("../scenarios").join(name), 0).unwrap();
        assert_eq!(default_deadline([load("hairpin.yaml")].iter()), BOOT + SCENARIO);
        let hours = Duration::from_secs(5 * 3600 + 600);
        let outage = [load("microvm/api-outage-hours.yaml")];
        assert_eq!(default_deadline(outage.iter()), BOOT + SCENARIO + hours / SPEED);
    }
}
