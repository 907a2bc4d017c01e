//! Namespaces: the sandbox that everything runs in, one thread per network namespace, and links between them.
//!
//! All entering of namespaces, forking and mounting is in `sys.rs`; nothing else in the lab does any of it.

pub mod enter;
pub mod sandbox;

use std::io;

/// A kernel operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// A system call.
    #[error("{attempted}: {source}")]
    Io {
        /// What was attempted, on what.
        attempted: String,
        /// The kernel's answer.
        source: io::Error,
    },
}
