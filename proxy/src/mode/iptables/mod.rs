//! iptables mode: plans as chains and rules, brought to the kernel by `iptables-restore --noflush`.
//!
//! [`fragment`] writes one service port down, [`ruleset`] puts the shared chains together, [`transaction`] is what
//! is sent, [`saved`] what is read back, [`syncer`] decides between a full and a partial sync, [`cleanup`] takes
//! everything away again; [`connections`] and [`scrape`] read what rules have counted. Commands are run behind
//! [`crate::kernel::iptables`] only.

pub mod cleanup;
pub mod connections;
pub mod family;
pub mod fragment;
pub mod jumps;
pub mod names;
pub mod report;
pub mod rule;
pub mod ruleset;
pub mod saved;
pub mod scrape;
pub mod syncer;
pub mod transaction;
