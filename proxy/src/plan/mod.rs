//! Decides how packets are handled, whatever the mode: every rule of Kubernetes is decided here, once. Modes translate
//! a [`ServicePortPlan`] and a [`NodePlan`] into kernel objects.

pub mod advice;
pub mod affinity;
pub mod backends;
pub mod conntrack_index;
pub mod ended_flows;
pub mod flow_fate;
pub mod health;
pub mod ignored_annotations;
pub mod load_balancing;
pub mod lost_flows;
pub mod maglev;
pub mod node;
pub mod other_machines;
pub mod service_port;
pub mod source_ranges;
pub mod stale_flows;
pub mod summary;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use crate::model::{Family, FlowFate, Frontend, LoadBalancing, Protocol, ServicePortName};

pub use backends::HintsIgnored;
pub use flow_fate::FateIgnored;
use ignored_annotations::AnnotationIgnored;
pub use load_balancing::BalancingIgnored;
pub use node::{ServiceRanges, plan_node, service_ranges};
pub use service_port::plan_service_port;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendSet {
    Cluster,
    Local,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontendVerdict {
    /// Delivers to each backend of the set with the same probability.
    Deliver(BackendSet),
    /// No node has an endpoint.
    Reject,
    /// Policy Local, and only other nodes have endpoints.
    Drop,
}

/// Hairpins (the client is the chosen backend) are always masqueraded: otherwise the reply would not pass the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masquerade {
    Never,
    Always,
    /// All sources but pods, if the node can detect pods ([`NodePlan::pods`]).
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalFrontends {
    pub node_port: Option<u16>,
    pub external_ips: Vec<IpAddr>,
    pub load_balancer_ips: Vec<IpAddr>,
    /// Sorted external and load-balancer IPs that another machine has ([`other_machines`]). A mode that binds them
    /// would cut the node off from that machine.
    pub of_other_machines: Vec<IpAddr>,
    /// Allowed sources of load-balancer IPs; `None`: all.
    pub allowed_sources: Option<Box<AllowedSources>>,
    /// Allowed sources of node ports and external IPs; `None`: all.
    pub annotated_sources: Option<Box<AllowedSources>>,
    pub action: FrontendAction,
    /// Policy Local does not apply to detected pods and to the node itself (kubernetes/kubernetes#92465).
    pub short_circuit: Option<ShortCircuit>,
}

impl ExternalFrontends {
    pub fn delivers(&self) -> bool {
        matches!(self.action.verdict, FrontendVerdict::Deliver(_)) || self.short_circuit.is_some()
    }

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
    /// Whether the IPs themselves are allowed as sources: the ranges contain the node, whose connections to such an IP
    /// may have that source.
    pub own_addresses: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// The `healthCheckNodePort`.
    pub port: u16,
    /// Ready local addresses, sorted, without duplicates.
    pub local_ready: Vec<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePortPlan {
    pub name: ServicePortName,
    pub port: u16,
    /// Sorted; may be empty if no frontend uses them.
    pub cluster_backends: Vec<SocketAddr>,
    /// Sorted; may be empty if no frontend uses them.
    pub local_backends: Vec<SocketAddr>,
    /// Local backends that may connect to themselves without an action's masquerade, for modes with one rule for all
    /// hairpins. Sorted, without duplicates.
    pub hairpins: Vec<IpAddr>,
    /// The servers to which existing flows may stay, sorted: serving endpoints for UDP, all for SCTP ([`stale_flows`]);
    /// serving endpoints for TCP unless its fate is [`FlowFate::Keep`].
    pub serving: Vec<SocketAddr>,
    pub flow_fate: FlowFate,
    pub load_balancing: LoadBalancing,
    pub annotations_ignored: Vec<AnnotationIgnored>,
    pub affinity: Option<Duration>,
    /// Whether the Service's ports remember clients together, by the addresses of endpoints. Only with affinity.
    pub affinity_across_ports: bool,
    /// `None`: another Service has the cluster IP.
    pub internal: Option<ClusterIpFrontend>,
    pub external: Option<ExternalFrontends>,
    pub health_check: Option<HealthCheck>,
    pub no_local_endpoints: NoLocalEndpoints,
    pub hints_ignored: Option<HintsIgnored>,
}

/// Whether policy Local drops packets because only other nodes have endpoints.
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

    pub fn frontends(&self) -> impl Iterator<Item = Frontend> {
        let external =
            self.external.iter().flat_map(|external| external.external_ips.iter().chain(&external.load_balancer_ips));
        let addresses = self.internal.iter().map(|internal| &internal.address).chain(external);
        let node_port = self.external.as_ref().and_then(|external| external.node_port);
        let addresses = addresses.map(|ip| Frontend::Address(SocketAddr::new(*ip, self.port)));
        addresses.chain(node_port.map(Frontend::NodePort))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodSource {
    Range(IpNet),
    Interface(String),
    /// The first letters of the input interface's name.
    InterfacePrefix(String),
}

impl PodSource {
    /// Whether the name has at most 15 characters (`IFNAMSIZ`).
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
    pub masquerade_mark: u32,
    /// The source of masqueraded packets; `None`: an address of the outgoing interface (`MASQUERADE`).
    pub masquerade_source: Option<IpAddr>,
    /// Endpoint ranges to which this node's own packets keep their source, sorted (`noMasqueradeCIDRs`, KEP-6246). Its
    /// packets from the loopback range are masqueraded: no endpoint can reply to them.
    pub unmasqueraded: Vec<IpNet>,
    /// How to detect packets from pods, if possible.
    pub pods: Option<PodSource>,
    /// The masquerade of [`ClusterIpFrontend::action`], the same for every service port.
    pub internal_masquerade: Masquerade,
    pub node_ports: NodePortScope,
    /// Loopback address of the TCP node port relays: rules cannot translate packets to it without `route_localnet`. UDP
    /// and SCTP node ports refuse on the loopback range then.
    pub node_port_relay: Option<IpAddr>,
    pub primary: Option<IpAddr>,
    /// Counts connections to node ports on the loopback range.
    pub count_loopback: bool,
    /// Drops other machines' packets to the loopback range, as `route_localnet` requires (CVE-2020-8558).
    pub guard_loopback: bool,
    /// Drops forwarded packets in conntrack state INVALID (kubernetes/kubernetes#74839).
    pub drop_invalid: bool,
    /// [`ServiceRanges::dropped`], without overlaps: packets to their addresses that are no cluster IPs are dropped.
    pub service_ranges: Vec<IpNet>,
    /// How long lost flows are remembered, if any service port may reset them ([`flow_fate::memory`]).
    pub lost_flows: Option<Duration>,
    /// Whether a service port may limit the sources of its node port; only nftables mode reads it.
    pub limits_node_ports: bool,
    /// Whether the rules count the traffic of service ports; only nftables mode reads it.
    pub count_services: bool,
}
