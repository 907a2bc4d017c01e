//! Prints which scenarios, run in the simulator, notice each mutant: `scenario_mutants FILE…`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use svclab::mode::Mode;
use svclab::scenario::{Scenario, load};
use svclab_kernel_properties::scenarios::{CachedRenderer, ScenarioScore, score};
use svclab_oracle as oracle;
use svclab_properties::mutants::{Mutant, catalogue};

fn main() -> ExitCode {
    let files: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    let scenarios: Result<Vec<Scenario>, _> = files.iter().map(|file| load(file, 0)).collect();
    let scenarios = match scenarios {
        Ok(scenarios) => scenarios,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let proxy = Arc::new(CachedRenderer::default());
    let modes = [
        (Mode::Iptables, oracle::Mode::Iptables),
        (Mode::Ipvs, oracle::Mode::Ipvs),
        (Mode::Nftables, oracle::Mode::Nftables),
        (Mode::Userspace, oracle::Mode::Userspace),
    ];
    for (mode, catalogued) in modes {
        let scores = all(&catalogue(catalogued), &proxy, &scenarios, mode);
        println!("{mode}: the first scenarios that notice, three at most");
        scores.iter().for_each(|score| println!("{score}"));
        let broken = scores.iter().filter(|score| score.is_broken());
        let noticed = broken.clone().filter(|score| score.is_noticed()).count();
        println!("\n{noticed} of {} noticed by a scenario\n", broken.count());
    }
    ExitCode::SUCCESS
}

fn all(mutants: &[Mutant], proxy: &Arc<CachedRenderer>, scenarios: &[Scenario], mode: Mode) -> Vec<ScenarioScore> {
    let (next, done) = (Mutex::new(0..mutants.len()), Mutex::new(Vec::new()));
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(at) = take() {
            let one = score(mutants[at], proxy, scenarios, mode);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, one));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, score)| score).collect()
}
