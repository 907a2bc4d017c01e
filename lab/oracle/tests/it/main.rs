//! Tables of packets and promises. `test_cluster.rs` describes the notation.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod affinity;
mod destinations;
mod drawn;
mod endpoints;
mod generated;
mod health;
mod masquerade;
mod modes;
mod nftables;
mod odd;
mod policies;
mod scenarios;
mod test_cluster;
mod topology;
mod upstream;
