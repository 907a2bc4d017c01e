//! Judges a real node by its snapshot ([`svclab_snapshot`]): the simulator computes a packet's outcome ([`machines`]),
//! the oracle the promise.

#![warn(missing_docs)]

pub mod audit;
pub mod cluster;
pub mod decider;
pub mod ebpf;
pub mod error;
pub mod explain;
pub mod fleet;
pub mod judge;
pub mod machines;
pub mod owner;
pub mod page;
pub mod replacement;
pub mod report;
pub mod settings;

pub use error::NodeError;
