//! `svclab run --seed A..B`: a microVM per seed, and one report of all.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use svclab_microvm::console::Ended;

use super::inside::Inside;
use super::output::{JSON, JUNIT, write, write_value};
use super::run_args::RunArgs;
use super::{Exit, FAILED, UNABLE, live, stop};
use crate::report::{json, junit};

/// One run per seed, as many at once as there are processors.
pub(super) fn run(args: &RunArgs, inside: &Inside, deadline: Duration) -> Result<u8, Exit> {
    let seeds: Vec<u64> = args.lab.seed.each().collect();
    let outcomes: Mutex<BTreeMap<u64, Result<Ended, Exit>>> = Mutex::default();
    let next = AtomicUsize::new(0);
    live::set(format!("0 of {} seeds done", seeds.len()));
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(seeds.len());
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(seed) =
                    seeds.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| stop::stop().is_none())
                {
                    let outcome = inside.run(args, *seed, deadline, &mut |_| {});
                    if stop::stop().is_some() && outcome.is_err() {
                        return;
                    }
                    if !args.quiet || !matches!(outcome, Ok(Ended { status: 0, .. })) {
                        args.stream().line(&format!("seed {seed}: {}", outcome_words(&outcome)));
                    }
                    let mut outcomes = outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    outcomes.insert(*seed, outcome);
                    live::set(format!("{} of {} seeds done", outcomes.len(), seeds.len()));
                }
            });
        }
    });
    live::clear();
    let outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    sum_up(args, &outcomes)
}

fn outcome_words(outcome: &Result<Ended, Exit>) -> String {
    match outcome {
        Ok(Ended { status: 0, .. }) => "all passed".to_owned(),
        Ok(Ended { status: FAILED, .. }) => "failed".to_owned(),
        Ok(Ended { status, .. }) => format!("status {status}"),
        Err(exit) => exit.message.clone(),
    }
}

/// One report of all seeds, and for every broken one the line that repeats it.
fn sum_up(args: &RunArgs, outcomes: &BTreeMap<u64, Result<Ended, Exit>>) -> Result<u8, Exit> {
    let (mut scenarios, mut suites, mut passed, mut worst) = (Vec::new(), Vec::new(), 0, 0);
    for outcome in outcomes.values() {
        let Ok(ended) = outcome else {
            worst = UNABLE;
            continue;
        };
        passed += usize::from(ended.status == 0);
        worst = worst.max(ended.status);
        suites.extend(ended.results.get(JUNIT).map(|text| String::from_utf8_lossy(text).into_owned()));
        let report: Value =
            ended.results.get(JSON).and_then(|text| serde_json::from_slice(text).ok()).unwrap_or_default();
        for scenario in report["scenarios"].as_array().into_iter().flatten() {
            if scenario["passed"] != true {
                args.stream().line(&format!("repeat with: {}", scenario["repeat"].as_str().unwrap_or_default()));
            }
            scenarios.push(scenario.clone());
        }
    }
    let line = format!("{} seeds: {passed} all passed, {} not", outcomes.len(), outcomes.len() - passed);
    args.stream().line(&line);
    let mut report = json::document(passed == outcomes.len(), scenarios);
    let stopped = stop::stop();
    if let Some(stop) = stopped {
        json::interrupted(&mut report, stop.name());
    }
    write_value(args, &report)?;
    write(args.junit.as_deref(), &junit::join(&suites))?;
    stopped.map_or(Ok(worst), |stop| Err(stop.exit()))
}
