//! Errors of audits and explanations.

use svclab_sim::cluster::{BuildError, NodeReadError};
use svclab_sim::host::HostError;
use svclab_sim::network::NetworkError;

/// A snapshot is malformed or incomplete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The simulator cannot read rules, sets or virtual servers.
    #[error(transparent)]
    Read(#[from] NodeReadError),
    /// Parts contradict each other.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Parts of a machine contradict each other.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The packet is impossible, or its outcome depends on unknown facts.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The snapshot has no interfaces and routes.
    #[error("the archive has no interfaces and routes (network.json): collect it again")]
    NoNetwork,
    /// Existing rules could not be read when the snapshot was taken.
    #[error("{what} could not be read when the archive was collected ({why}): collect it again, as root")]
    Unread {
        /// The unreadable part.
        what: String,
        /// Why it could not be read.
        why: String,
    },
    /// The snapshot has no objects.
    #[error("the archive has no Services and EndpointSlices: collect it again with --kubeconfig")]
    NoObjects,
    /// The node has no route to the caller.
    #[error(
        "the node has no route to {name}, so it is not known by which interface its packets come in: name one with --in"
    )]
    NoWay {
        /// The caller.
        name: String,
    },
    /// A value in the snapshot is invalid.
    #[error("{what}: {problem}")]
    Wrong {
        /// The field.
        what: String,
        /// The mistake.
        problem: String,
    },
}
