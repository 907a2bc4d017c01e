//! The cluster's objects, with the defaults and allocations of an API server and the EndpointSlices of a controller.
//!
//! [`Store`] holds all objects. Every write (of a scenario step or of [`crate::ApiServer`]) runs admission, allocation
//! and the controllers. Each changed object becomes a [`Record`] with its own version.
//!
//! Deterministic: no I/O except [`publish`], no randomness beyond the seed, no clock unless the API server asks for
//! one.

mod allocate;
mod builtin;
mod endpoints;
mod error;
mod field_position;
mod kind;
mod labels;
mod legacy_endpoints;
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

pub(crate) use allocate::generated_name;
pub use allocate::mix;
pub use error::ObjectError;
pub use field_position::field_position;
pub use kind::ObjectKind;
pub use manifest::{Document, ManifestError, parse as parse_manifests, plain_message};
pub use object::{Object, ObjectKey, WrongType};
pub use pod::PodState;
pub use record::Record;
pub(crate) use record::{RecordChange, selectable};
pub use service::family_name;
pub(crate) use service::ingress_of;
pub use store::{Store, StoreOptions};

#[cfg(test)]
mod tests;
