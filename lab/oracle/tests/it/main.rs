//! Tables that a person can read: who sends to where, and what is promised. The notation is in `lab.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod affinity;
mod destinations;
mod drawn;
mod endpoints;
mod generated;
mod health;
mod lab;
mod masquerade;
mod modes;
mod nftables;
mod odd;
mod policies;
mod scenarios;
mod topology;
mod upstream;
