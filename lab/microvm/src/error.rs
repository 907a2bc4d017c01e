//! Errors of microVMs.

use std::io;

/// What failed and why.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// The caller stopped the microVM.
    #[error("the microVM was stopped")]
    Stopped,
    /// A file operation failed.
    #[error("{attempted}: {source}")]
    Io {
        /// What failed.
        attempted: String,
        /// The cause.
        source: io::Error,
    },
    /// The package is unavailable.
    #[error("{0}")]
    Package(String),
    /// The image cannot be built.
    #[error("cannot build the microVM's image: {0}")]
    Image(String),
    /// QEMU does not start.
    #[error("{0}")]
    Qemu(String),
    /// The guest's job did not finish.
    #[error("{why}; the end of its console:\n{console}")]
    Guest {
        /// The cause.
        why: String,
        /// The last lines of the console.
        console: String,
    },
}

impl VmError {
    pub(super) fn io(attempted: impl Into<String>) -> impl FnOnce(io::Error) -> VmError {
        let attempted = attempted.into();
        move |source| VmError::Io { attempted, source }
    }
}
