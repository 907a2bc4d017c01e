//! A real node, judged from a snapshot of it ([`svclab_snapshot`]): what becomes of a packet there ([`machines`], by the simulator), and
//! whether that is what Kubernetes promises (by the oracle).

pub mod error;
pub mod machines;

pub use error::NodeError;
