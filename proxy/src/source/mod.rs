//! Where Services, EndpointSlices and Nodes come from. Nothing after this module knows whether it was the
//! Kubernetes API or a directory of manifests: all speak `k8s-openapi` types in batches of changes.

mod catalog;
mod directory;
mod documents;
#[cfg(test)]
mod hostile;
mod manifests;
mod object;
mod problem;
mod split;
mod syntax;
mod text;
mod validate;
mod watch;

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

pub use manifests::{ManifestSource, Reading, read_directory};
pub use problem::DocumentError;

/// `namespace/name` of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One object appeared, changed (`Some`) or went (`None`).
#[derive(Debug, Clone)]
pub enum Change {
    /// A Service.
    Service(ObjectKey, Option<Arc<Service>>),
    /// An EndpointSlice.
    EndpointSlice(ObjectKey, Option<Arc<EndpointSlice>>),
    /// A Node, by name.
    Node(String, Option<Arc<Node>>),
}

/// Changes that became visible together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// What changed since the batch before; everything, in the first one.
    pub changes: Vec<Change>,
    /// The newest resource version that these objects are at, where the source has one.
    pub resource_version: Option<String>,
}

/// A stream of batches. The first batch is the complete state: nothing may be programmed before it.
pub trait Source {
    /// Waits for the next batch; `Ok(None)` when there will never be another.
    ///
    /// Dropping the future loses nothing: the next call returns what was pending.
    fn next(&mut self) -> impl Future<Output = Result<Option<Batch>, SourceError>> + Send;
}

/// A source that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The manifest directory cannot be read or watched.
    #[error("cannot {attempt} {path}: {cause}")]
    Directory {
        /// `read` or `watch`.
        attempt: &'static str,
        /// The directory.
        path: String,
        /// The operating system's or the watcher's words.
        cause: String,
    },
}
