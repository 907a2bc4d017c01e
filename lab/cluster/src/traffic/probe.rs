//! Probes and their outcomes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use svclab_spec::Protocol;

/// A host of the cluster.
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

/// One request and its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The client.
    pub from: ClusterHost,
    /// The destination.
    pub to: SocketAddr,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The source address; `None`: the kernel chooses.
    pub source_address: Option<IpAddr>,
    /// The source port; `None`: the kernel chooses.
    pub source_port: Option<u16>,
    /// The least size of the request and of its answer in bytes.
    pub bytes: usize,
    /// The DSCP of the request's packets.
    pub dscp: u8,
    /// The time after which the probe counts as dropped.
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
        /// The server's address and port.
        at: SocketAddr,
        /// The DSCP of the connection's first packet, or of the datagram, as the server saw it; unknown with SCTP.
        dscp: Option<u8>,
    },
    /// TCP reset or ICMP port unreachable.
    Refused,
    /// Another ICMP error, or no route.
    Unreachable(String),
    /// No answer within the time limit.
    TimedOut,
    /// The established connection broke.
    Broken(String),
}

/// What [`ProbeAnswer::Broken`] says of a TCP reset.
pub const RESET: &str = "the connection was reset";

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOutcome {
    /// The answer.
    pub answer: ProbeAnswer,
    /// The client's address and port.
    pub client: Option<SocketAddr>,
    /// Time until the answer or timeout.
    pub took: Duration,
}
