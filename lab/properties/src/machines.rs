//! The oracle's world as machines of the simulator: nodes, pods, hosts outside, wired as the laboratory wires them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use svclab_oracle::{Cluster, Cni, NodePlace, PodName, PodPlace, Protocol, World};
use svclab_sim::host::{Host, HostBuilder, Interface, Route, Sysctls};
use svclab_sim::masked::Masked;
use svclab_sim::network::{Flow, HostId, Network, NetworkError, Outcomes};
use svclab_sim::protocol::Protocol as Number;

use crate::node;
use crate::programs::Program;
use svclab_sim::relays::{self, Relays};
use svcproxy::plan::node::routes_loopback;

/// Why a cluster cannot be built of machines: what the simulator said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotBuild(pub String);

fn failed(error: impl std::fmt::Display) -> CannotBuild {
    CannotBuild(error.to_string())
}

/// Machines on their links. Hosts outside send what is for no machine of theirs to one node, so there is a network for
/// each node that they may use.
#[derive(Debug, Clone)]
pub struct Machines {
    by_entrance: BTreeMap<String, Network>,
    first: String,
    /// Nodes' listening ports.
    relays: BTreeMap<String, Relays>,
}

/// The name of a pod's machine: its own, or its node.
#[must_use]
pub fn machine_of_pod(world: &World, name: &PodName) -> Option<String> {
    let pod = world.pods.iter().find(|pod| pod.name == *name)?;
    Some(if pod.host_network { pod.node.clone() } else { pod_machine(name) })
}

fn pod_machine(name: &PodName) -> String {
    format!("pod/{name}")
}

/// The name of a client's machine.
#[must_use]
pub fn client_machine(name: &str) -> String {
    format!("client/{name}")
}

/// The name of the cloud's load balancer.
pub const LOAD_BALANCER: &str = "load-balancer";

/// The simulator's number for a protocol.
#[must_use]
pub fn number(protocol: Protocol) -> Number {
    match protocol {
        Protocol::Tcp => Number::TCP,
        Protocol::Udp => Number::UDP,
        Protocol::Sctp => Number::SCTP,
    }
}

/// Where sockets wait: each machine's protocols and ports, so that every endpoint of every slice is somebody; and where
/// every pod does.
fn listeners(cluster: &Cluster, everywhere: &[(Protocol, u16)]) -> BTreeMap<String, BTreeSet<(Number, u16)>> {
    let mut waiting: BTreeMap<String, BTreeSet<(Number, u16)>> = BTreeMap::new();
    for pod in &cluster.world.pods {
        let machine = if pod.host_network { pod.node.clone() } else { pod_machine(&pod.name) };
        let ports = everywhere.iter().map(|(protocol, port)| (number(*protocol), *port));
        waiting.entry(machine).or_default().extend(ports);
    }
    for slice in &cluster.objects.slices {
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            let name = port.protocol.as_deref().unwrap_or("TCP");
            let protocol = Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)?;
            Some((number(protocol), u16::try_from(port.port?).ok()?))
        });
        let ports: Vec<(Number, u16)> = ports.collect();
        let addresses = slice.endpoints.iter().flatten().flat_map(|endpoint| endpoint.addresses.first());
        for address in addresses.filter_map(|text| text.parse::<IpAddr>().ok()) {
            let pods = cluster.world.pods.iter().filter(|pod| pod.addresses.contains(&address));
            let Some(pod) = pods.min_by_key(|pod| pod.host_network) else { continue };
            let machine = if pod.host_network { pod.node.clone() } else { pod_machine(&pod.name) };
            waiting.entry(machine).or_default().extend(ports.iter().copied());
        }
    }
    waiting
}

fn everywhere(like: IpAddr) -> Masked {
    let zero: IpAddr = if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    network(zero, 0)
}

/// Lengths here are constants that fit.
fn network(address: IpAddr, length: u8) -> Masked {
    Masked::network(address, length).unwrap_or_else(|| network(address, 0))
}

/// A next hop that nobody has, as the gateway of the laboratory's default routes.
fn nobody(like: IpAddr) -> IpAddr {
    if like.is_ipv4() {
        Ipv4Addr::new(169, 254, 1, 1).into()
    } else {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into()
    }
}

fn single(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Prefix lengths of the networks of nodes and of each node's pods.
fn shared(address: IpAddr) -> u8 {
    if address.is_ipv4() { 24 } else { 64 }
}

fn first_of(addresses: &[IpAddr], like: IpAddr) -> Option<IpAddr> {
    addresses.iter().copied().find(|address| address.is_ipv4() == like.is_ipv4())
}

/// The first address of each family.
fn firsts(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let v4 = addresses.iter().find(|address| address.is_ipv4());
    v4.into_iter().chain(addresses.iter().find(|address| address.is_ipv6())).copied().collect()
}

struct Builder<'a> {
    cluster: &'a Cluster,
    listeners: BTreeMap<String, BTreeSet<(Number, u16)>>,
}

impl Builder<'_> {
    fn world(&self) -> &World {
        &self.cluster.world
    }

    fn listening(&self, mut host: HostBuilder, machine: &str) -> HostBuilder {
        for (protocol, port) in self.listeners.get(machine).into_iter().flatten() {
            host = host.listen(*protocol, *port);
        }
        host
    }

    /// The pods with a network of their own on a node.
    fn pods_on(&self, node: &str) -> impl Iterator<Item = &PodPlace> {
        self.world().pods.iter().filter(move |pod| pod.node == node && !pod.host_network)
    }

    fn node(&self, place: &NodePlace, program: &Program) -> Result<Host, CannotBuild> {
        let own = firsts(&place.addresses);
        let mut eth0 = Interface::new("eth0");
        for address in &place.addresses {
            eth0 = match own.contains(address) {
                true => eth0.address(*address, shared(*address)),
                false => eth0.secondary(*address, shared(*address)),
            };
        }
        let sysctls =
            Sysctls { route_localnet: routes_loopback(&node::config(self.world(), &place.name)), ..Sysctls::node() };
        let mut host = Host::builder(&place.name).sysctls(sysctls).interface(eth0);
        for address in &own {
            host = host.route(Route::via(everywhere(*address), nobody(*address), "eth0").from_address(*address));
            for other in self.world().nodes.iter().filter(|other| other.name != place.name) {
                let Some(via) = first_of(&other.addresses, *address) else { continue };
                for range in self.pod_ranges(&other.name).filter(|range| range.is_ipv4() == address.is_ipv4()) {
                    let route = Route::via(network(range, shared(range)), via, "eth0");
                    host = host.route(route.from_address(*address));
                }
            }
        }
        host = self.pod_links(host, place);
        if !program.addresses.is_empty() {
            let device = program.addresses.iter();
            host = host.interface(device.fold(Interface::new("kube-ipvs0"), |device, address| device.with(*address)));
        }
        let host = host
            .rules(program.v4.clone())
            .rules(program.v6.clone())
            .sets(program.sets.clone())
            .virtual_services(program.servers.clone());
        let relays = program.relays.keys();
        let host = relays.fold(host, |host, (_, protocol, port)| host.listen(*protocol, *port));
        self.listening(host, &place.name).build().map_err(failed)
    }

    /// The networks of a node's pods, by any address in them.
    fn pod_ranges(&self, node: &str) -> impl Iterator<Item = IpAddr> {
        let object =
            self.cluster.objects.nodes.iter().find(move |object| object.metadata.name.as_deref() == Some(node));
        let ranges = object.and_then(|object| object.spec.as_ref()?.pod_cidrs.clone()).unwrap_or_default();
        ranges.into_iter().filter_map(|text| Some(text.parse::<ipnet::IpNet>().ok()?.network()))
    }

    fn pod_links(&self, mut host: HostBuilder, place: &NodePlace) -> HostBuilder {
        let bridged = self.world().cni == Cni::Bridge;
        if bridged {
            let bridge = place.gateways.iter();
            host = host.interface(
                bridge.fold(Interface::new("cni0"), |bridge, address| bridge.address(*address, shared(*address))),
            );
        }
        for (index, pod) in self.pods_on(&place.name).enumerate() {
            let veth = format!("veth{index}");
            let gateways = place.gateways.iter().filter(|_| !bridged);
            let interface = gateways.fold(Interface::new(&veth), |veth, own| veth.address(*own, single(*own)));
            host = host.interface(if bridged { interface.port_of("cni0", true) } else { interface });
            for address in pod.addresses.iter().filter(|_| !bridged) {
                host = host.route(Route::link(network(*address, single(*address)), &veth)).neighbour(&veth, *address);
            }
        }
        host
    }

    fn pod(&self, pod: &PodPlace) -> Result<Host, CannotBuild> {
        let node = self.world().nodes.iter().find(|node| node.name == pod.node);
        let gateways = node.map(|node| node.gateways.as_slice()).unwrap_or_default();
        let mut eth0 = Interface::new("eth0");
        let name = pod_machine(&pod.name);
        let mut host = Host::builder(&name);
        for address in &pod.addresses {
            let gateway = first_of(gateways, *address);
            let bridged = self.world().cni == Cni::Bridge;
            eth0 = eth0.address(*address, if bridged { shared(*address) } else { single(*address) });
            let via = gateway.unwrap_or_else(|| nobody(*address));
            host = host.route(Route::via(everywhere(*address), via, "eth0"));
            if !bridged {
                host = host.neighbour("eth0", via);
            }
        }
        self.listening(host.interface(eth0), &name).build().map_err(failed)
    }

    /// A host outside that sends what it does not know by way of a node.
    fn outside(&self, name: &str, addresses: &[IpAddr], entrance: &NodePlace) -> Result<Host, CannotBuild> {
        let eth0 = addresses.iter();
        let eth0 = eth0.fold(Interface::new("eth0"), |eth0, address| eth0.address(*address, shared(*address)));
        let mut host = Host::builder(name).interface(eth0);
        for address in addresses {
            if let Some(via) = first_of(&entrance.addresses, *address) {
                host = host.route(Route::via(everywhere(*address), via, "eth0"));
            }
        }
        host.build().map_err(failed)
    }

    fn network(&self, programs: &BTreeMap<String, Program>, entrance: &NodePlace) -> Result<Network, CannotBuild> {
        let mut network = Network::new();
        let nothing = Program::empty();
        let mut switch: Vec<HostId> = Vec::new();
        for place in &self.world().nodes {
            let program = programs.get(&place.name).unwrap_or(&nothing);
            switch.push(network.add(self.node(place, program)?));
        }
        for (at, place) in self.world().nodes.iter().enumerate() {
            let node = switch[at];
            for (index, pod) in self.pods_on(&place.name).enumerate() {
                let own = network.add(self.pod(pod)?);
                network.link(&[(node, &format!("veth{index}")), (own, "eth0")]).map_err(failed)?;
            }
        }
        for client in &self.world().clients {
            switch.push(network.add(self.outside(&client_machine(&client.name), &client.addresses, entrance)?));
        }
        if !self.world().load_balancer.is_empty() {
            switch.push(network.add(self.outside(LOAD_BALANCER, &self.world().load_balancer, entrance)?));
        }
        let ends: Vec<(HostId, &str)> = switch.into_iter().map(|host| (host, "eth0")).collect();
        network.link(&ends).map_err(failed)?;
        Ok(network)
    }
}

impl Machines {
    /// Builds them; each node runs its program.
    ///
    /// # Errors
    /// What the simulator does not take, such as a rule that names a set that is not there.
    pub fn build(cluster: &Cluster, programs: &BTreeMap<String, Program>) -> Result<Machines, CannotBuild> {
        Machines::build_with(cluster, programs, &[])
    }

    /// The same, where every pod waits at some ports, endpoint or not.
    ///
    /// # Errors
    /// As [`Machines::build`].
    pub fn build_with(
        cluster: &Cluster,
        programs: &BTreeMap<String, Program>,
        everywhere: &[(Protocol, u16)],
    ) -> Result<Machines, CannotBuild> {
        let builder = Builder { cluster, listeners: listeners(cluster, everywhere) };
        let mut by_entrance: BTreeMap<String, Network> = BTreeMap::new();
        for entrance in &cluster.world.nodes {
            let network = match by_entrance.values().next() {
                None => builder.network(programs, entrance)?,
                // Only the hosts outside differ.
                Some(network) => {
                    let mut network = network.clone();
                    let clients = cluster.world.clients.iter();
                    let clients = clients.map(|client| (client_machine(&client.name), &client.addresses));
                    let balancer = (LOAD_BALANCER.to_owned(), &cluster.world.load_balancer);
                    for (name, addresses) in clients.chain([balancer]) {
                        let Some(id) = network.find(&name) else { continue };
                        network.replace(id, builder.outside(&name, addresses, entrance)?);
                    }
                    network
                }
            };
            by_entrance.insert(entrance.name.clone(), network);
        }
        let first = by_entrance.keys().next().cloned().ok_or_else(|| failed("there is no node"))?;
        let relays = programs.iter().map(|(node, program)| (node.clone(), program.relays.clone())).collect();
        Ok(Machines { by_entrance, first, relays })
    }

    /// Every way of a flow's first packet in one of the networks, by way of relays if it meets any.
    ///
    /// # Errors
    /// As [`Network::outcomes`].
    pub fn outcomes(&self, network: &Network, flow: &Flow) -> Result<Outcomes, NetworkError> {
        let found = network.outcomes(flow)?;
        Ok(relays::through(network, flow, found, |host| self.relays.get(network.host(host).name())))
    }

    /// The network in which hosts outside enter by that node; any, if it does not matter.
    #[must_use]
    pub fn network(&self, entrance: Option<&str>) -> Option<&Network> {
        self.by_entrance.get(entrance.unwrap_or(&self.first))
    }
}
