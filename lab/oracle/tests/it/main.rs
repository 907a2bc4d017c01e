//! Tables of packets and promises. `lab.rs` describes the notation.

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
