//! A cluster as a few small numbers that proptest draws and shrinks to valid clusters only.

use crate::settings::NodePortAddress;
use crate::world::ReversePath;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recipe {
    pub families: Families,
    pub point_to_point: bool,
    /// Whether the node's ends of point-to-point links have the gateway address.
    pub link_gateways: bool,
    pub overlay: bool,
    /// Whether nodes reach each other's pods by a second interface, without overlay.
    pub second: bool,
    pub reverse_path: ReversePath,
    pub nodes: Vec<NodeRecipe>,
    /// The pods in addition to the calling pod on each node.
    pub pods: Vec<PodRecipe>,
    pub services: Vec<ServiceRecipe>,
    pub proxy: ProxyRecipe,
    pub service_cidrs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Families {
    #[default]
    V4,
    V6,
    Dual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRecipe {
    /// `None`: the node has no zone label.
    pub zone: Option<u8>,
    pub second_address: bool,
    pub declared: DeclaredAddresses,
}

/// `status.addresses` of a Node object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclaredAddresses {
    /// The first address of each family, as InternalIP.
    Firsts,
    /// The last address as ExternalIP, then all as InternalIP.
    All,
    /// The last address of each family, as ExternalIP.
    External,
    /// Like `Firsts`, with an invalid host name.
    OddName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRecipe {
    pub node: u8,
    /// Whether the pod is on the host network; applies to one pod per node.
    pub host_network: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DetectRecipe {
    #[default]
    ClusterCidr,
    NodeCidr,
    Interface,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodePortsRecipe {
    #[default]
    Unset,
    Word(NodePortAddress),
    NodeNetwork,
    /// Ranges of the first node's addresses only.
    FirstNode,
    WithLoopback,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyRecipe {
    pub detect: DetectRecipe,
    pub masquerade_all: bool,
    pub node_ports: NodePortsRecipe,
    pub localhost_node_ports: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceKind {
    #[default]
    ClusterIp,
    NodePort,
    LoadBalancer,
    Headless,
    ExternalName,
    OtherProxy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceFamilies {
    #[default]
    First,
    Second,
    Both,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceRecipe {
    pub kind: ServiceKind,
    pub stack: ServiceFamilies,
    pub internal_local: bool,
    pub external_local: bool,
    /// The timeout of session affinity, in seconds.
    pub affinity: Option<u16>,
    pub ports: Vec<PortRecipe>,
    /// Numbers of addresses in a pool that all services share.
    pub external_ips: Vec<u8>,
    /// Numbers of addresses in a pool that all services share.
    pub ingress: Vec<(u8, IngressMode)>,
    pub source_ranges: Vec<SourceRangeRecipe>,
    pub endpoints: Vec<EndpointRecipe>,
    pub hints: HintsRecipe,
    /// Whether endpoints of the second slice have another target port.
    pub other_targets: bool,
    /// Whether ports of the third slice have unknown names.
    pub other_names: bool,
    /// Whether each slice has only some of the ports.
    pub disjoint: bool,
    /// Bits of [`ServiceRecipe::LEFT_OUT`]: default values to omit.
    pub left_out: u16,
    pub claims: Option<ClaimRecipe>,
    /// The seconds of the creation time.
    pub created: Option<u8>,
    pub annotations: AnnotationRecipe,
    /// Bits for what proxies ignore: an unknown `trafficDistribution`, load-balancer status on another type, an FQDN
    /// slice, a load balancer with a host name.
    pub newer: u8,
}

/// The annotations of docs/svcproxy.md.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnnotationRecipe {
    pub source_ranges: Vec<SourceRangeRecipe>,
    pub local_fallback: bool,
    pub affinity_across_ports: bool,
}

/// Claims of another service's addresses and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRecipe {
    /// Index of the other service, which need not exist.
    pub whose: u8,
    /// Bits of [`ClaimRecipe::WHAT`].
    pub what: u8,
}

impl ClaimRecipe {
    /// The claimed fields. Without the port a service only shares the address.
    pub const WHAT: [&'static str; 4] = ["clusterIP", "ports.port", "ports.nodePort", "healthCheckNodePort"];
}

impl ServiceRecipe {
    pub(super) fn number_for(&self, field: &str, own: usize) -> usize {
        let bit = ClaimRecipe::WHAT.iter().position(|known| *known == field);
        let claimed = self.claims.filter(|claims| bit.is_some_and(|bit| claims.what & (1 << bit) != 0));
        claimed.map_or(own, |claims| usize::from(claims.whose))
    }

    pub const LEFT_OUT: [&'static str; 14] = [
        "type",
        "ipFamilies",
        "ipFamilyPolicy",
        "clusterIPs",
        "clusterIP",
        "ports.protocol",
        "ports.targetPort",
        "internalTrafficPolicy",
        "sessionAffinity",
        "externalTrafficPolicy",
        "loadBalancerSourceRanges",
        "sessionAffinityConfig",
        "slice.ports.name",
        "slice.ports.protocol",
    ];

    pub(super) fn leaves_out(&self, field: &str) -> bool {
        let bit = ServiceRecipe::LEFT_OUT.iter().position(|known| *known == field);
        bit.is_some_and(|bit| self.left_out & (1 << bit) != 0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IngressMode {
    Unset,
    Vip,
    Proxy,
    /// A value that no proxy knows.
    Newer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRecipe {
    /// Index in [`crate::Protocol::ALL`].
    pub protocol: u8,
    /// Whether a LoadBalancer service allocates a node port; a NodePort service always does.
    pub node_port: bool,
    /// Repeats the previous number with another protocol.
    pub same_number: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceRangeRecipe {
    Everybody,
    NodeNetwork,
    FirstNode,
    FirstClient,
    Pods,
    Nobody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndpointCondition {
    #[default]
    Ready,
    Unspecified,
    Unready,
    ServingOnly,
    TerminatingServing,
    Terminating,
    /// The conditions that publishNotReadyAddresses causes.
    PublishedTerminating,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointRecipe {
    /// Index of the pod, modulo their number; the calling pods are last.
    pub pod: u8,
    pub condition: EndpointCondition,
    /// Index of the slice, modulo three.
    pub slice: u8,
    pub copy: DuplicateEndpoint,
    pub without_node: bool,
    /// Bits of [`EndpointRecipe::LEFT_OUT`].
    pub left_out: u8,
    /// Bits that select the hinted zones and nodes for [`HintsRecipe::Odd`].
    pub hinted: u8,
}

impl EndpointRecipe {
    pub const LEFT_OUT: [&'static str; 5] = ["ready", "serving", "terminating", "conditions", "targetRef"];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DuplicateEndpoint {
    #[default]
    None,
    /// The next slice repeats the endpoint.
    Same,
    /// The same or the next slice has another pod with this address: an older or a newer one.
    Other(EndpointCondition),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintsRecipe {
    #[default]
    None,
    /// `trafficDistribution: PreferSameZone`.
    OwnZone,
    /// `trafficDistribution: PreferSameNode`.
    OwnNode,
    /// The zones and nodes of [`EndpointRecipe::hinted`].
    Odd,
}
