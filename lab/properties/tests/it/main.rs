//! What holds for every cluster: one file for each property, one program for all of them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic, and says what it has done"
)]

mod audits;
mod clusters;
mod health;
mod history;
mod modes;
mod mutants;
mod size;
mod text;
