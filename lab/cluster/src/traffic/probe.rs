//! What a probe is and what came of it, as plain data.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use svclab_spec::Protocol;

/// A place in the lab that traffic can start from or a command can run in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterHost {
    /// A pod.
    Pod {
        /// Kubernetes namespace.
        namespace: String,
        /// Kubernetes name.
        name: String,
    },
    /// A node (its own network namespace).
    Node(String),
    /// An outside client.
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

/// One request: a TCP connection with one line each way, or one datagram each way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Where it starts.
    pub from: ClusterHost,
    /// Where it goes.
    pub to: SocketAddr,
    /// Over what.
    pub protocol: Protocol,
    /// Source address to bind, if not the kernel's choice.
    pub source_address: Option<IpAddr>,
    /// Source port to bind, if not the kernel's choice.
    pub source_port: Option<u16>,
    /// How long silence is taken for a drop.
    pub timeout: Duration,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// A server answered.
    Replied {
        /// Who: `namespace/pod`.
        server: String,
        /// The peer address that the server saw.
        peer: SocketAddr,
        /// Its own address and port, as it was called there.
        at: SocketAddr,
    },
    /// TCP reset or ICMP port unreachable.
    Refused,
    /// Another ICMP error or no route; the operating system's words.
    Unreachable(String),
    /// Silence until the deadline.
    TimedOut,
    /// The connection stood and then broke (reset in the middle, bad reply); what was seen.
    Broken(String),
}

/// A probe's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOutcome {
    /// What came back.
    pub answer: ProbeAnswer,
    /// The client's own address and port, as its socket had it.
    pub client: Option<SocketAddr>,
    /// From the first packet to the answer, or to the end of patience.
    pub took: Duration,
}
