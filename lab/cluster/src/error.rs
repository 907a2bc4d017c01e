use std::io;
use std::time::Duration;

use svclab_netns::NetnsError;

/// A cluster operation failed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The specification is invalid; reported before any kernel operation.
    #[error("{item}: {problem}")]
    Invalid {
        /// The invalid item, for example `pod default/web`.
        item: String,
        /// What is wrong.
        problem: String,
    },
    /// No such node, pod, client, load balancer or address.
    #[error("there is no {0} in this cluster")]
    Unknown(String),
    /// A namespace or netlink operation failed.
    #[error("{attempted}: {source}")]
    Kernel {
        /// The operation and its object.
        attempted: String,
        /// The cause.
        source: NetnsError,
    },
    /// A socket, file or process operation failed.
    #[error("{attempted}: {source}")]
    Io {
        /// The operation and its object.
        attempted: String,
        /// The cause.
        source: io::Error,
    },
    /// A condition did not become true in time.
    #[error("{waiting_for}: not within {after:?}")]
    TimedOut {
        /// The condition.
        waiting_for: String,
        /// The time limit.
        after: Duration,
    },
}

impl ClusterError {
    /// Shorthand for [`ClusterError::Invalid`].
    pub fn invalid(item: impl Into<String>, problem: impl Into<String>) -> Self {
        ClusterError::Invalid { item: item.into(), problem: problem.into() }
    }

    /// Converts the error, for `map_err`.
    pub fn kernel(attempted: impl Into<String>) -> impl FnOnce(NetnsError) -> Self {
        let attempted = attempted.into();
        move |source| ClusterError::Kernel { attempted, source }
    }

    /// Converts the error, for `map_err`.
    pub fn io(attempted: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let attempted = attempted.into();
        move |source| ClusterError::Io { attempted, source }
    }
}
