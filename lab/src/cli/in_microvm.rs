//! Runs scenarios in a microVM: one, or one for each seed.

use std::time::Duration;

use super::batch::Batch;
use super::guest_steps::Steps;
use super::inside::Inside;
use super::jobs::Job;
use super::output::{JSON, JUNIT, write, write_page};
use super::place::Guest;
use super::run_args::RunArgs;
use super::{Exit, every_seed, find, live, on_host, stop};
use crate::report::ScenarioReport;
use crate::scenario::file::Action;
use crate::scenario::run::{ProxyUnderTest, cut_short as cut_short_in};
use crate::scenario::{Scenario, Step};

/// Time for the boot, and for each scenario in each mode: ten times what they take on an idle machine.
pub(super) const BOOT: Duration = Duration::from_secs(120);
pub(super) const SCENARIO: Duration = Duration::from_secs(300);
/// Virtual time that passes, at least, in the same time of the host: 58 were seen on two shared processors.
const SKIPPED: u32 = 20;

/// How long a microVM may take for `scenarios`, where no flag says.
fn most<'a>(scenarios: impl Iterator<Item = &'a Scenario> + Clone) -> Duration {
    let skipped = |step: &Step| match step.action {
        Action::Advance(time) | Action::Idle(time) => time.0,
        _ => step.eventually.unwrap_or_default(),
    };
    let one = |scenario: &'a Scenario| SCENARIO + scenario.steps.iter().map(skipped).sum::<Duration>() / SKIPPED;
    BOOT + scenarios.map(one).sum::<Duration>()
}

/// Whether there can be a microVM for a batch: everything for it is fetched and made.
pub(super) fn try_out(args: &RunArgs, batch: &Batch<'_>) -> Result<(), Exit> {
    let kernel = batch.kernel.parse().map_err(Exit::usage)?;
    let guest = Guest { kernel, deterministic: batch.deterministic, because: String::new() };
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    let job = |scenario| Job { scenario, mode: batch.mode, foreign: proxy.is_foreign() };
    let jobs: Vec<Job<'_>> = batch.scenarios.iter().copied().map(job).collect();
    prepare(args, &guest, &jobs, &proxy).map(drop)
}

fn prepare(args: &RunArgs, guest: &Guest, jobs: &[Job<'_>], proxy: &ProxyUnderTest) -> Result<Inside, Exit> {
    Inside::prepare(args.vm.cache_dir.as_deref(), args.lab.proxy.as_deref(), guest, jobs, proxy)
}

/// Runs `jobs`, all in one mode, in a microVM.
pub(super) fn run(args: &RunArgs, guest: &Guest, jobs: &[Job<'_>]) -> Result<u8, Exit> {
    stop::watch()?;
    let first = args.lab.seed.each().start;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    let inside = prepare(args, guest, jobs, &proxy)?;
    let most = most(jobs.iter().map(|job| job.scenario));
    let deadline = args.vm.deadline.map_or(most, Duration::from_secs);
    let how = match (guest.deterministic, inside.kvm) {
        (true, _) => "deterministic",
        (false, true) => "KVM",
        (false, false) => "fast",
    };
    let image = &inside.image.hash()[..12];
    args.notice(&format!("kernel: {} in a microVM ({how}, image {image}){}", guest.kernel, guest.because));
    live::enable();
    if args.lab.seed.are_several() {
        return every_seed::run(args, &inside, deadline);
    }
    let stream = args.stream();
    live::set(format!("{}: booting", guest.kernel));
    let (mut last, mut steps) = (String::new(), Steps::default());
    let ended = inside.run(args, first, deadline, &mut |line| {
        if steps.take(line) {
            return;
        }
        stream.line(line);
        // What is done says how far it is: the name of the scenario, or of its last step.
        line.trim().split("  ").next().unwrap_or_default().clone_into(&mut last);
        live::set(format!("{}: after {last}", guest.kernel));
    });
    live::clear();
    if let Some(stop) = stop::stop() {
        return on_host::finish(args, &cut_short(args, &inside, first, jobs, &steps), Some(stop));
    }
    let ended = ended?;
    for (name, path) in [(JSON, &args.json), (JUNIT, &args.junit)] {
        if let Some(report) = ended.results.get(name) {
            write(path.as_deref(), &String::from_utf8_lossy(report))?;
        }
    }
    // The page is made here, of the report that the guest has handed out.
    if let Some(report) = ended.results.get(JSON).and_then(|report| serde_json::from_slice(report).ok()) {
        write_page(args, &report)?;
    }
    Ok(ended.status)
}

/// What is known of jobs that a signal has ended: they are carried out in order.
fn cut_short(args: &RunArgs, inside: &Inside, seed: u64, jobs: &[Job<'_>], steps: &Steps) -> Vec<ScenarioReport> {
    let begun = jobs.iter().rposition(|job| steps.has(job.scenario)).unwrap_or(0);
    let one = |job: &Job<'_>| {
        let mut report = inside.begun(job, args, seed);
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
    fn hours_of_virtual_time_are_given_their_time() {
        let load = |name: &str| crate::scenario::load(&Path::new("../scenarios").join(name), 0).unwrap();
        assert_eq!(most([load("hairpin.yaml")].iter()), BOOT + SCENARIO);
        let hours = Duration::from_secs(5 * 3600 + 600);
        assert_eq!(most([load("microvm/api-outage-hours.yaml")].iter()), BOOT + SCENARIO + hours / SKIPPED);
    }
}
