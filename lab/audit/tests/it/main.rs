//! One program, because each one is linked anew.
#![allow(clippy::unwrap_used, reason = "a test may panic, and says why it did not run")]

mod explain;
mod report;
