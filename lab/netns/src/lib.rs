//! Network namespaces without root.
//!
//! [`sandbox::enter`], called first in `main`, moves the program into new namespaces, which end with it. A
//! [`namespace::Namespace`] is a host inside: its thread creates sockets and starts programs. [`links`] configures
//! interfaces and routes, [`netem`] impairs traffic. Example: `examples/two_hosts.rs`.
//!
//! Only `sys.rs` enters namespaces, forks and mounts.

#![warn(missing_docs)]

pub mod capture;
mod diagnose;
pub mod dscp;
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

/// Lets the command die with the thread that starts it.
pub fn die_with_this_process(command: &mut std::process::Command) {
    sys::die_with_this_process(command);
}

/// A failed kernel operation.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// A system call failed.
    #[error("{attempted}: {source}")]
    Io {
        /// Operation and object.
        attempted: String,
        /// The cause.
        source: io::Error,
    },
    /// A route netlink request failed.
    #[error("{attempted}: {source}")]
    Netlink {
        /// Operation and object.
        attempted: String,
        /// The cause.
        source: Box<rtnetlink::Error>,
    },
    /// The namespace's thread ended.
    #[error("namespace {0} is gone")]
    Gone(String),
}

impl NetnsError {
    /// Returns a function for `map_err`.
    pub fn io(attempted: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let attempted = attempted.into();
        move |source| NetnsError::Io { attempted, source }
    }

    pub(crate) fn netlink(attempted: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        let attempted = attempted.into();
        move |source| NetnsError::Netlink { attempted, source: Box::new(source) }
    }
}
