//! `--seed A..B`: a microVM per seed, one report.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::args::RunArgs;
use super::guest_run::{GuestResult, GuestRun};
use super::output::write_run;
use super::signals;
use crate::console::progress;
use crate::exit::{Exit, FAILED, UNABLE};
use crate::report::RunRecord;

type SeedResults = BTreeMap<u64, Result<GuestResult, Exit>>;

/// Runs one seed per processor at a time.
pub(super) fn run(args: &RunArgs, guest: &GuestRun, deadline: Duration) -> Result<u8, Exit> {
    let own = !args.seeds.is_empty();
    let seeds: Vec<u64> = if own { args.seeds.clone() } else { args.lab.seed.each().collect() };
    let results: Mutex<SeedResults> = Mutex::default();
    let next = AtomicUsize::new(0);
    let take = || seeds.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| signals::stop().is_none());
    let work = || {
        while let Some(seed) = take() {
            let result = guest.run(args, *seed, deadline, &mut |_| {});
            if signals::stop().is_some() && result.is_err() {
                return;
            }
            if !args.quiet || !matches!(result, Ok(GuestResult { status: 0, .. })) {
                args.stream().line(&format!("seed {seed}: {}", words(&result)));
            }
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.insert(*seed, result);
            progress::set(format!("{} of {} seeds done", results.len(), seeds.len()));
        }
    };
    progress::set(format!("0 of {} seeds done", seeds.len()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(seeds.len());
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    progress::clear();
    sum_up(args, results.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn words(result: &Result<GuestResult, Exit>) -> String {
    match result {
        Ok(GuestResult { status: 0, .. }) => "all passed".to_owned(),
        Ok(GuestResult { status: FAILED, .. }) => "failed".to_owned(),
        Ok(GuestResult { status, .. }) => format!("status {status}"),
        Err(exit) => exit.message.clone(),
    }
}

/// Writes the common report and prints the repeating command of each failed scenario.
fn sum_up(args: &RunArgs, results: SeedResults) -> Result<u8, Exit> {
    let count = results.len();
    let (mut scenarios, mut passed, mut worst) = (Vec::new(), 0, 0);
    for result in results.into_values() {
        let Ok(GuestResult { status, report }) = result else {
            worst = UNABLE;
            continue;
        };
        passed += usize::from(status == 0);
        worst = worst.max(status);
        for scenario in report.map(|report| report.scenarios).unwrap_or_default() {
            if !scenario.passed {
                args.stream().line(&format!("repeat with: {}", scenario.repeat));
            }
            scenarios.push(scenario);
        }
    }
    args.stream().line(&format!("{count} seeds: {passed} all passed, {} not", count - passed));
    write_run(args, RunRecord::new(passed == count, scenarios), worst, signals::stop())
}
