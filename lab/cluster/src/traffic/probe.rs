//! Probes and their outcomes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use svclab_spec::Protocol;

/// A host of the cluster: source of traffic, or place to run a command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterHost {
    /// A pod's namespace.
    Pod {
        /// Kubernetes namespace.
        namespace: String,
        /// Kubernetes name.
        name: String,
    },
    /// A node's namespace.
    Node(String),
    /// A client outside the cluster.
    Client(String),
    /// The cloud load balancer's host.
    LoadBalancer,
}

impl fmt::Display for ClusterHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterHost::Pod { namespace, name } => write!(f, "pod/{namespace}/{name}"),
            ClusterHost::Node(name) => write!(f, "node/{name}"),
            ClusterHost::Client(name) => write!(f, "client/{name}"),
            ClusterHost::LoadBalancer => f.write_str("load-balancer"),
        }
    }
}

/// One request and reply: a TCP connection or a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The client.
    pub from: ClusterHost,
    /// The destination.
    pub to: SocketAddr,
    /// The transport protocol.
    pub protocol: Protocol,
    /// Source address; `None` leaves the choice to the kernel.
    pub source_address: Option<IpAddr>,
    /// Source port; `None` leaves the choice to the kernel.
    pub source_port: Option<u16>,
    /// Time limit after which the probe counts as dropped.
    pub timeout: Duration,
}

/// The answer to a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// A server replied.
    Replied {
        /// `namespace/pod` of the server.
        server: String,
        /// The client address that the server saw.
        peer: SocketAddr,
        /// The server's own address and port of the connection.
        at: SocketAddr,
    },
    /// TCP reset or ICMP port unreachable.
    Refused,
    /// Another ICMP error, or no route; the system's message.
    Unreachable(String),
    /// No answer within the time limit.
    TimedOut,
    /// The connection broke after it was established; the reason.
    Broken(String),
}

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOutcome {
    /// The answer.
    pub answer: ProbeAnswer,
    /// The client's address and port.
    pub client: Option<SocketAddr>,
    /// Time from the first packet to the answer or the timeout.
    pub took: Duration,
}
