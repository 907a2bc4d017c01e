//! Each case runs in its own process, in the sandbox or in a microVM.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking and prints what it did"
)]

mod damage;
mod hashed_clients;
mod kernel_clusters;
mod microvm_clusters;
mod source_addresses;
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::main(&[
        ("kernel_clusters", kernel_clusters::cases()),
        ("microvm_clusters", microvm_clusters::cases()),
        ("source_addresses", source_addresses::cases()),
        ("hashed_clients", hashed_clients::cases()),
    ])
}
