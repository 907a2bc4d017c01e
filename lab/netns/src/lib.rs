//! Network namespaces without root: the sandbox that everything runs in, one thread per network namespace, and links between them.
//!
//! [`sandbox::enter`], called first thing in `main`, puts the rest of the program into new mount, network, PID, IPC and UTS
//! namespaces (and a user namespace, unless the host's root runs it); whatever ends the program ends all that is inside. [`namespace::Namespace`] is a host in there: closures that it runs
//! make sockets of that host, programs that it starts live there. [`links`] makes veth pairs, bridges, VXLAN devices, addresses and
//! routes by netlink, [`netem`] impairs them. `examples/two_hosts.rs` has two hosts and a cable in a screen of code.
//!
//! All entering of namespaces, forking and mounting is in `sys.rs`; nothing else in the lab does any of it.

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

/// Has the kernel kill the command's process when the thread that starts it ends, whatever ends it.
pub fn die_with_this_process(command: &mut std::process::Command) {
    sys::die_with_this_process(command);
}

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
    /// A route netlink request.
    #[error("{attempted}: {source}")]
    Netlink {
        /// What was attempted, on what.
        attempted: String,
        /// The kernel's answer.
        source: Box<rtnetlink::Error>,
    },
    /// The thread that lives in the namespace has ended.
    #[error("namespace {0} is gone")]
    Gone(String),
}

impl NetnsError {
    /// For `map_err`: names what was attempted.
    pub fn io(attempted: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let attempted = attempted.into();
        move |source| NetnsError::Io { attempted, source }
    }

    /// For `map_err`: names what was attempted.
    pub(crate) fn netlink(attempted: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        let attempted = attempted.into();
        move |source| NetnsError::Netlink { attempted, source: Box::new(source) }
    }
}
