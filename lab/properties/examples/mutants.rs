//! Breaks rendered rules in every way of the catalogue, and prints who notices.
#![allow(clippy::print_stdout, reason = "a program")]

use std::process::ExitCode;

use svclab_properties::mutants::{Worth, benches, catalogue, score};

fn main() -> ExitCode {
    let benches = match benches(24, 300) {
        Ok(benches) => benches,
        Err(words) => {
            println!("the unbroken rules are not right:\n{words}");
            return ExitCode::FAILURE;
        }
    };
    let scores: Vec<_> = catalogue().into_iter().map(|mutant| score(mutant, &benches)).collect();
    scores.iter().for_each(|score| println!("{score}"));
    let broken = scores.iter().filter(|score| score.mutant.worth == Worth::Broken);
    let noticed = broken.clone().filter(|score| !score.noticed.is_empty()).count();
    let equivalent = scores.len() - broken.clone().count();
    println!("\n{} mutants: {noticed} of {} noticed, {equivalent} equivalent", scores.len(), broken.count());
    if scores.iter().all(svclab_properties::mutants::Score::is_right) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
