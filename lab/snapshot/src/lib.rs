//! A node's state as one value and one archive: rules of all families, IP sets, virtual servers, interfaces, addresses,
//! routes, kernel settings, and the objects that a service proxy reads. The crate judges nothing.

#![warn(missing_docs)]

pub mod archive;
pub mod bpf;
pub mod collect;
pub mod network;
pub mod redact;
mod snapshot;
mod yaml;

pub use snapshot::{ListeningSocket, Objects, Snapshot, Unread};
