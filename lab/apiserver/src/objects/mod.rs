//! The cluster's Kubernetes objects: what authors wrote, what the API server would have defaulted and allocated, and
//! the EndpointSlices that a controller would have made of it.
//!
//! [`Store`] is the one home of objects. Scenario steps write to it, and so does [`crate::ApiServer`]: admission,
//! allocation and the EndpointSlice controller run inside every write, and each changed object becomes a [`Record`]
//! with a version of its own, which the API server lists and watches.
//!
//! Everything here is pure: no kernel, no randomness beyond the seed, and no clock unless the API server asks for one.
//! Writing the list to disk for the proxies is the one exception and lives in [`publish`].

mod allocate;
mod builtin;
mod endpoints;
mod error;
mod field_position;
mod kind;
mod labels;
mod manifest;
mod node;
mod object;
mod pod;
pub mod publish;
mod record;
mod service;
mod slice_packing;
mod slices;
mod store;
mod store_records;
mod versions;
mod vips;
mod workloads;

pub use allocate::{generated_name, mix};
pub use error::ObjectError;
pub use field_position::field_position;
pub use kind::ObjectKind;
pub use manifest::{Document, ManifestError, parse as parse_manifests, plain_message};
pub use object::{Object, ObjectKey, WrongType};
pub use pod::PodState;
pub use record::{Record, RecordChange, selectable};
pub use service::{family_name, ingress_of};
pub use store::{Store, StoreOptions};

#[cfg(test)]
mod tests;
