//! What there is beside the objects of the API: machines, pods, and how the proxies are set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use crate::address::{self, Family};
use crate::settings::ProxySettings;

/// What the API holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Objects {
    /// Services.
    pub services: Vec<Service>,
    /// EndpointSlices.
    pub slices: Vec<EndpointSlice>,
    /// Nodes: zone label, primary addresses, pod ranges.
    pub nodes: Vec<Node>,
    /// ServiceCIDRs: where cluster IPs come from.
    pub service_cidrs: Vec<ServiceCIDR>,
}

impl Objects {
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))
    }

    /// Whether cluster IPs come from a range that has this address.
    pub(crate) fn is_in_service_cidr(&self, address: IpAddr) -> bool {
        let ranges = self.service_cidrs.iter().filter_map(|object| object.spec.as_ref()?.cidrs.as_ref()).flatten();
        ranges.filter_map(|range| address::parse_range(range)).any(|range| range.contains(&address))
    }

    /// The address that the Node object names first, by family: what `primary` means. Internal addresses go before
    /// external ones.
    pub(crate) fn primary_address(&self, node: &str, family: Family) -> Option<IpAddr> {
        let addresses = self.node(node)?.status.as_ref()?.addresses.as_ref()?;
        let of_type = |wanted: &str| {
            addresses
                .iter()
                .filter(|entry| entry.type_ == wanted)
                .filter_map(|entry| address::parse(&entry.address))
                .find(|address| Family::of(*address) == family)
        };
        of_type("InternalIP").or_else(|| of_type("ExternalIP"))
    }
}

/// How pods are wired to their node. It decides by which interface a pod's packets come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cni {
    /// One bridge per node, `cni0`.
    #[default]
    Bridge,
    /// A link per pod, `veth…`.
    PointToPoint,
    /// The same, and the node has its gateway's address on each of them.
    Ptp,
}

/// What nodes' kernels ask of a packet's source (`net.ipv4.conf.all.rp_filter`). Strict mode (1) is not among them: what
/// a pod sends to another node's address, and what comes back to its own node from there, it loses before its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReversePath {
    /// Nothing (0).
    #[default]
    Off,
    /// That there is a way to it (2, loose mode).
    Loose,
}

/// A node as a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeMachine {
    /// Name of its Node object.
    pub name: String,
    /// Addresses on the network that nodes share; the first of each family is what the node calls from.
    pub addresses: Vec<IpAddr>,
    /// Addresses that only its pods use: the bridge's, or that on its ends of their links.
    pub gateways: Vec<IpAddr>,
    /// Addresses of its end of an overlay to other nodes' pods, if there is one; it calls them from there.
    pub overlay: Vec<IpAddr>,
    /// Addresses of a second interface, if it has one; it calls other nodes' pods from there.
    pub second: Vec<IpAddr>,
}

impl NodeMachine {
    /// Whether the node has `address` on an interface other than loopback.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.own().any(|own| own == address)
    }

    /// Every address, loopback left out.
    pub fn own(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().chain(&self.gateways).chain(&self.overlay).chain(&self.second).copied()
    }

    /// Every address of a family, loopback left out.
    #[must_use]
    pub fn of_family(&self, family: Family) -> BTreeSet<IpAddr> {
        self.own().filter(|address| Family::of(*address) == family).collect()
    }
}

/// Namespace and name of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod as a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodMachine {
    /// Its name.
    pub name: PodName,
    /// The node it runs on.
    pub node: String,
    /// Its addresses, at most one per family; on the host network, the node's.
    pub addresses: Vec<IpAddr>,
    /// Shares the node's network namespace.
    pub host_network: bool,
}

/// A host outside the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its name.
    pub name: String,
    /// Its addresses, at most one per family.
    pub addresses: Vec<IpAddr>,
}

/// By which interfaces packets come in to their nodes on machines that the laboratory has not wired: `detectLocalMode`
/// BridgeInterface and InterfaceNamePrefix ask for them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IncomingInterfaces {
    /// A pod's, by its node's end; of others [`Cni`] says it.
    pub pods: BTreeMap<PodName, String>,
    /// Everybody else's; `eth0` if it is not given.
    pub others: Option<String>,
}

/// Machines and settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct World {
    /// Nodes.
    pub nodes: Vec<NodeMachine>,
    /// Pods.
    pub pods: Vec<PodMachine>,
    /// Hosts outside.
    pub clients: Vec<Client>,
    /// Addresses of the cloud's load balancer, if there is one.
    pub load_balancer: Vec<IpAddr>,
    /// Wiring of pods.
    pub cni: Cni,
    /// What nodes ask of sources.
    pub reverse_path: ReversePath,
    /// Names of interfaces, where those of the laboratory's wiring do not hold.
    pub incoming: IncomingInterfaces,
    /// Settings of every node's proxy.
    pub proxy: ProxySettings,
}

impl World {
    pub(crate) fn node(&self, name: &str) -> Option<&NodeMachine> {
        self.nodes.iter().find(|node| node.name == name)
    }

    pub(crate) fn pod(&self, name: &PodName) -> Option<&PodMachine> {
        self.pods.iter().find(|pod| pod.name == *name)
    }

    /// The node that has `address`.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<&NodeMachine> {
        self.nodes.iter().find(|node| node.has(address))
    }

    /// Who serves at `address`: a pod of its own network rather than one that shares the node's.
    pub(crate) fn pod_at(&self, address: IpAddr) -> Option<&PodMachine> {
        self.pods.iter().filter(|pod| pod.addresses.contains(&address)).min_by_key(|pod| pod.host_network)
    }
}
