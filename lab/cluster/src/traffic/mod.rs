//! Traffic: echo servers that say who answered and whom they saw, and probes. No answer counts as silence only on a machine
//! that is quick enough to have answered.

pub mod client;
pub(crate) mod datagram_pair;
pub(crate) mod drop_check;
mod echo_protocol;
mod http_echo;
pub(crate) mod port_scan;
pub mod probe;
pub mod servers;
pub mod stray_segment;
