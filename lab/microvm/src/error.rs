//! Why there is no microVM, or none that answered.

use std::io;

/// What was attempted, and what stood in the way: one sentence for people.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// It was asked to end before its job did.
    #[error("the microVM was stopped")]
    Stopped,
    /// A file operation, mostly in the cache.
    #[error("{attempted}: {source}")]
    Io {
        /// What was attempted.
        attempted: String,
        /// Why it did not work.
        source: io::Error,
    },
    /// A package could not be had.
    #[error("{0}")]
    Package(String),
    /// The image could not be built from what is there.
    #[error("cannot build the microVM's image: {0}")]
    Image(String),
    /// QEMU could not be started.
    #[error("{0}")]
    Qemu(String),
    /// The guest did not come to its end.
    #[error("{why}; the end of its console:\n{console}")]
    Guest {
        /// What happened.
        why: String,
        /// The last lines.
        console: String,
    },
}

impl VmError {
    /// For `map_err`.
    pub(super) fn io(attempted: impl Into<String>) -> impl FnOnce(io::Error) -> VmError {
        let attempted = attempted.into();
        move |source| VmError::Io { attempted, source }
    }
}
