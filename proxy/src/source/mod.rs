//! Sources of objects: the Kubernetes API or manifests. Both emit batches of changes.

mod admit;
mod catalog;
mod directory;
mod documents;
#[cfg(test)]
mod hostile;
mod kubernetes;
mod lenient;
mod manifests;
mod object;
mod pod_cidr;
mod problem;
mod skipped;
mod split;
mod syntax;
mod text;
mod validate;
mod watch;

use crate::model::{Batch, Change, Family, ObjectKey};
pub use admit::{admit_endpoint_slice, admit_node, admit_service, admit_service_cidr};
pub(crate) use kubernetes::without_password;
pub use kubernetes::{
    AcceptedTypes, Access, AccessError, ApiProbe, ApiProblem, Connector, KubernetesSource, ReflectorTiming,
    SourceReports, StateFileCounts, StateFileSettings, StateFileSource, StateFileTiming, WatchScope, has_usable_file,
    probe_api, read_api, record_events,
};
pub use manifests::{DirectoryReading, ManifestSource, read_directory};
pub use pod_cidr::{AwaitPodCidr, lacking_pod_cidr, primary_family};
pub use problem::DocumentError;
pub use skipped::SkippedObjects;

/// Batches up to the first without [`Batch::partial`] are the complete state: nothing may be programmed before. No
/// later batch is partial.
pub trait ObjectSource {
    /// Returns the next batch; `Ok(None)` at the end. Cancel-safe.
    fn next(&mut self) -> impl Future<Output = Result<Option<Batch>, SourceError>> + Send;

    fn skipped(&self) -> SkippedObjects;
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("cannot {operation} {path}: {cause}")]
    Directory {
        /// `read` or `watch`.
        operation: &'static str,
        path: String,
        cause: String,
    },
    #[error(
        "{what} after {patience:?} of waiting, and by its podCIDR detectLocalMode NodeCIDR (--detect-local-mode) tells pods from \
         others: does the cluster allocate node CIDRs?"
    )]
    PodCidr { what: String, patience: std::time::Duration },
    /// As in kube-proxy (`checkBadIPConfig` in cmd/kube-proxy/app/server.go) the proxy exits: it would masquerade
    /// traffic from pods, or drop it under policy Local.
    #[error(
        "Node {node} has no podCIDR of {family}, the family of its primary address, and by it detectLocalMode NodeCIDR \
         (--detect-local-mode) tells pods from others: give the Node one, or name its address of the other family by bindAddress \
         (--bind-address)"
    )]
    PodCidrFamily { node: String, family: Family },
    /// The watches have ended, which is a bug.
    #[error("the watches of the Kubernetes API have stopped")]
    Watches,
}

pub(crate) fn fuzz_manifest(bytes: &[u8]) {
    for name in ["x.yaml", "x.json"] {
        let _ = documents::read(name, bytes);
    }
}

pub(crate) fn fuzz_api(bytes: &[u8]) -> bool {
    kubernetes::fuzz(bytes)
}

pub(crate) fn fuzz_protobuf(bytes: &[u8]) -> bool {
    kubernetes::fuzz_protobuf(bytes)
}

pub(crate) fn fuzz_state_file(bytes: &[u8]) -> bool {
    kubernetes::fuzz_state_file(bytes)
}
