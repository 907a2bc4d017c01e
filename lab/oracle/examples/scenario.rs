//! Prints a generated cluster and one of its questions as a scenario file with the oracle's expectation: `cargo run -p
//! svclab-oracle --example scenario -- NAME SEED MODE QUESTION`. NAME is the file name, QUESTION a number modulo the
//! count of questions.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(clippy::print_stderr, reason = "where usage goes")]

use std::process::ExitCode;

use svclab_oracle::{Mode, generate};

fn main() -> ExitCode {
    match file(std::env::args().skip(1).collect()) {
        Some(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("usage: scenario NAME SEED iptables|ipvs|userspace QUESTION");
            ExitCode::from(2)
        }
    }
}

fn file(arguments: Vec<String>) -> Option<String> {
    let [name, seed, mode, question] = arguments.try_into().ok()?;
    let mut cluster = generate::cluster(seed.parse().ok()?);
    cluster.world.proxy.mode = Mode::ALL.into_iter().find(|known| known.name() == mode)?;
    let questions = cluster.questions();
    let question = &questions[question.parse::<usize>().ok()?.checked_rem(questions.len())?];
    Some(cluster.scenario_yaml(&name, question))
}
