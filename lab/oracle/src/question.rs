//! What the oracle is asked: who sends what to where.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::address::{self, Family};
use crate::modes;
use crate::world::{PodName, World};

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Protocol {
    /// TCP, and what an object means that names none.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// As objects spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }

    pub(crate) fn parse(name: Option<&str>) -> Option<Protocol> {
        name.map_or(Some(Protocol::Tcp), |name| Protocol::ALL.into_iter().find(|protocol| protocol.name() == name))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who sends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacketSource {
    /// A pod; one on the host network is the node, as far as the network can tell.
    Pod(PodName),
    /// A node.
    Node(String),
    /// A node, from its loopback address.
    Loopback(String),
    /// A host outside, whose packets enter the cluster at a node. Those for an address of a node's own reach that node.
    Outside {
        /// Name of the host.
        client: String,
        /// Name of the node.
        enters: String,
    },
    /// The cloud's load balancer, from its own address.
    LoadBalancer {
        /// Name of the node that it sends to.
        enters: String,
    },
}

impl fmt::Display for PacketSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketSource::Pod(name) => write!(f, "pod/{name}"),
            PacketSource::Node(name) => write!(f, "node/{name}"),
            PacketSource::Loopback(name) => write!(f, "node/{name} (loopback)"),
            PacketSource::Outside { client, enters } => write!(f, "client/{client} by way of {enters}"),
            PacketSource::LoadBalancer { enters } => write!(f, "load-balancer by way of {enters}"),
        }
    }
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// Who sends.
    pub from: PacketSource,
    /// The source address, if it is not the one that the kernel would choose.
    pub source: Option<IpAddr>,
    /// Where to.
    pub to: SocketAddr,
    /// Over which protocol.
    pub protocol: Protocol,
}

impl Question {
    /// A question with the source address that the kernel chooses.
    #[must_use]
    pub fn new(from: PacketSource, to: SocketAddr, protocol: Protocol) -> Question {
        Question { from, source: None, to, protocol }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}/{}", self.from, self.to, self.protocol)?;
        self.source.map_or(Ok(()), |source| write!(f, " from {source}"))
    }
}

impl World {
    /// The source address that a packet of this question leaves with; `None`: that place has no address of the
    /// destination's family. `vip`: the destination is a service's address, which IPVS mode makes the node's own.
    pub(crate) fn source_address(&self, question: &Question, vip: bool) -> Option<IpAddr> {
        let to = question.to.ip();
        let family = Family::of(to);
        question.source.or_else(|| match &question.from {
            PacketSource::Pod(name) => {
                let pod = self.pod(name)?;
                if pod.host_network {
                    return self.node_source(&pod.node, to, vip);
                }
                address::first_of(&pod.addresses, family)
            }
            PacketSource::Node(node) => self.node_source(node, to, vip),
            PacketSource::Loopback(_) => Some(match family {
                Family::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
                Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
            }),
            PacketSource::Outside { client, .. } => {
                let client = self.clients.iter().find(|place| place.name == *client)?;
                address::first_of(&client.addresses, family)
            }
            PacketSource::LoadBalancer { .. } => address::first_of(&self.load_balancer, family),
        })
    }

    /// A node calls its own addresses from themselves, other nodes' pods by an overlay or a second interface if there is one, and
    /// everybody else from its first.
    fn node_source(&self, node: &str, to: IpAddr, vip: bool) -> Option<IpAddr> {
        let node = self.node(node)?;
        let own = node.has(to) || to.is_loopback() || (vip && modes::semantics(&self.proxy).binds_addresses);
        let from = match self.is_for_pods(&node.name, to) {
            true if !node.overlay.is_empty() => &node.overlay,
            true if !node.second.is_empty() => &node.second,
            _ => &node.addresses,
        };
        if own { Some(to) } else { address::first_of(from, Family::of(to)) }
    }

    /// Whether a node's way to an address is the one to other nodes' pods: it is in the range of another's, or at the end of that way.
    fn is_for_pods(&self, node: &str, to: IpAddr) -> bool {
        let pod = self.pods.iter().any(|pod| !pod.host_network && pod.node != node && pod.addresses.contains(&to));
        let mut others = self.nodes.iter().filter(|other| other.name != node);
        pod || others.any(|end| [&end.overlay, &end.second, &end.gateways].into_iter().any(|own| own.contains(&to)))
    }
}
