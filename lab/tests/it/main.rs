//! All tests are one program, because each program links everything again.
#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may panic, and says why it did not run"
)]

mod audit;
mod auditor;
mod bundle;
mod cli;
mod conformance;
mod deploy;
mod docs;
mod first_hour;
mod foreign;
mod golden;
mod hostile_api;
mod layers;
mod microvm;
mod microvm_up;
mod shard;
mod simulate;
mod soak;
#[path = "../support/mod.rs"]
mod support;
mod up;
mod workflow;
mod writing;
