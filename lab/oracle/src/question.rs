use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::address::{self, Family};
use crate::modes;
use crate::world::{PodName, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Protocol {
    /// TCP is also the protocol of objects that name none.
    #[default]
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

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

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacketSource {
    /// A pod; on the host network it sends as its node.
    Pod(PodName),
    Node(String),
    /// A node, from its loopback address.
    Loopback(String),
    /// A host outside the cluster. `enters` is the node where its packets enter: a packet to a node's address enters
    /// there.
    Outside {
        client: String,
        enters: String,
    },
    /// The cloud load balancer, from its own address.
    LoadBalancer {
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

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    pub from: PacketSource,
    /// `None`: the kernel chooses the source address.
    pub source: Option<IpAddr>,
    pub to: SocketAddr,
    pub protocol: Protocol,
}

impl Question {
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
    /// `None` without an address of the family. `vip`: the destination is a service address, which IPVS mode makes local.
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

    /// Returns the overlay or second address towards other nodes' pods, a local destination itself, otherwise the first
    /// address. That is also the source of calls to another IPv4 address of the node on its network, which the kernel
    /// keeps as a secondary one (`fib_add_ifaddr`, net/ipv4/fib_frontend.c).
    fn node_source(&self, node: &str, to: IpAddr, vip: bool) -> Option<IpAddr> {
        let node = self.node(node)?;
        let is_secondary = to.is_ipv4() && node.addresses.contains(&to);
        let own = (node.has(to) && !is_secondary)
            || to.is_loopback()
            || (vip && modes::semantics(&self.proxy).binds_addresses);
        let from = match self.uses_pod_route(&node.name, to) {
            true if !node.overlay.is_empty() => &node.overlay,
            true if !node.second.is_empty() => &node.second,
            _ => &node.addresses,
        };
        if own { Some(to) } else { address::first_of(from, Family::of(to)) }
    }

    /// Whether `to` is a pod of another node, or another node's address on the overlay or second network.
    fn uses_pod_route(&self, node: &str, to: IpAddr) -> bool {
        let pod = self.pods.iter().any(|pod| !pod.host_network && pod.node != node && pod.addresses.contains(&to));
        let mut others = self.nodes.iter().filter(|other| other.name != node);
        pod || others.any(|end| [&end.overlay, &end.second, &end.gateways].into_iter().any(|own| own.contains(&to)))
    }
}
