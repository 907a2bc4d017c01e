//! Every scenario, on both variants of iptables: all promises are kept.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use support::runs::{names_for_host, run};

fn main() {
    let arguments = Arguments::from_args();
    let trials = names_for_host().into_iter().flat_map(|name| {
        ["nft", "legacy"].map(|variant| {
            let name = name.clone();
            Trial::ignorable_test(format!("{name}::{variant}"), move || kept(&name, variant))
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn kept(name: &str, variant: &str) -> Result<Completion, Failed> {
    let run = run(name, &["--iptables-variant", variant]);
    match run.status {
        0 if run.scenario["passed"] == true => Ok(Completion::Completed),
        3 => support::unable(&run.told),
        status => Err(format!("exit status {status}\n{}", run.told).into()),
    }
}
