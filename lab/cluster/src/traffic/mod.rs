//! Echo servers and probes.

pub mod client;
pub(crate) mod datagram_pair;
pub(crate) mod drop_check;
mod echo_protocol;
mod http_echo;
pub(crate) mod port_scan;
pub mod probe;
pub mod servers;
pub(crate) mod source_ports;
pub mod stray_segment;
