//! All tests are one program, because linking is slow.
#![allow(clippy::unwrap_used, reason = "a test may panic, and says why it did not run")]

mod bare;
mod explain;
mod fleet;
mod network;
mod report;
