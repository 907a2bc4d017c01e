//! What must happen to a packet, with no word of any mode in it. Every rule of Kubernetes is decided here, once;
//! the modes only write down what stands in a [`ServicePortPlan`] and a [`NodePlan`].

pub mod advice;
pub mod backends;
pub mod flows;
pub mod frontends;
pub mod health;
pub mod node;
pub mod other_machines;
pub mod service_port;
pub mod tally;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use crate::model::{Family, Protocol, ServicePortName};

pub use backends::HintsIgnored;
pub use node::{ServiceRanges, plan_node, service_ranges};
pub use service_port::plan_service_port;

/// Which of a service port's two sets of backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendSet {
    /// Those chosen from the whole cluster.
    Cluster,
    /// Those on this node.
    Local,
}

/// What happens to a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A backend of this set gets it, each with the same probability.
    Deliver(BackendSet),
    /// Refused: there are no endpoints on any node.
    Reject,
    /// Dropped: there are endpoints on other nodes only, and the policy asks for this node.
    Drop,
}

/// Whose source address is replaced by the node's. A hairpin connection (the client is the chosen backend) is
/// masqueraded whatever stands here, or the reply would never come back through the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masquerade {
    /// No source's.
    Never,
    /// Every source's.
    Always,
    /// That of every source but pods, as far as pods can be detected ([`NodePlan::pods`]).
    NotPods,
}

/// A verdict and who is masqueraded under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontendAction {
    /// What happens.
    pub verdict: Verdict,
    /// To whose address.
    pub masquerade: Masquerade,
}

/// The cluster IP: the frontend inside the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterIpFrontend {
    /// The cluster IP.
    pub address: IpAddr,
    /// What happens to every source.
    pub action: FrontendAction,
}

/// All frontends for the world outside: node port, external IPs and load-balancer IPs are treated alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalFrontends {
    /// The node port.
    pub node_port: Option<u16>,
    /// External IPs.
    pub external_ips: Vec<IpAddr>,
    /// Load-balancer IPs.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Those of the external and load-balancer IPs that another machine has ([`other_machines`]), sorted: a mode that binds addresses to
    /// the node must not bind these, or the other machine's ports could not be reached from this node.
    pub of_other_machines: Vec<IpAddr>,
    /// Sources that may use the load-balancer IPs; `None`: all. Node port and external IPs are not restricted.
    pub allowed_sources: Option<AllowedSources>,
    /// What happens to traffic from elsewhere.
    pub action: FrontendAction,
    /// Under policy Local, pods (where they can be detected) and the node itself are not held to it: their traffic goes
    /// as if it had left the cluster and come back (kubernetes/kubernetes#92465).
    pub short_circuit: Option<ShortCircuit>,
}

impl ExternalFrontends {
    /// Whether anybody at all is answered.
    pub fn delivers(&self) -> bool {
        matches!(self.action.verdict, Verdict::Deliver(_)) || self.short_circuit.is_some()
    }

    /// What happens to what the node itself sends.
    pub fn of_node(&self) -> FrontendAction {
        self.short_circuit.map_or(self.action, |short| short.node)
    }
}

/// What pods and the node itself get under policy Local.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortCircuit {
    /// Traffic from pods.
    pub pods: FrontendAction,
    /// Traffic from the node itself.
    pub node: FrontendAction,
}

/// `loadBalancerSourceRanges`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedSources {
    /// Allowed ranges.
    pub ranges: Vec<IpNet>,
    /// The node itself is in a range. Its own connection to a load-balancer IP has that very IP as source where the
    /// IP is a local address, so the load-balancer IPs are allowed sources too.
    pub load_balancer_ips: bool,
}

/// `healthCheckNodePort`, and what a service port adds to its Service's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// The port.
    pub port: u16,
    /// Addresses of ready endpoints on this node, sorted, each once.
    pub local_ready: Vec<IpAddr>,
}

/// Everything about one service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePortPlan {
    /// Its name.
    pub name: ServicePortName,
    /// Port on the cluster IP, external and load-balancer IPs.
    pub port: u16,
    /// Backends of [`BackendSet::Cluster`], sorted; empty also where no verdict uses them.
    pub cluster_backends: Vec<SocketAddr>,
    /// Backends of [`BackendSet::Local`], sorted; empty also where no verdict uses them.
    pub local_backends: Vec<SocketAddr>,
    /// Addresses of backends that may be their own clients on this node and whose source no action replaces: a mode that has one rule for
    /// all hairpins asks for these only. Sorted, each once.
    pub hairpins: Vec<IpAddr>,
    /// Where flows may stay that were led there: of UDP every endpoint that serves, of SCTP every endpoint, whatever the policy, sorted; see
    /// [`flows`]. Empty for TCP, whose connections end by themselves.
    pub serving: Vec<SocketAddr>,
    /// A client goes to the same backend again within this time.
    pub affinity: Option<Duration>,
    /// The cluster IP, unless another service has it.
    pub internal: Option<ClusterIpFrontend>,
    /// The frontends for outside, if there are any.
    pub external: Option<ExternalFrontends>,
    /// The health check that a load balancer asks, if there is one.
    pub health_check: Option<HealthCheck>,
    /// Policies (`internal`, `external`) under which this node has no endpoint although others have.
    pub no_local_endpoints: NoLocalEndpoints,
    /// Why topology hints are not followed, where there are any and they are not.
    pub hints_ignored: Option<HintsIgnored>,
}

/// Which traffic is lost on this node for want of local endpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoLocalEndpoints {
    /// That to the cluster IP.
    pub internal: bool,
    /// That to the other frontends.
    pub external: bool,
}

impl ServicePortPlan {
    /// The backends of a set.
    pub fn backends(&self, set: BackendSet) -> &[SocketAddr] {
        match set {
            BackendSet::Cluster => &self.cluster_backends,
            BackendSet::Local => &self.local_backends,
        }
    }

    /// Its transport protocol.
    pub fn protocol(&self) -> Protocol {
        self.name.protocol
    }
}

/// How a pod's packet is detected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodSource {
    /// Its source is in this range.
    Range(IpNet),
    /// It came in through this interface.
    Interface(String),
    /// It came in through an interface whose name starts so.
    InterfacePrefix(String),
}

impl PodSource {
    /// Whether the kernel can match this source: names of interfaces have up to 15 characters (`IFNAMSIZ`).
    pub fn fits(&self) -> bool {
        match self {
            PodSource::Range(_) => true,
            PodSource::Interface(name) => name.len() <= 15,
            PodSource::InterfacePrefix(prefix) => prefix.len() <= 14,
        }
    }
}

/// Where node ports are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortScope {
    /// On every local address, with or without the loopback range.
    EveryLocalAddress {
        /// The loopback range counts.
        loopback: bool,
    },
    /// On these addresses only.
    Addresses(Vec<IpAddr>),
}

/// What holds for all of a node's services, in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    /// The family.
    pub family: Family,
    /// The bit of the packet mark that asks for masquerade.
    pub masquerade_mark: u32,
    /// How pods are detected; `None`: they cannot be.
    pub pods: Option<PodSource>,
    /// Who is masqueraded to cluster IPs: what [`ClusterIpFrontend::action`] has for every service port, for modes that have one
    /// rule for all.
    pub internal_masquerade: Masquerade,
    /// Where node ports are accepted.
    pub node_ports: NodePortScope,
    /// Where relays of this program answer node ports of TCP besides: a loopback address, to which no packet may be led by rules without
    /// `route_localnet`. Those of UDP and SCTP refuse on the whole loopback range then.
    pub node_port_relay: Option<IpAddr>,
    /// The node's primary address of the family.
    pub primary: Option<IpAddr>,
    /// Packets from elsewhere to the loopback range are dropped: the guard that `route_localnet` makes necessary (CVE-2020-8558).
    pub guard_loopback: bool,
    /// Packets that conntrack calls INVALID are not forwarded (kubernetes/kubernetes#74839).
    pub drop_invalid: bool,
    /// Where cluster IPs come from, by [`ServiceRanges::dropped`]: a packet to an address in it that is no cluster IP is dropped. No two overlap.
    pub service_ranges: Vec<IpNet>,
}
