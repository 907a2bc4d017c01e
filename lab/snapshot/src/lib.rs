//! The state of a node as one value and as one archive: rules of all families, IP sets, virtual servers, interfaces, addresses, routes,
//! kernel settings, and the objects that a service proxy reads.
//!
//! [`collect::collect`] reads the node that it runs on, [`Snapshot::write`] and [`Snapshot::read`] convert to and from an archive, and
//! [`Snapshot::redact`] replaces names. The crate judges nothing. `examples/collect.rs` prints the contents of an archive of this machine.

#![warn(missing_docs)]

pub mod archive;
pub mod collect;
pub mod network;
pub mod redact;
mod snapshot;
mod yaml;

pub use snapshot::{ListeningSocket, Objects, Snapshot, Unread};
