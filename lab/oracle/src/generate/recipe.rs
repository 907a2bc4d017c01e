//! A cluster in few small numbers, which is what proptest draws and shrinks. [`super::build`] makes the objects: every
//! recipe is a cluster that an API server would admit, whatever its numbers, so that shrinking never leaves the valid.

use crate::settings::NodePortAddress;
use crate::world::ReversePath;

/// A whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    pub families: Families,
    pub point_to_point: bool,
    /// With point-to-point links: the node has its gateway's address on its end of each.
    pub link_gateways: bool,
    /// Nodes reach each other's pods by an overlay.
    pub overlay: bool,
    /// They do by a second interface, if not by an overlay.
    pub second: bool,
    pub reverse_path: ReversePath,
    pub nodes: Vec<NodeRecipe>,
    /// Pods beside the one on each node that only calls.
    pub pods: Vec<PodRecipe>,
    pub services: Vec<ServiceRecipe>,
    pub proxy: ProxyRecipe,
    /// There is a ServiceCIDR of the ranges that cluster IPs come from.
    pub service_cidrs: bool,
}

/// Families of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    V4,
    V6,
    Dual,
}

/// A node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRecipe {
    /// Number of its zone; `None`: the node has no such label.
    pub zone: Option<u8>,
    /// Has a second address of each family.
    pub second_address: bool,
    /// What its Node object says of its addresses.
    pub declared: Declared,
}

/// What a Node object says of the machine's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// The first of each family, as internal ones.
    Firsts,
    /// All of them as internal ones, behind an external one that is the last.
    All,
    /// The last of each family, as external ones.
    External,
    /// As `Firsts`, with a host name that is none.
    OddName,
}

/// A pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRecipe {
    /// Its node, modulo their number.
    pub node: u8,
    /// On the host network; of several on a node only the first is.
    pub host_network: bool,
}

/// `detectLocalMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detect {
    ClusterCidr,
    NodeCidr,
    /// By bridge or by prefix, as the CNI has it.
    Interface,
    Off,
}

/// `nodePortAddresses`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodePorts {
    /// Nothing is said.
    Unset,
    /// One of the words.
    Word(NodePortAddress),
    /// The node network.
    NodeNetwork,
    /// The first node's first addresses only.
    FirstNode,
    /// The node network and the loopback range.
    WithLoopback,
}

/// Settings of the proxies, but for the mode, which is the caller's to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyRecipe {
    pub detect: Detect,
    pub masquerade_all: bool,
    pub node_ports: NodePorts,
    pub localhost_node_ports: bool,
}

/// What a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    ClusterIp,
    NodePort,
    LoadBalancer,
    Headless,
    ExternalName,
    OtherProxy,
}

/// Which of a dual-stack cluster's families a service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    First,
    Second,
    Both,
}

/// A service and its slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRecipe {
    pub kind: Kind,
    pub stack: Stack,
    pub internal_local: bool,
    pub external_local: bool,
    /// Seconds.
    pub affinity: Option<u16>,
    pub ports: Vec<PortRecipe>,
    /// Numbers of addresses in a pool that all services share.
    pub external_ips: Vec<u8>,
    /// The same for the load balancer's, with its mode.
    pub ingress: Vec<(u8, IngressMode)>,
    pub source_ranges: Vec<Sources>,
    pub endpoints: Vec<EndpointRecipe>,
    pub hints: Hints,
    /// Endpoints of the second slice have another target port.
    pub other_targets: bool,
    /// Ports of the third slice have names that the service does not know.
    pub other_names: bool,
    /// Each slice has some of the ports only, so that ports lead to different endpoints.
    pub disjoint: bool,
    /// Fields that are left out where they have their default, as bits: [`ServiceRecipe::LEFT_OUT`].
    pub left_out: u16,
    /// What it claims of another service's.
    pub claims: Option<Claims>,
    /// Seconds after the beginning of the year at which it was made; `None`: it does not say.
    pub made: Option<u8>,
    /// What is no proxy's business, as bits: a `trafficDistribution` of a newer API, load-balancer status on another type, a
    /// slice of host names, a load balancer that has a host name instead of an address.
    pub newer: u8,
}

/// What a service claims that is another's, or would be if there were one of that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claims {
    /// Number of the other service.
    pub whose: u8,
    /// What, as bits: [`Claims::WHAT`].
    pub what: u8,
}

impl Claims {
    /// What each bit of `what` claims. An address is claimed with a port, so without port numbers addresses are shared only.
    pub const WHAT: [&'static str; 4] = ["clusterIP", "ports.port", "ports.nodePort", "healthCheckNodePort"];
}

impl ServiceRecipe {
    /// The number of the service whose `field` it has: its own, or another's.
    pub(super) fn number_for(&self, field: &str, own: usize) -> usize {
        let bit = Claims::WHAT.iter().position(|known| *known == field);
        let claimed = self.claims.filter(|claims| bit.is_some_and(|bit| claims.what & (1 << bit) != 0));
        claimed.map_or(own, |claims| usize::from(claims.whose))
    }

    /// What each bit of `left_out` leaves out: fields of the Service's spec, then of the ports of its slices.
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
    /// One that no proxy of today knows.
    Newer,
}

/// A service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRecipe {
    /// Number of its protocol in [`crate::Protocol::ALL`].
    pub protocol: u8,
    /// Has a node port, if the type allows one (a NodePort service's ports all have).
    pub node_port: bool,
    /// Has the number of the port before it, if that one has another protocol.
    pub same_number: bool,
}

/// An entry of `loadBalancerSourceRanges`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    Everybody,
    NodeNetwork,
    FirstNode,
    FirstClient,
    Pods,
    Nobody,
}

/// Conditions of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Ready,
    Unspecified,
    Unready,
    ServingOnly,
    TerminatingServing,
    Terminating,
    /// As under publishNotReadyAddresses.
    PublishedTerminating,
}

/// An endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointRecipe {
    /// Its pod, modulo their number; those that only call come last.
    pub pod: u8,
    /// Its conditions.
    pub condition: Condition,
    /// Its slice, of three.
    pub slice: u8,
    /// Whether there is another endpoint with its address.
    pub copy: Copies,
    /// Its slice names no node.
    pub without_node: bool,
    /// What else its slice leaves out, as bits: [`EndpointRecipe::LEFT_OUT`].
    pub left_out: u8,
    /// Zones and nodes that it is for, as bits, where [`Hints::Odd`] is.
    pub hinted: u8,
}

impl EndpointRecipe {
    /// What each bit of `left_out` leaves out.
    pub const LEFT_OUT: [&'static str; 5] = ["ready", "serving", "terminating", "conditions", "targetRef"];
}

/// Another endpoint with the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// There is none.
    None,
    /// The same stands in the next slice, too.
    Same,
    /// In these conditions, in the same slice or the next one: the pod that had the address before, or the one that has it now.
    Other(Condition),
}

/// Topology hints of a service's endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    /// None.
    None,
    /// Each is for its own zone, as `trafficDistribution: PreferSameZone` makes them.
    OwnZone,
    /// Each is for its own node and zone, as `PreferSameNode` makes them.
    OwnNode,
    /// Each for whatever its own number says.
    Odd,
}
