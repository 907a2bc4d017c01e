//! Network namespaces without root.
//!
//! [`sandbox::enter`], called first in `main`, moves the rest of the program into new namespaces; everything inside
//! ends with the program. A [`namespace::Namespace`] is a host inside: its thread creates sockets and starts programs.
//! [`links`] configures interfaces and routes, [`netem`] impairs traffic. See `examples/two_hosts.rs`.
//!
//! Only `sys.rs` enters namespaces, forks and mounts.

#![warn(missing_docs)]

pub mod capture;
mod diagnose;
pub mod enter;
pub mod foreign_namespace;
mod guard;
pub mod labs;
pub mod links;
mod loopback;
pub mod mac;
pub mod namespace;
pub mod netem;
pub mod pcap;
pub mod sandbox;
mod self_test;
pub mod sockets;
mod supervisor;
mod sys;

use std::io;

pub use loopback::loopback_up;

/// The kernel kills the command's process when the thread that starts it ends.
pub fn die_with_this_process(command: &mut std::process::Command) {
    sys::die_with_this_process(command);
}

/// A kernel operation failed.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// A system call failed.
    #[error("{attempted}: {source}")]
    Io {
        /// The operation and its object.
        attempted: String,
        /// The cause.
        source: io::Error,
    },
    /// A route netlink request failed.
    #[error("{attempted}: {source}")]
    Netlink {
        /// The operation and its object.
        attempted: String,
        /// The cause.
        source: Box<rtnetlink::Error>,
    },
    /// The namespace's thread has ended.
    #[error("namespace {0} is gone")]
    Gone(String),
}

impl NetnsError {
    /// For `map_err`.
    pub fn io(attempted: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let attempted = attempted.into();
        move |source| NetnsError::Io { attempted, source }
    }

    pub(crate) fn netlink(attempted: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        let attempted = attempted.into();
        move |source| NetnsError::Netlink { attempted, source: Box::new(source) }
    }
}
