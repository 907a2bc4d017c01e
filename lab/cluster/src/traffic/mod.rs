//! Traffic: echo servers that say who answered and whom they saw, and probes. No answer counts as silence only on a machine
//! that is quick enough to have answered.

pub mod client;
mod hello;
pub(crate) mod pair;
pub mod probe;
mod question;
pub(crate) mod scan;
pub mod servers;
pub(crate) mod silence;
pub mod stray;
