//! What stands on a node, as one value and as one archive: rules of all families, IP sets, virtual servers, interfaces, addresses,
//! routes, kernel settings, and the objects that a service proxy works from.
//!
//! What lives here reads and keeps; it judges nothing, and knows nothing of packets. [`collect::collect`] looks at the node that it
//! runs on, [`Snapshot::write`] and [`Snapshot::read`] are the archive, [`Snapshot::redact`] takes
//! names out of it. `examples/collect.rs` prints what an archive of this machine
//! would hold.

#![warn(missing_docs)]

pub mod archive;
pub mod collect;
pub mod network;
pub mod redact;
mod snapshot;
mod yaml;

pub use snapshot::{Objects, Snapshot, Socket, Unread};
