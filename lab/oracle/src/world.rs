//! API objects, machines and proxy settings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use crate::address::{self, Family};
use crate::settings::ProxySettings;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Objects {
    pub services: Vec<Service>,
    pub slices: Vec<EndpointSlice>,
    /// Zone labels, primary addresses, pod ranges.
    pub nodes: Vec<Node>,
    /// Ranges of cluster IPs.
    pub service_cidrs: Vec<ServiceCIDR>,
}

impl Objects {
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))
    }

    /// `spec.podCIDRs`, or the older `spec.podCIDR`.
    pub fn pod_ranges(&self, node: &str) -> Vec<IpNet> {
        let Some(spec) = self.node(node).and_then(|node| node.spec.as_ref()) else { return Vec::new() };
        let texts = spec.pod_cidrs.as_deref().filter(|texts| !texts.is_empty()).unwrap_or(spec.pod_cidr.as_slice());
        texts.iter().filter_map(|text| address::parse_range(text)).collect()
    }

    pub(crate) fn is_in_service_cidr(&self, address: IpAddr) -> bool {
        let ranges = self.service_cidrs.iter().filter_map(|object| object.spec.as_ref()?.cidrs.as_ref()).flatten();
        ranges.filter_map(|range| address::parse_range(range)).any(|range| range.contains(&address))
    }

    /// `primary` in `nodePortAddresses`: the first InternalIP of the family, or its first ExternalIP.
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

/// How pods connect to their node, which decides the interface of their packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cni {
    /// A bridge per node, `cni0`.
    #[default]
    Bridge,
    /// A veth per pod.
    PointToPoint,
    /// A veth per pod; the node's end has the gateway address.
    Ptp,
}

/// `net.ipv4.conf.all.rp_filter`. Strict mode (1) is left out: it drops packets between a pod and another node's
/// address before they reach an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReversePath {
    /// 0.
    #[default]
    Off,
    /// 2: the node has a route to the source.
    Loose,
}

/// A node as a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeMachine {
    pub name: String,
    /// Addresses on the shared network. The node calls from the first of each family.
    pub addresses: Vec<IpAddr>,
    /// Gateway addresses of its pods: on the bridge, or on the node's ends of the veths.
    pub gateways: Vec<IpAddr>,
    /// Addresses on the overlay to other nodes' pods, the sources of the node's calls to these pods.
    pub overlay: Vec<IpAddr>,
    /// Addresses of the second interface, the sources of the node's calls to other nodes' pods.
    pub second: Vec<IpAddr>,
}

impl NodeMachine {
    /// Whether an interface other than loopback has `address`.
    pub fn has(&self, address: IpAddr) -> bool {
        self.own().any(|own| own == address)
    }

    /// Every address except loopback.
    pub fn own(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().chain(&self.gateways).chain(&self.overlay).chain(&self.second).copied()
    }

    /// Every address of the family except loopback.
    pub fn of_family(&self, family: Family) -> BTreeSet<IpAddr> {
        self.own().filter(|address| Family::of(*address) == family).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    pub namespace: String,
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
    pub name: PodName,
    pub node: String,
    /// At most one per family; on the host network, the node's addresses.
    pub addresses: Vec<IpAddr>,
    pub host_network: bool,
}

/// A host outside the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub name: String,
    /// At most one per family.
    pub addresses: Vec<IpAddr>,
}

/// Interfaces by which packets enter a node, for `detectLocalMode` BridgeInterface and InterfaceNamePrefix. An audit
/// fills this in; the lab's wiring follows from [`Cni`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IncomingInterfaces {
    /// The node's end of a pod's link.
    pub pods: BTreeMap<PodName, String>,
    /// Of every other packet; default `eth0`.
    pub others: Option<String>,
}

/// Machines and proxy settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct World {
    pub nodes: Vec<NodeMachine>,
    pub pods: Vec<PodMachine>,
    /// Hosts outside the cluster.
    pub clients: Vec<Client>,
    pub load_balancer: Vec<IpAddr>,
    pub cni: Cni,
    pub reverse_path: ReversePath,
    pub incoming: IncomingInterfaces,
    pub proxy: ProxySettings,
}

impl World {
    pub(crate) fn node(&self, name: &str) -> Option<&NodeMachine> {
        self.nodes.iter().find(|node| node.name == name)
    }

    pub(crate) fn pod(&self, name: &PodName) -> Option<&PodMachine> {
        self.pods.iter().find(|pod| pod.name == *name)
    }

    pub(crate) fn owner(&self, address: IpAddr) -> Option<&NodeMachine> {
        self.nodes.iter().find(|node| node.has(address))
    }

    /// The pod that serves at `address`: a pod of its own network before a pod on the host network.
    pub(crate) fn pod_at(&self, address: IpAddr) -> Option<&PodMachine> {
        self.pods.iter().filter(|pod| pod.addresses.contains(&address)).min_by_key(|pod| pod.host_network)
    }
}
