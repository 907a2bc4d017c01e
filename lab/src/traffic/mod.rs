//! Traffic: echo servers that say who answered and whom they saw, and probes.

pub mod client;
pub(crate) mod pair;
pub mod probe;
pub(crate) mod scan;
pub mod servers;
pub mod stray;
