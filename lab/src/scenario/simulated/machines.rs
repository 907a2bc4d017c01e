//! The cluster's machines, wired as [`crate::cluster`] wires network namespaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use svclab_sim::host::{Host, HostBuilder, HostError, Interface, Route, Sysctls};
use svclab_sim::masked::Masked;
use svclab_sim::network::{HostId, Network, NetworkError};
use svclab_sim::protocol::Protocol as Number;

use super::program::Program;
use crate::cluster::spec::{ClusterSpec, Cni, NodeSpec, PodSpec, Protocol};
use crate::traffic::probe::Place;

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A machine cannot be.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Links cannot be.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// What is not in the cluster's description.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `route_localnet`, which a proxy that serves node ports on loopback sets.
    pub route_localnet: bool,
    /// `nf_conntrack_tcp_be_liberal`.
    pub tcp_be_liberal: bool,
    /// Routes of clients: client, range, node to go by.
    pub routes: Vec<(String, IpNet, String)>,
}

/// The simulator's number for a protocol.
pub fn number(protocol: Protocol) -> Number {
    match protocol {
        Protocol::Tcp => Number::TCP,
        Protocol::Udp => Number::UDP,
        Protocol::Sctp => Number::SCTP,
    }
}

/// The machine that a place is: pods on the host network are their node.
pub fn machine(spec: &ClusterSpec, place: &Place) -> String {
    let on_host = |namespace: &str, name: &str| {
        spec.pods.iter().find(|pod| pod.host_network && pod.namespace == namespace && pod.name == name)
    };
    match place {
        Place::Pod { namespace, name } => match on_host(namespace, name) {
            Some(pod) => Place::Node(pod.node.clone()).to_string(),
            None => place.to_string(),
        },
        other => other.to_string(),
    }
}

/// The machines on their links. What packets left behind (connections, affinity, the clock) stays when objects or rules change.
#[derive(Debug, Default)]
pub struct Machines {
    network: Network,
    /// Pods by node, in the order of their links. A link stays when its pod goes: interfaces keep their places.
    links: BTreeMap<String, Vec<PodKey>>,
}

/// Namespace and name.
type PodKey = (String, String);

fn key(pod: &PodSpec) -> PodKey {
    (pod.namespace.clone(), pod.name.clone())
}

fn place_of((namespace, name): &PodKey) -> Place {
    Place::Pod { namespace: namespace.clone(), name: name.clone() }
}

impl Machines {
    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The network, to send packets through.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Brings the machines to what is described; each node runs its program.
    ///
    /// # Errors
    /// Rules that do not go with sets and addresses, or something that the simulator does not model.
    pub fn update(
        &mut self,
        spec: &ClusterSpec,
        programs: &BTreeMap<String, Program>,
        settings: &Settings,
    ) -> Result<(), BuildError> {
        for pod in spec.pods.iter().filter(|pod| !pod.host_network) {
            let links = self.links.entry(pod.node.clone()).or_default();
            if !links.contains(&key(pod)) {
                links.push(key(pod));
            }
        }
        let links = std::mem::take(&mut self.links);
        let done = self.put_all(&Builder { spec, settings, links: &links }, programs);
        self.links = links;
        done
    }

    fn put_all(&mut self, builder: &Builder<'_>, programs: &BTreeMap<String, Program>) -> Result<(), BuildError> {
        let spec = builder.spec;
        let mut segment = Vec::new();
        for node in &spec.nodes {
            let nothing = Program::default();
            let program = programs.get(&node.name).unwrap_or(&nothing);
            let id = self.put(builder.node(node, program)?, &mut segment);
            for (index, pod) in builder.links_of(node).iter().enumerate() {
                let mut fresh = Vec::new();
                let own = self.put(builder.pod(node, pod)?, &mut fresh);
                if !fresh.is_empty() {
                    self.network.link(&[(id, &veth(index)), (own, "eth0")])?;
                }
            }
        }
        self.put_outside(builder, &mut segment)?;
        let ends: Vec<(HostId, &str)> = segment.into_iter().map(|id| (id, "eth0")).collect();
        if !ends.is_empty() {
            self.network.link(&ends)?;
        }
        Ok(())
    }

    /// Gives the hosts outside their routes, and changes nothing else.
    ///
    /// # Errors
    /// As [`Machines::update`].
    pub fn route(&mut self, spec: &ClusterSpec, settings: &Settings) -> Result<(), BuildError> {
        let nothing = BTreeMap::new();
        self.put_outside(&Builder { spec, settings, links: &nothing }, &mut Vec::new())
    }

    fn put_outside(&mut self, builder: &Builder<'_>, fresh: &mut Vec<HostId>) -> Result<(), BuildError> {
        for client in &builder.spec.clients {
            self.put(builder.outside(&Place::Client(client.name.clone()), &client.addresses)?, fresh);
        }
        if let Some(balancer) = &builder.spec.load_balancer {
            self.put(builder.outside(&Place::LoadBalancer, &balancer.addresses)?, fresh);
        }
        Ok(())
    }

    /// Adds a machine, or puts it in the place of the one of that name.
    fn put(&mut self, host: Host, fresh: &mut Vec<HostId>) -> HostId {
        if let Some(id) = self.network.find(host.name()) {
            self.network.replace(id, host);
            return id;
        }
        let id = self.network.add(host);
        fresh.push(id);
        id
    }
}

fn veth(index: usize) -> String {
    format!("veth{index}")
}

struct Builder<'a> {
    spec: &'a ClusterSpec,
    settings: &'a Settings,
    links: &'a BTreeMap<String, Vec<PodKey>>,
}

impl Builder<'_> {
    fn links_of(&self, node: &NodeSpec) -> &[PodKey] {
        self.links.get(&node.name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The pod of that key on a node, if it is there.
    fn pod_spec(&self, node: &NodeSpec, wanted: &PodKey) -> Option<&PodSpec> {
        self.spec.pods.iter().find(|pod| pod.node == node.name && !pod.host_network && key(pod) == *wanted)
    }

    fn node(&self, node: &NodeSpec, program: &Program) -> Result<Host, BuildError> {
        let mut eth0 = Interface::new("eth0");
        for address in &node.addresses {
            eth0 = eth0.address(*address, self.segment_length(*address));
        }
        for address in &node.extra_addresses {
            eth0 = eth0.secondary(*address, self.segment_length(*address));
        }
        let sysctls = Sysctls {
            route_localnet: self.settings.route_localnet,
            tcp_be_liberal: self.settings.tcp_be_liberal,
            bridge_nf_call_iptables: self.spec.cni == Cni::Bridge,
            bridge_nf_call_ip6tables: self.spec.cni == Cni::Bridge,
            ..Sysctls::node()
        };
        let mut host = Host::builder(&Place::Node(node.name.clone()).to_string()).sysctls(sysctls).interface(eth0);
        for address in &node.addresses {
            host = host.route(Route::via(everywhere(*address), link_local(*address), "eth0").from_address(*address));
            for other in self.spec.nodes.iter().filter(|other| other.name != node.name) {
                let Some(via) = like(&other.addresses, *address) else { continue };
                let ranges = other.pod_cidrs.iter().filter(|range| range.addr().is_ipv4() == address.is_ipv4());
                for range in ranges {
                    host = host.route(Route::via(masked(*range), via, "eth0").from_address(*address));
                }
            }
        }
        let own = program.addresses.iter();
        let device = Interface::new("kube-ipvs0");
        host = host.interface(own.fold(device, |device, address| device.with(*address)));
        host = self.pod_links(host, node);
        host = host.rules(program.v4.clone()).rules(program.v6.clone());
        host = host.sets(program.sets.clone()).virtual_services(program.servers.clone());
        for (_, protocol, port) in program.relays.keys().chain(&program.held) {
            host = host.listen(*protocol, *port);
        }
        for pod in self.spec.pods.iter().filter(|pod| pod.host_network && pod.node == node.name) {
            host = listening(host, pod);
        }
        Ok(host.build()?)
    }

    fn pod_links(&self, mut host: HostBuilder, node: &NodeSpec) -> HostBuilder {
        let bridged = self.spec.cni == Cni::Bridge;
        if bridged {
            let own = node.pod_cidrs.iter().filter_map(|range| Some((gateway(range)?, range.prefix_len())));
            host = host.interface(own.fold(Interface::new("cni0"), |cni0, (own, length)| cni0.address(own, length)));
        }
        for (index, pod) in self.links_of(node).iter().enumerate() {
            let name = veth(index);
            let interface = Interface::new(&name);
            let addresses = self.pod_spec(node, pod).map(|pod| pod.addresses.as_slice()).unwrap_or_default();
            let own = addresses.iter().filter(|_| self.spec.cni == Cni::Ptp);
            let own = own.filter_map(|address| gateway(node.pod_cidrs.iter().find(|range| range.contains(address))?));
            let interface = own.fold(interface, |interface, own| interface.address(own, bits(own)));
            host = host.interface(if bridged { interface.port_of("cni0", true) } else { interface });
            for address in addresses.iter().filter(|_| !bridged) {
                host = host.route(Route::link(single(*address), &name)).neighbour(&name, *address);
            }
        }
        host
    }

    /// A pod's machine; of one that is gone, the end of its link.
    fn pod(&self, node: &NodeSpec, pod: &PodKey) -> Result<Host, BuildError> {
        let (mut eth0, mut host) = (Interface::new("eth0"), Host::builder(&place_of(pod).to_string()));
        let Some(pod) = self.pod_spec(node, pod) else { return Ok(host.interface(eth0).build()?) };
        for address in &pod.addresses {
            let range = node.pod_cidrs.iter().find(|range| range.contains(address));
            let by_bridge = range.filter(|_| self.spec.cni == Cni::Bridge);
            match by_bridge.and_then(|range| Some((gateway(range)?, range.prefix_len()))) {
                Some((via, length)) => {
                    eth0 = eth0.address(*address, length);
                    host = host.route(Route::via(everywhere(*address), via, "eth0"));
                }
                None => {
                    let own = range.filter(|_| self.spec.cni == Cni::Ptp);
                    let via = own.and_then(gateway).unwrap_or_else(|| link_local(*address));
                    eth0 = eth0.address(*address, bits(*address));
                    host = host.route(Route::via(everywhere(*address), via, "eth0")).neighbour("eth0", via);
                }
            }
        }
        Ok(listening(host.interface(eth0), pod).build()?)
    }

    fn outside(&self, place: &Place, addresses: &[IpAddr]) -> Result<Host, BuildError> {
        let eth0 = addresses.iter();
        let eth0 = eth0.fold(Interface::new("eth0"), |eth0, own| eth0.address(*own, self.segment_length(*own)));
        let mut host = Host::builder(&place.to_string()).interface(eth0);
        for (client, range, node) in &self.settings.routes {
            let via = self.spec.nodes.iter().find(|known| known.name == *node);
            let via = via.and_then(|node| like(&node.addresses, range.addr()));
            if let Some(via) = via.filter(|_| *place == Place::Client(client.clone())) {
                host = host.route(Route::via(masked(*range), via, "eth0"));
            }
        }
        Ok(host.build()?)
    }

    /// The length of the node network's prefix.
    fn segment_length(&self, address: IpAddr) -> u8 {
        let network = self.spec.node_network.iter().find(|network| network.contains(&address));
        network.map_or(bits(address), IpNet::prefix_len)
    }
}

fn listening(host: HostBuilder, pod: &PodSpec) -> HostBuilder {
    pod.ports.iter().fold(host, |host, port| host.listen(number(port.protocol), port.port))
}

fn like(addresses: &[IpAddr], other: IpAddr) -> Option<IpAddr> {
    addresses.iter().copied().find(|address| address.is_ipv4() == other.is_ipv4())
}

/// The first address of a pod range is its node's.
fn gateway(range: &IpNet) -> Option<IpAddr> {
    crate::objects::nth_address(*range, 1)
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn everywhere(like: IpAddr) -> Masked {
    let zero: IpAddr = if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    range(zero, 0)
}

fn single(address: IpAddr) -> Masked {
    range(address, bits(address))
}

fn masked(net: IpNet) -> Masked {
    range(net.network(), net.prefix_len())
}

/// Lengths come from checked ranges, or are constants that fit.
fn range(address: IpAddr, length: u8) -> Masked {
    Masked::network(address, length).unwrap_or_else(|| range(address, bits(address)))
}

/// The gateway of default routes that lead nowhere, or to a node by a link of its own.
fn link_local(like: IpAddr) -> IpAddr {
    if like.is_ipv4() {
        Ipv4Addr::new(169, 254, 1, 1).into()
    } else {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into()
    }
}
