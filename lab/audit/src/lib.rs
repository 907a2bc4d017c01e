//! A real node, judged from a snapshot of it ([`svclab_snapshot`]): what becomes of a packet there ([`machines`], by the simulator), and
//! whether that is what Kubernetes promises (by the oracle).

#![warn(missing_docs)]

pub mod audit;
pub mod cluster;
pub mod decider;
pub mod error;
pub mod explain;
pub mod judge;
pub mod machines;
pub mod page;
pub mod report;
pub mod settings;

pub use error::NodeError;
