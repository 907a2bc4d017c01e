//! iptables mode: chains and rules per service port.
//!
//! [`objects`] renders one service port, [`ruleset`] the fixed chains; [`syncer`] is the mode's
//! [renderer](super::engine::render::Renderer). [`connections`] and [`crate::metrics::rules`] read the counters of
//! rules. [`crate::mode::iptables_family::rules`] holds the rules that other modes share.

pub mod connections;
pub mod jumps;
mod lost_frontends;
pub mod objects;
pub mod ruleset;
pub mod syncer;

pub use crate::mode::iptables_family::rules::{cleanup, names};
