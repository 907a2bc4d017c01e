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
use svclab_audit::audit::{AuditOptions, Report, audit};
use svclab_oracle::Mode;
use svclab_oracle::generate::recipe;
use svclab_properties::proxies::Proxies;
use svclab_properties::snapshots::snapshot;
use svclab_properties::sweep::{in_mode, runner, seed};
use svclab_snapshot::Snapshot;

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

/// Returns `node-a` of a cluster, with fresh rules.
fn healthy(mode: Mode) -> Snapshot {
    let (cluster, node) = (in_mode(&recipe(3), mode), "node-a");
    snapshot(&cluster, node, &Proxies::synced(&cluster, node).unwrap().dump())
}

fn report(snapshot: &Snapshot) -> Report {
    audit(snapshot, &AuditOptions::default()).unwrap()
}
