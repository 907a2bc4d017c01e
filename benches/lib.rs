//! What the benchmarks share: clusters of a given size, a sandbox, and the table and plot at the end.
//! The benchmarks themselves are `sync.rs`.

pub mod cluster;
pub mod plot;
pub mod results;
pub mod sandbox;
pub mod silent;
