//! The cluster's Kubernetes objects: what authors wrote, what the API server would have defaulted and allocated, and
//! the EndpointSlices that a controller would have made of it.
//!
//! Everything here is pure: no kernel, no clock, no randomness beyond the seed. Writing the list to disk for the
//! proxies is the one exception and lives in [`publish`].

mod allocate;
mod error;
mod manifest;
mod node;
mod pod;
pub mod publish;
mod service;
mod slices;
mod store;

pub(crate) use allocate::nth as nth_address;
pub use error::ObjectError;
pub use manifest::{Document, ManifestError, parse as parse_manifests};
pub(crate) use service::family_name;
pub use store::{Object, ObjectKey, Store, StoreOptions};

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) fn mix_for_tests(seed: u64, number: usize) -> u64 {
    allocate::mix(seed, &number.to_string()) >> 16
}
