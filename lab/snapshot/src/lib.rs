//! What stands on a node, as one value and as one archive: rules of all families, IP sets, virtual servers, interfaces, addresses,
//! routes, kernel settings, and the objects that a service proxy works from.
//!
//! What lives here reads and keeps; it judges nothing, and knows nothing of packets. [`Snapshot::write`] and [`Snapshot::read`]
//! are the archive.

pub mod archive;
pub mod network;
mod snapshot;

pub use snapshot::{Objects, Snapshot, Unread};
