//! Recipes: a cluster as a few small numbers that proptest draws and shrinks. [`super::build`] makes the objects. An
//! API server admits the cluster of every recipe, so shrinking yields valid clusters only.

use crate::settings::NodePortAddress;
use crate::world::ReversePath;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recipe {
    pub families: Families,
    pub point_to_point: bool,
    /// With point-to-point links: the node's end of each link has the gateway address.
    pub link_gateways: bool,
    /// Nodes reach each other's pods by an overlay.
    pub overlay: bool,
    /// Without overlay: nodes reach each other's pods by a second interface.
    pub second: bool,
    pub reverse_path: ReversePath,
    pub nodes: Vec<NodeRecipe>,
    /// Pods besides the caller on each node.
    pub pods: Vec<PodRecipe>,
    pub services: Vec<ServiceRecipe>,
    pub proxy: ProxyRecipe,
    /// Creates a ServiceCIDR of the cluster IP ranges.
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

/// The addresses in `status.addresses` of a Node object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclaredAddresses {
    /// The first of each family as InternalIP.
    Firsts,
    /// The last as ExternalIP, then all as InternalIP.
    All,
    /// The last of each family as ExternalIP.
    External,
    /// Like `Firsts`, with an invalid host name.
    OddName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRecipe {
    /// Modulo the number of nodes.
    pub node: u8,
    /// A node has at most one pod on the host network: the first.
    pub host_network: bool,
}

/// `detectLocalMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DetectRecipe {
    #[default]
    ClusterCidr,
    NodeCidr,
    /// By bridge or by prefix, whichever the CNI has.
    Interface,
    Off,
}

/// `nodePortAddresses`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodePortsRecipe {
    #[default]
    Unset,
    Word(NodePortAddress),
    NodeNetwork,
    /// The first addresses of the first node.
    FirstNode,
    /// The node network and the loopback range.
    WithLoopback,
}

/// Proxy settings except the mode.
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

/// The families of a service in a dual-stack cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceFamilies {
    #[default]
    First,
    Second,
    Both,
}

/// A service and its slices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceRecipe {
    pub kind: ServiceKind,
    pub stack: ServiceFamilies,
    pub internal_local: bool,
    pub external_local: bool,
    /// Timeout in seconds.
    pub affinity: Option<u16>,
    pub ports: Vec<PortRecipe>,
    /// Numbers of addresses in a pool of all services.
    pub external_ips: Vec<u8>,
    /// Numbers of load-balancer addresses in a pool of all services.
    pub ingress: Vec<(u8, IngressMode)>,
    pub source_ranges: Vec<SourceRangeRecipe>,
    pub endpoints: Vec<EndpointRecipe>,
    pub hints: HintsRecipe,
    /// Endpoints of the second slice have another target port.
    pub other_targets: bool,
    /// Ports of the third slice have names that the service does not have.
    pub other_names: bool,
    /// Each slice has some of the ports, so ports have different endpoints.
    pub disjoint: bool,
    /// Bits of [`ServiceRecipe::LEFT_OUT`]: omits fields that have their default.
    pub left_out: u16,
    pub claims: Option<ClaimRecipe>,
    /// Seconds of creation; `None`: no creationTimestamp.
    pub created: Option<u8>,
    /// Bits: an unknown `trafficDistribution`, load-balancer status on another type, an FQDN slice, a load balancer
    /// with a host name. Proxies ignore all of them.
    pub newer: u8,
}

/// Addresses and ports that a service claims although they belong to another service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRecipe {
    /// The index of the other service, which need not exist.
    pub whose: u8,
    /// Bits of [`ClaimRecipe::WHAT`].
    pub what: u8,
}

impl ClaimRecipe {
    /// A claim of an address without the port only shares the address.
    pub const WHAT: [&'static str; 4] = ["clusterIP", "ports.port", "ports.nodePort", "healthCheckNodePort"];
}

impl ServiceRecipe {
    /// The index of the service whose `field` this service uses: its own or the claimed one.
    pub(super) fn number_for(&self, field: &str, own: usize) -> usize {
        let bit = ClaimRecipe::WHAT.iter().position(|known| *known == field);
        let claimed = self.claims.filter(|claims| bit.is_some_and(|bit| claims.what & (1 << bit) != 0));
        claimed.map_or(own, |claims| usize::from(claims.whose))
    }

    /// Fields of the Service's spec, then of the ports of its slices.
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

/// `ipMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IngressMode {
    Unset,
    Vip,
    Proxy,
    /// An ipMode that no proxy knows.
    Newer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRecipe {
    /// Index in [`crate::Protocol::ALL`].
    pub protocol: u8,
    /// Has a node port if the type is LoadBalancer; every port of a NodePort service has one.
    pub node_port: bool,
    /// Uses the number of the port before, if the protocols differ.
    pub same_number: bool,
}

/// An entry of `loadBalancerSourceRanges`.
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
    /// As with publishNotReadyAddresses.
    PublishedTerminating,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointRecipe {
    /// Modulo the number of pods; the callers come last.
    pub pod: u8,
    pub condition: EndpointCondition,
    /// Modulo three.
    pub slice: u8,
    pub copy: DuplicateEndpoint,
    /// The slice has no nodeName.
    pub without_node: bool,
    /// Bits of [`EndpointRecipe::LEFT_OUT`].
    pub left_out: u8,
    /// Bits of zones and nodes for [`HintsRecipe::Odd`].
    pub hinted: u8,
}

impl EndpointRecipe {
    pub const LEFT_OUT: [&'static str; 5] = ["ready", "serving", "terminating", "conditions", "targetRef"];
}

/// Another endpoint with the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DuplicateEndpoint {
    #[default]
    None,
    /// The next slice repeats the endpoint.
    Same,
    /// In the same slice or the next one: a pod that had, or now has, the address of this one.
    Other(EndpointCondition),
}

/// Topology hints of a service's endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintsRecipe {
    #[default]
    None,
    /// As `trafficDistribution: PreferSameZone` makes them.
    OwnZone,
    /// As `trafficDistribution: PreferSameNode` makes them.
    OwnNode,
    /// By [`EndpointRecipe::hinted`].
    Odd,
}
