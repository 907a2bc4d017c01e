//! Builds the oracle's world from a snapshot, and finds the owner of each address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use svclab_oracle::{
    Client, ClusterModel, Cni, IncomingInterfaces, NodeMachine, PodMachine, PodName, ProxySettings, ReversePath, World,
    address,
};
use svclab_sim::host::Listener;
use svclab_sim::protocol::Protocol as Number;
use svclab_snapshot::{Objects, Snapshot};

use crate::machines::AddressNames;

/// An endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SliceEndpoint {
    /// The endpoint's address.
    pub address: IpAddr,
    /// The endpoint's node; `None` if slices disagree.
    pub node: Option<String>,
    /// The pod.
    pub pod: Option<PodName>,
}

/// The addresses in a snapshot's objects.
#[derive(Debug, Clone, Default)]
pub struct KnownAddresses {
    /// The node's name.
    pub node: String,
    /// Names of addresses, for reports and machines.
    pub names: AddressNames,
    /// Endpoints by address.
    pub endpoints: BTreeMap<IpAddr, SliceEndpoint>,
    /// Protocols and ports of host-network endpoints of this node.
    pub sockets: BTreeSet<(Number, u16)>,
    /// Node addresses by node name.
    pub nodes: BTreeMap<String, Vec<IpAddr>>,
    /// The addresses at which NodeLocal DNSCache answers.
    pub dns_cache: BTreeSet<IpAddr>,
    owners: BTreeMap<IpAddr, String>,
}

impl KnownAddresses {
    /// Reads the addresses of a snapshot's objects.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> KnownAddresses {
        let nothing = Objects::default();
        let objects = snapshot.objects.as_ref().unwrap_or(&nothing);
        let own: BTreeSet<IpAddr> = own_addresses(snapshot).collect();
        let mut known = KnownAddresses { dns_cache: dns_cache(snapshot).collect(), ..KnownAddresses::default() };
        for node in &objects.nodes {
            let name = node.metadata.name.clone().unwrap_or_default();
            let addresses = addresses_of(node);
            known.names.extend(addresses.iter().map(|address| (*address, format!("node/{name}"))));
            known.owners.extend(addresses.iter().map(|address| (*address, name.clone())));
            known.nodes.insert(name, addresses);
        }
        known.node = node_name(snapshot, &known.nodes, &own);
        for slice in &objects.slices {
            let ports = slice
                .ports
                .iter()
                .flatten()
                .filter_map(|port| Some((number(port.protocol.as_deref())?, u16::try_from(port.port?).ok()?)));
            let ports: Vec<(Number, u16)> = ports.collect();
            for endpoint in slice.endpoints.iter().flatten() {
                let Some(address) = endpoint.addresses.first().and_then(|text| address::parse(text)) else { continue };
                if own.contains(&address) {
                    known.sockets.extend(ports.iter().copied());
                }
                let target = endpoint.target_ref.as_ref().filter(|target| target.kind.as_deref() == Some("Pod"));
                let pod = target.and_then(|target| {
                    Some(PodName { namespace: target.namespace.clone()?, name: target.name.clone()? })
                });
                if let Some(pod) = &pod {
                    known.names.entry(address).or_insert_with(|| format!("pod/{pod}"));
                }
                let entry = SliceEndpoint { address, node: endpoint.node_name.clone(), pod };
                let first = known.endpoints.entry(address).or_insert_with(|| entry.clone());
                // The address was given to another pod while the first terminates.
                if first.node != entry.node {
                    first.node = None;
                }
            }
        }
        known
    }

    /// Returns the name of the node that has the address by its Node object.
    #[must_use]
    pub fn node_of(&self, address: IpAddr) -> Option<&str> {
        self.owners.get(&address).map(String::as_str)
    }

    /// Returns the name of the address's machine, else the address.
    #[must_use]
    pub fn name(&self, address: IpAddr) -> String {
        self.names.get(&address).cloned().unwrap_or_else(|| address.to_string())
    }

    /// Returns the address with its machine's name, if known.
    #[must_use]
    pub fn named(&self, at: SocketAddr) -> String {
        match self.names.get(&at.ip()) {
            Some(name) => format!("{name} at {at}"),
            None => at.to_string(),
        }
    }
}

/// IPVS mode's device for services' addresses (pkg/proxy/ipvs, `defaultDummyDevice`).
const SERVICE_ADDRESSES: &str = "kube-ipvs0";
/// NodeLocal DNSCache's device for the DNS Service's cluster IP (kubernetes/dns, `-interfacename`).
const DNS_CACHE: &str = "nodelocaldns";

fn dns_cache(snapshot: &Snapshot) -> impl Iterator<Item = IpAddr> + '_ {
    let listed = snapshot.network.iter().flat_map(|network| &network.addresses);
    listed.filter(|own| own.interface == DNS_CACHE).map(|own| own.address.addr())
}

/// Returns the listening sockets. 0.0.0.0 listens on each IPv4 address; `::` counts for both families
/// (`net.ipv6.bindv6only` is 0 by default).
#[must_use]
pub fn sockets(snapshot: &Snapshot) -> Option<BTreeSet<Listener>> {
    let own: Vec<IpAddr> =
        own_addresses(snapshot).filter(IpAddr::is_ipv4).chain([Ipv4Addr::LOCALHOST.into()]).collect();
    let all = snapshot.sockets.as_ref()?.iter().flat_map(|socket| {
        let protocol = if socket.protocol == "udp" { Number::UDP } else { Number::TCP };
        let at = match socket.address {
            IpAddr::V4(address) if address.is_unspecified() => own.iter().copied().map(Some).collect(),
            IpAddr::V6(address) if address.is_unspecified() => vec![None],
            address => vec![Some(address.to_canonical())],
        };
        at.into_iter().map(move |address| Listener { protocol, address, port: Some(socket.port) })
    });
    Some(all.collect())
}

/// Returns the node's addresses without loopback's, the services' on `kube-ipvs0`, and NodeLocal DNSCache's.
pub fn own_addresses(snapshot: &Snapshot) -> impl Iterator<Item = IpAddr> + '_ {
    own_networks(snapshot).map(|own| own.addr())
}

/// Returns [`own_addresses`] with prefix lengths.
pub fn own_networks(snapshot: &Snapshot) -> impl Iterator<Item = IpNet> + '_ {
    let listed = snapshot.network.iter().flat_map(|network| &network.addresses);
    let own = listed.filter(|own| ![SERVICE_ADDRESSES, DNS_CACHE].contains(&own.interface.as_str()));
    let own = own.map(|own| own.address);
    own.filter(|own| !own.addr().is_loopback())
}

/// Returns the external IPs and load-balancer addresses in the node's networks that no known machine has: some node
/// answers for them, by MetalLB, kube-vip or an administrator.
#[must_use]
pub fn announced(snapshot: &Snapshot, known: &KnownAddresses) -> BTreeSet<IpAddr> {
    let networks: Vec<IpNet> = own_networks(snapshot).collect();
    let here = service_addresses(snapshot).filter(|address| {
        networks.iter().any(|network| network.contains(address))
            && !networks.iter().any(|network| network.addr() == *address)
            && known.node_of(*address).is_none()
            && !known.endpoints.contains_key(address)
    });
    here.collect()
}

/// Returns the external IPs and load-balancer addresses of Services.
fn service_addresses(snapshot: &Snapshot) -> impl Iterator<Item = IpAddr> + '_ {
    let services = snapshot.objects.iter().flat_map(|objects| &objects.services);
    let texts = services.flat_map(|service| {
        let external = service.spec.iter().flat_map(|spec| spec.external_ips.iter().flatten());
        let balancer = service.status.iter().filter_map(|status| status.load_balancer.as_ref());
        let ingress = balancer.flat_map(|balancer| balancer.ingress.iter().flatten());
        external.chain(ingress.filter_map(|ingress| ingress.ip.as_ref()))
    });
    texts.filter_map(|text| address::parse(text))
}

/// Returns a Node object's addresses, internal ones first.
fn addresses_of(node: &Node) -> Vec<IpAddr> {
    let listed = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let of_type = |kind: &'static str| {
        let own = listed.iter().filter(move |entry| entry.type_ == kind);
        own.filter_map(|entry| address::parse(&entry.address))
    };
    of_type("InternalIP").chain(of_type("ExternalIP")).collect()
}

fn node_name(snapshot: &Snapshot, nodes: &BTreeMap<String, Vec<IpAddr>>, own: &BTreeSet<IpAddr>) -> String {
    if let Some(name) = &snapshot.node_name {
        return name.clone();
    }
    let mine = nodes.iter().find(|(_, addresses)| addresses.iter().any(|address| own.contains(address)));
    mine.map_or_else(|| snapshot.host.clone(), |(name, _)| name.clone())
}

fn number(protocol: Option<&str>) -> Option<Number> {
    Some(match protocol.unwrap_or("TCP") {
        "TCP" => Number::TCP,
        "UDP" => Number::UDP,
        "SCTP" => Number::SCTP,
        _ => return None,
    })
}

/// A pod of the oracle's world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPod {
    /// The pod's name.
    pub name: PodName,
    /// The pod's node.
    pub node: String,
    /// The pod's addresses.
    pub addresses: Vec<IpAddr>,
    /// The ingress interface, if the pod is on this node.
    pub interface: Option<String>,
}

/// Returns this node and, because every call searches them, only the other nodes and pods that a call may be about: the
/// given pods with their nodes, and the nodes with an endpoint's or a service's address.
#[must_use]
pub fn cluster(
    snapshot: &Snapshot,
    known: &KnownAddresses,
    proxy: &ProxySettings,
    pods: &[AuditPod],
    clients: Vec<Client>,
    uplink: Option<String>,
) -> ClusterModel {
    let own: Vec<IpAddr> = own_addresses(snapshot).collect();
    let first = known.nodes.get(&known.node).map(Vec::as_slice).unwrap_or_default();
    // The node calls from its first address.
    let mut addresses: Vec<IpAddr> = first.iter().copied().filter(|address| own.contains(address)).collect();
    addresses.extend(own.iter().filter(|address| !first.contains(address)));
    let mut nodes = vec![NodeMachine { name: known.node.clone(), addresses, ..NodeMachine::default() }];
    let called =
        known.endpoints.keys().copied().chain(service_addresses(snapshot)).filter_map(|one| known.node_of(one));
    let others: BTreeSet<&str> = called.chain(pods.iter().map(|pod| pod.node.as_str())).collect();
    for (name, addresses) in
        known.nodes.iter().filter(|(name, _)| **name != known.node && others.contains(name.as_str()))
    {
        nodes.push(NodeMachine { name: name.clone(), addresses: addresses.clone(), ..NodeMachine::default() });
    }
    let interfaces = pods.iter().filter_map(|pod| Some((pod.name.clone(), pod.interface.clone()?)));
    let incoming = IncomingInterfaces { pods: interfaces.collect(), others: uplink };
    let on_host = |pod: &AuditPod| pod.addresses.iter().any(|address| own.contains(address));
    let places = pods.iter().map(|pod| PodMachine {
        name: pod.name.clone(),
        node: pod.node.clone(),
        addresses: pod.addresses.clone(),
        host_network: on_host(pod),
    });
    let is_listed =
        |node: &Node| node.metadata.name.as_deref().is_some_and(|name| name == known.node || others.contains(name));
    let world = World {
        nodes,
        pods: places.collect(),
        clients,
        load_balancer: Vec::new(),
        cni: Cni::Bridge,
        reverse_path: ReversePath::Off,
        incoming,
        proxy: proxy.clone(),
    };
    let listed = snapshot.objects.as_ref();
    let objects = listed.map(|objects| svclab_oracle::Objects {
        services: objects.services.clone(),
        slices: objects.slices.clone(),
        nodes: objects.nodes.iter().filter(|node| is_listed(node)).cloned().collect(),
        service_cidrs: objects.service_cidrs.clone(),
    });
    let objects = objects.unwrap_or_default();
    ClusterModel { objects, world }
}
