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
    pub nodes: Vec<Node>,
    pub service_cidrs: Vec<ServiceCIDR>,
}

impl Objects {
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))
    }

    pub fn pod_ranges(&self, node: &str) -> Vec<IpNet> {
        let Some(spec) = self.node(node).and_then(|node| node.spec.as_ref()) else { return Vec::new() };
        let texts = spec.pod_cidrs.as_deref().filter(|texts| !texts.is_empty()).unwrap_or(spec.pod_cidr.as_slice());
        texts.iter().filter_map(|text| address::parse_range(text)).collect()
    }

    pub(crate) fn is_in_service_cidr(&self, address: IpAddr) -> bool {
        let ranges = self.service_cidrs.iter().filter_map(|object| object.spec.as_ref()?.cidrs.as_ref()).flatten();
        ranges.filter_map(|range| address::parse_range(range)).any(|range| range.contains(&address))
    }

    /// Returns what `primary` means in `nodePortAddresses`: InternalIP before ExternalIP.
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

/// The wiring decides by which interface packets of pods enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cni {
    #[default]
    Bridge,
    PointToPoint,
    /// As point-to-point, but the node's ends of the veths have the gateway address.
    Ptp,
}

/// `rp_filter`, without strict mode, which drops packets between a pod and another node's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReversePath {
    /// `rp_filter` 0.
    #[default]
    Off,
    /// `rp_filter` 2.
    Loose,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeMachine {
    pub name: String,
    /// Addresses on the shared network, also sources of the node's calls.
    pub addresses: Vec<IpAddr>,
    /// The node's addresses on the bridge, or on its ends of the veths.
    pub gateways: Vec<IpAddr>,
    /// The node's source addresses towards other nodes' pods over the overlay.
    pub overlay: Vec<IpAddr>,
    /// The node's source addresses towards other nodes' pods over a second interface.
    pub second: Vec<IpAddr>,
}

impl NodeMachine {
    pub fn has(&self, address: IpAddr) -> bool {
        self.own().any(|own| own == address)
    }

    /// Returns the node's addresses except loopback addresses.
    pub fn own(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().chain(&self.gateways).chain(&self.overlay).chain(&self.second).copied()
    }

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodMachine {
    pub name: PodName,
    pub node: String,
    /// The pod's addresses; on the host network, the node's.
    pub addresses: Vec<IpAddr>,
    pub host_network: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub name: String,
    pub addresses: Vec<IpAddr>,
}

/// Ingress interfaces, which only audits set; the lab's follow from [`Cni`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IncomingInterfaces {
    /// The node's end of a pod's link.
    pub pods: BTreeMap<PodName, String>,
    /// The interface of all other packets; default `eth0`.
    pub others: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct World {
    pub nodes: Vec<NodeMachine>,
    pub pods: Vec<PodMachine>,
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

    /// Returns the pod, preferably one outside the host network.
    pub(crate) fn pod_at(&self, address: IpAddr) -> Option<&PodMachine> {
        self.pods.iter().filter(|pod| pod.addresses.contains(&address)).min_by_key(|pod| pod.host_network)
    }
}
