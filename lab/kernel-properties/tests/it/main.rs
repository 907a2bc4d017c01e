//! Generated clusters on the real kernel: in the sandbox, which each case enters in a process of its own before it
//! starts a thread, and in microVMs, which run this program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking and prints what it did"
)]

mod damage;
mod kernel_clusters;
mod microvm_clusters;
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::main(&[("kernel_clusters", kernel_clusters::cases()), ("microvm_clusters", microvm_clusters::cases())])
}
