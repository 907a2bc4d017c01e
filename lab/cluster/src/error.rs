//! What can go wrong with a cluster, in words that name the item.

use std::io;
use std::time::Duration;

use svclab_netns::NetnsError;

/// A cluster operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The specification cannot be built; found before the kernel was touched.
    #[error("{item}: {problem}")]
    Invalid {
        /// What it is about, for example `pod default/web`.
        item: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No such node, pod, client, load balancer or address.
    #[error("there is no {0} in this cluster")]
    Unknown(String),
    /// The kernel refused something.
    #[error("{attempted}: {source}")]
    Kernel {
        /// What was attempted, on what.
        attempted: String,
        /// The kernel's answer.
        source: NetnsError,
    },
    /// A socket, file or process operation failed.
    #[error("{attempted}: {source}")]
    Io {
        /// What was attempted, on what.
        attempted: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A condition did not become true in time.
    #[error("{waiting_for}: not within {after:?}")]
    TimedOut {
        /// The condition.
        waiting_for: String,
        /// How long it was waited for.
        after: Duration,
    },
}

impl ClusterError {
    /// A specification that cannot be built.
    pub fn invalid(item: impl Into<String>, problem: impl Into<String>) -> Self {
        ClusterError::Invalid { item: item.into(), problem: problem.into() }
    }

    /// For `map_err`: names what was attempted.
    pub fn kernel(attempted: impl Into<String>) -> impl FnOnce(NetnsError) -> Self {
        let attempted = attempted.into();
        move |source| ClusterError::Kernel { attempted, source }
    }

    /// For `map_err`: names what was attempted.
    pub fn io(attempted: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let attempted = attempted.into();
        move |source| ClusterError::Io { attempted, source }
    }
}
