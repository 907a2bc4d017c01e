#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic, and says what it has done"
)]

mod audits;
mod causes;
mod clusters;
mod foreign;
mod health;
mod history;
mod modes;
mod mutants;
mod node_kinds;
mod programs;
mod size;
mod text;

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{TestCaseError, TestError};
use svclab_properties::sweep::{runner, seed};

/// Runs `test` on drawn values, which seed and `property` decide; panics with the smallest failing one.
fn check_all<S: Strategy>(property: u64, cases: u32, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>)
where
    S::Value: Debug,
{
    match runner(seed(), property, cases.max(1)).run(strategy, test) {
        Ok(()) => {}
        Err(TestError::Fail(why, value)) => panic!("seed {}: {why}\n{value:#?}", seed()),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}
