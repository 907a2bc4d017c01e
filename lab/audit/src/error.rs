//! Why a snapshot cannot be judged.

use svclab_sim::cluster::{BuildError, NodeReadError};
use svclab_sim::host::HostError;
use svclab_sim::network::NetworkError;

/// A snapshot that is not understood, or that has not what a judgement needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// A text of rules, sets or virtual servers that the simulator does not understand.
    #[error(transparent)]
    Read(#[from] NodeReadError),
    /// Parts that do not go together.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Parts that do not go together on one machine.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A packet that cannot be, or rules that leave open what becomes of it.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The snapshot has no interfaces and routes.
    #[error("the archive has no interfaces and routes (network.json): collect it again")]
    NoNetwork,
    /// Rules that were there could not be read when the snapshot was taken: without them everything would look missing.
    #[error("{what} could not be read when the archive was collected ({why}): collect it again, as root")]
    Unread {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
    /// The snapshot has no objects.
    #[error("the archive has no Services and EndpointSlices: collect it again with --kubeconfig")]
    NoObjects,
    /// A caller to whom the node has no route.
    #[error(
        "the node has no route to {name}: it cannot be answered there, nor is it known by which interface it calls"
    )]
    NoWay {
        /// The caller.
        name: String,
    },
    /// Something in the snapshot cannot be.
    #[error("{what}: {problem}")]
    Wrong {
        /// Where.
        what: String,
        /// What is wrong.
        problem: String,
    },
}
