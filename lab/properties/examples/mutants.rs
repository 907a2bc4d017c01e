//! Prints which properties notice each mutant.
#![allow(clippy::print_stdout, reason = "a program")]

use std::process::ExitCode;

use svclab_oracle::Mode;
use svclab_properties::mutants::{Expectation, catalogue, fixtures, score};

fn main() -> ExitCode {
    let all = Mode::ALL.map(|mode| {
        println!("{mode:?}");
        all_noticed(mode)
    });
    if all.iter().all(|right| *right) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn all_noticed(mode: Mode) -> bool {
    let fixtures = match fixtures(mode, 32, 300) {
        Ok(fixtures) => fixtures,
        Err(words) => {
            println!("the unbroken rules are not right:\n{words}");
            return false;
        }
    };
    let scores: Vec<_> = catalogue(mode).into_iter().map(|mutant| score(mutant, &fixtures)).collect();
    scores.iter().for_each(|score| println!("{score}"));
    let broken = scores.iter().filter(|score| score.mutant.expectation == Expectation::Broken);
    let noticed = broken.clone().filter(|score| !score.noticed.is_empty()).count();
    let equivalent = scores.len() - broken.clone().count();
    println!("\n{} mutants: {noticed} of {} noticed, {equivalent} equivalent\n", scores.len(), broken.count());
    scores.iter().all(svclab_properties::mutants::MutantScore::is_right)
}
