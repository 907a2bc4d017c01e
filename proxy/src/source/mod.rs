//! Where Services, EndpointSlices, Nodes and ServiceCIDRs come from. Nothing after this module knows whether it was the
//! Kubernetes API or a directory of manifests: all speak `k8s-openapi` types in batches of changes.

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
pub use kubernetes::{Access, AccessError, Connector, KubernetesSource, Reports, Subjects, Timing, record_events};
pub use manifests::{ManifestSource, Reading, read_directory};
pub use pod_cidr::{AwaitPodCidr, primary_family};
pub use problem::DocumentError;
pub use skipped::SkippedObjects;

/// A stream of batches. The first one that is not [`Batch::partial`], with the partial ones before it, is the complete
/// state: nothing may be programmed before it. After it no batch is partial.
pub trait Source {
    /// Waits for the next batch; `Ok(None)` when there will never be another.
    ///
    /// Dropping the future loses nothing: the next call returns what was pending.
    fn next(&mut self) -> impl Future<Output = Result<Option<Batch>, SourceError>> + Send;

    /// The count of objects that break the rules.
    fn skipped(&self) -> SkippedObjects;
}

/// A source that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The manifest directory cannot be read or watched.
    #[error("cannot {operation} {path}: {cause}")]
    Directory {
        /// `read` or `watch`.
        operation: &'static str,
        /// The directory.
        path: String,
        /// The operating system's or the watcher's words.
        cause: String,
    },
    /// The Node has got no range for its pods, without which `detectLocalMode: NodeCIDR` tells no pod from others.
    #[error(
        "{what} after {patience:?} of waiting, and by its podCIDR detectLocalMode NodeCIDR (--detect-local-mode) tells pods from \
         others: does the cluster allocate node CIDRs?"
    )]
    PodCidr {
        /// Which Node lacks what.
        what: String,
        /// How long it was waited for.
        patience: std::time::Duration,
    },
    /// The Node's ranges for pods are of the family that is not its primary one. As upstream, the proxy ends (`checkBadIPConfig` in
    /// cmd/kube-proxy/app/server.go): where nothing is known to be a pod's, pods' traffic is masqueraded, or dropped under policy Local.
    #[error(
        "Node {node} has no podCIDR of {family}, the family of its primary address, and by it detectLocalMode NodeCIDR \
         (--detect-local-mode) tells pods from others: give the Node one, or name its address of the other family by bindAddress \
         (--bind-address)"
    )]
    PodCidrFamily {
        /// Its name.
        node: String,
        /// The primary family.
        family: Family,
    },
    /// The watches of the Kubernetes API have ended, which they never do.
    #[error("the watches of the Kubernetes API have stopped")]
    Watches,
}

/// Reads these bytes as a manifest, for [`crate::fuzzing`].
pub(crate) fn fuzz_manifest(bytes: &[u8]) {
    for name in ["x.yaml", "x.json"] {
        let _ = documents::read(name, bytes);
    }
}

/// Reads these bytes as answers of an API server, for [`crate::fuzzing`]; whether anything was lost.
pub(crate) fn fuzz_api(bytes: &[u8]) -> bool {
    kubernetes::fuzz(bytes)
}
