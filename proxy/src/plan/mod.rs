//! What must happen to packets, whatever the mode: every rule of Kubernetes is decided here, once. The modes translate
//! a [`ServicePortPlan`] and a [`NodePlan`] into kernel objects.

pub mod advice;
pub mod backends;
pub mod conntrack_index;
pub mod health;
pub mod node;
pub mod other_machines;
pub mod service_port;
pub mod stale_flows;
pub mod summary;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use crate::model::{Family, Protocol, ServicePortName};

pub use backends::HintsIgnored;
pub use node::{ServiceRanges, plan_node, service_ranges};
pub use service_port::plan_service_port;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendSet {
    Cluster,
    Local,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontendVerdict {
    /// Each backend with the same probability.
    Deliver(BackendSet),
    /// No node has an endpoint.
    Reject,
    /// Only other nodes have endpoints, and the policy is Local.
    Drop,
}

/// A hairpin connection (the client is the chosen backend) is always masqueraded, because its reply would not pass the
/// node otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masquerade {
    Never,
    Always,
    /// Every source but pods, if the node can detect them ([`NodePlan::pods`]).
    NotPods,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontendAction {
    pub verdict: FrontendVerdict,
    pub masquerade: Masquerade,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterIpFrontend {
    pub address: IpAddr,
    pub action: FrontendAction,
}

/// The node port, external IPs and load-balancer IPs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalFrontends {
    pub node_port: Option<u16>,
    pub external_ips: Vec<IpAddr>,
    pub load_balancer_ips: Vec<IpAddr>,
    /// The external and load-balancer IPs that another machine has ([`other_machines`]), sorted. A mode that binds them
    /// would cut the node off from that machine.
    pub of_other_machines: Vec<IpAddr>,
    /// The sources that may use the load-balancer IPs; `None`: all.
    pub allowed_sources: Option<AllowedSources>,
    pub action: FrontendAction,
    /// Policy Local does not apply to pods (if the node can detect them) and to the node itself
    /// (kubernetes/kubernetes#92465).
    pub short_circuit: Option<ShortCircuit>,
}

impl ExternalFrontends {
    /// Whether any source reaches a backend.
    pub fn delivers(&self) -> bool {
        matches!(self.action.verdict, FrontendVerdict::Deliver(_)) || self.short_circuit.is_some()
    }

    /// For traffic from the node itself.
    pub fn of_node(&self) -> FrontendAction {
        self.short_circuit.map_or(self.action, |short| short.node)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortCircuit {
    pub pods: FrontendAction,
    pub node: FrontendAction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedSources {
    pub ranges: Vec<IpNet>,
    /// The ranges contain the node itself. The node's connection to a local load-balancer IP has that IP as source, so
    /// the IPs are allowed sources as well.
    pub load_balancer_ips: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// The `healthCheckNodePort`.
    pub port: u16,
    /// Addresses of ready endpoints on this node, sorted, without duplicates.
    pub local_ready: Vec<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePortPlan {
    pub name: ServicePortName,
    pub port: u16,
    /// Sorted; may be empty if no verdict uses them.
    pub cluster_backends: Vec<SocketAddr>,
    /// Sorted; may be empty if no verdict uses them.
    pub local_backends: Vec<SocketAddr>,
    /// Backends on this node that may connect to themselves without being masqueraded by an action, for modes with one
    /// rule for all hairpins. Sorted, without duplicates.
    pub hairpins: Vec<IpAddr>,
    /// The servers at which existing flows may stay: serving endpoints for UDP, all endpoints for SCTP
    /// ([`stale_flows`]), none for TCP. Sorted.
    pub serving: Vec<SocketAddr>,
    pub affinity: Option<Duration>,
    /// `None` if another Service has the cluster IP.
    pub internal: Option<ClusterIpFrontend>,
    pub external: Option<ExternalFrontends>,
    pub health_check: Option<HealthCheck>,
    pub no_local_endpoints: NoLocalEndpoints,
    /// Why topology hints do not apply, if endpoints have hints.
    pub hints_ignored: Option<HintsIgnored>,
}

/// Traffic that policy Local drops because only other nodes have endpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoLocalEndpoints {
    pub internal: bool,
    pub external: bool,
}

impl ServicePortPlan {
    pub fn backends(&self, set: BackendSet) -> &[SocketAddr] {
        match set {
            BackendSet::Cluster => &self.cluster_backends,
            BackendSet::Local => &self.local_backends,
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.name.protocol
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodSource {
    Range(IpNet),
    Interface(String),
    /// By the first letters of the input interface's name.
    InterfacePrefix(String),
}

impl PodSource {
    /// Interface names have at most 15 characters (`IFNAMSIZ`).
    pub fn fits(&self) -> bool {
        match self {
            PodSource::Range(_) => true,
            PodSource::Interface(name) => name.len() <= 15,
            PodSource::InterfacePrefix(prefix) => prefix.len() <= 14,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortScope {
    EveryLocalAddress {
        /// Whether the loopback range is included.
        loopback: bool,
    },
    Addresses(Vec<IpAddr>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    pub family: Family,
    /// The bit of the packet mark that requests masquerade.
    pub masquerade_mark: u32,
    /// `None`: the node cannot detect pods.
    pub pods: Option<PodSource>,
    /// [`ClusterIpFrontend::action`]'s masquerade, which is the same for every service port.
    pub internal_masquerade: Masquerade,
    pub node_ports: NodePortScope,
    /// The loopback address on which this process relays TCP node ports, because rules cannot translate packets to it
    /// without `route_localnet`. UDP and SCTP node ports refuse on the loopback range then.
    pub node_port_relay: Option<IpAddr>,
    pub primary: Option<IpAddr>,
    /// Whether to drop packets from other machines to the loopback range, as `route_localnet` requires (CVE-2020-8558).
    pub guard_loopback: bool,
    /// Whether to drop forwarded packets in conntrack state INVALID (kubernetes/kubernetes#74839).
    pub drop_invalid: bool,
    /// [`ServiceRanges::dropped`]: packets to an address in them that is no cluster IP are dropped. They do not
    /// overlap.
    pub service_ranges: Vec<IpNet>,
}
