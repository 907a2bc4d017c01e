//! iptables mode: plans as chains and rules, brought to the kernel by `iptables-restore --noflush`.
//!
//! [`objects`] writes one service port down, [`ruleset`] puts the shared chains together, [`syncer`] brings them to the
//! kernel; [`connections`] and [`crate::metrics::rules`] read what rules have counted. What other modes do alike is in [`crate::mode::iptables_family::rules`]. Commands are run behind [`crate::kernel::iptables`] only.

pub mod connections;
pub mod jumps;
pub mod objects;
pub mod ruleset;
pub mod syncer;

pub use crate::mode::iptables_family::rules::{cleanup, names};
