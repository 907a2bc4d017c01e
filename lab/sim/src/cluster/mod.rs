//! A Kubernetes cluster as machines on links, wired like the lab's network namespaces: nodes and external hosts on one
//! segment, a link per pod.

mod node_state;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

pub use node_state::{NodeReadError, NodeState};

use crate::host::{Host, HostBuilder, HostError, HostInterface, Listener, Route, Sysctls};
use crate::masked::Masked;
use crate::network::{HostId, Network, NetworkError};
use crate::protocol::{Family, Protocol};

/// An error in building a cluster.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the names say it")]
pub enum BuildError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// A cluster's machines, whose names are unique.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Cluster {
    /// Whether pods are on a bridge `cni0` in hairpin mode instead of own links.
    pub bridged: bool,
    pub nodes: Vec<Node>,
    pub outside: Vec<ExternalHost>,
}

const OVERLAY: &str = "flannel.1";
const SECOND: &str = "eth1";

/// Ports with listening sockets.
pub type Listening = BTreeSet<(Protocol, u16)>;

/// A node with its pods.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Node {
    pub name: String,
    /// Addresses of `eth0`; the first of each family is the default source.
    pub addresses: Vec<IpNet>,
    /// Secondary addresses of `eth0`.
    pub secondary: Vec<IpNet>,
    /// Pod networks that other nodes route to this node.
    pub pod_ranges: Vec<IpNet>,
    /// The node's addresses on the bridge, or on each pod's link.
    pub gateways: Vec<IpNet>,
    /// Addresses of `flannel.1`, by which other nodes reach the pods, without encapsulation.
    pub overlay: Vec<IpAddr>,
    /// Addresses of `eth1`, by which other nodes reach the pods.
    pub second: Vec<IpNet>,
    pub sysctls: Sysctls,
    /// Listening sockets other than those of relays.
    pub listening: Listening,
    /// Pods by name; `None` for a removed pod whose link remains.
    pub pods: Vec<(String, Option<Pod>)>,
}

/// A pod with its own network namespace.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Pod {
    pub addresses: Vec<IpAddr>,
    pub listening: Listening,
}

/// A host outside the cluster, on the nodes' segment.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ExternalHost {
    pub name: String,
    /// Addresses with prefix length.
    pub addresses: Vec<IpNet>,
    /// Destination and gateway (a node).
    pub routes: Vec<(IpNet, IpAddr)>,
}

impl Cluster {
    /// Adds or replaces machines by name, each node with its `state`. Other machines and conntrack entries remain.
    pub fn put<'s>(
        &self,
        network: &mut Network,
        state: impl Fn(&str) -> Option<&'s NodeState>,
    ) -> Result<(), BuildError> {
        let (mut segment, mut overlay, mut second) = (Vec::new(), Vec::new(), Vec::new());
        let nothing = NodeState::default();
        for node in &self.nodes {
            let state = state(&node.name).unwrap_or(&nothing);
            let known = segment.len();
            let id = put(network, self.node(node, state)?, &mut segment);
            overlay.extend(segment[known..].iter().filter(|_| !node.overlay.is_empty()));
            second.extend(segment[known..].iter().filter(|_| !node.second.is_empty()));
            for (index, (name, pod)) in node.pods.iter().enumerate() {
                let mut fresh = Vec::new();
                let own = put(network, self.pod(node, name, pod.as_ref())?, &mut fresh);
                if !fresh.is_empty() {
                    network.link(&[(id, &veth(index)), (own, "eth0")])?;
                }
            }
        }
        self.put_each_outside(network, &mut segment)?;
        for (hosts, interface) in [(segment, "eth0"), (overlay, OVERLAY), (second, SECOND)] {
            let ends: Vec<(HostId, &str)> = hosts.into_iter().map(|id| (id, interface)).collect();
            if !ends.is_empty() {
                network.link(&ends)?;
            }
        }
        Ok(())
    }

    /// Adds or replaces external hosts only.
    pub fn put_outside(&self, network: &mut Network) -> Result<(), BuildError> {
        self.put_each_outside(network, &mut Vec::new())
    }

    fn put_each_outside(&self, network: &mut Network, fresh: &mut Vec<HostId>) -> Result<(), BuildError> {
        for outside in &self.outside {
            put(network, outside.host()?, fresh);
        }
        Ok(())
    }

    fn node(&self, node: &Node, state: &NodeState) -> Result<Host, BuildError> {
        let eth0 = with_addresses("eth0", &node.addresses);
        let eth0 = node.secondary.iter().fold(eth0, |eth0, own| eth0.secondary(own.addr(), own.prefix_len()));
        let mut host = Host::builder(&node.name).sysctls(node.sysctls).interface(eth0);
        for own in node.addresses.iter().map(IpNet::addr) {
            host = host.route(Route::via(everywhere(own), link_local(own), "eth0").from_address(own));
            for other in self.nodes.iter().filter(|other| other.name != node.name) {
                let Some(via) = like(&other.addresses, own) else { continue };
                for range in other.pod_ranges.iter().filter(|range| range.addr().is_ipv4() == own.is_ipv4()) {
                    let end = other.overlay.iter().find(|end| end.is_ipv4() == own.is_ipv4());
                    host = host.route(match (end, like(&other.second, own)) {
                        (Some(end), _) => Route::via((*range).into(), *end, OVERLAY),
                        (None, Some(second)) => Route::via((*range).into(), second.addr(), SECOND),
                        (None, None) => Route::via((*range).into(), via.addr(), "eth0").from_address(own),
                    });
                }
            }
        }
        if !node.overlay.is_empty() {
            let device = HostInterface::new(OVERLAY);
            host = host.interface(
                node.overlay.iter().fold(device, |device, own| device.address(*own, Family::of(*own).bits())),
            );
        }
        if !node.second.is_empty() {
            host = host.interface(with_addresses(SECOND, &node.second));
        }
        // Without addresses, too: links of pods keep their places when the first address is added.
        let device = HostInterface::new("kube-ipvs0");
        host = host.interface(state.addresses.iter().fold(device, |device, own| device.with(*own)));
        host = self.pod_links(host, node).rules(state.v4.clone()).rules(state.v6.clone());
        host = host.nft(state.nft.clone());
        host = host.sets(state.sets.clone()).virtual_services(state.servers.clone());
        let relays = state.relays.iter().map(|((_, protocol, port), relay)| Listener {
            protocol: *protocol,
            address: relay.address,
            port: Some(*port),
        });
        Ok(relays.fold(listening(host, &node.listening), HostBuilder::listener).build()?)
    }

    fn pod_links(&self, mut host: HostBuilder, node: &Node) -> HostBuilder {
        if self.bridged {
            host = host.interface(with_addresses("cni0", &node.gateways));
        }
        for (index, (_, pod)) in node.pods.iter().enumerate() {
            let (name, addresses) = (veth(index), pod.as_ref().map(|pod| pod.addresses.as_slice()).unwrap_or_default());
            let interface = HostInterface::new(&name);
            if self.bridged {
                host = host.interface(interface.port_of("cni0", true));
                continue;
            }
            let own = addresses.iter().filter_map(|address| like(&node.gateways, *address));
            host = host
                .interface(own.fold(interface, |veth, own| veth.address(own.addr(), Family::of(own.addr()).bits())));
            for address in addresses {
                host = host.route(Route::link((*address).into(), &name)).neighbour(&name, *address);
            }
        }
        host
    }

    fn pod(&self, node: &Node, name: &str, pod: Option<&Pod>) -> Result<Host, BuildError> {
        let (mut eth0, mut host) = (HostInterface::new("eth0"), Host::builder(name));
        let Some(pod) = pod else { return Ok(host.interface(eth0).build()?) };
        for address in &pod.addresses {
            let gateway = like(&node.gateways, *address);
            let via = gateway.map_or_else(|| link_local(*address), |gateway| gateway.addr());
            let length =
                gateway.filter(|_| self.bridged).map_or(Family::of(*address).bits(), |gateway| gateway.prefix_len());
            eth0 = eth0.address(*address, length);
            host = host.route(Route::via(everywhere(*address), via, "eth0"));
            if !self.bridged {
                host = host.neighbour("eth0", via);
            }
        }
        Ok(listening(host.interface(eth0), &pod.listening).build()?)
    }
}

impl ExternalHost {
    fn host(&self) -> Result<Host, BuildError> {
        let eth0 = with_addresses("eth0", &self.addresses);
        let host = Host::builder(&self.name).interface(eth0);
        let routes = self.routes.iter().map(|(range, via)| Route::via((*range).into(), *via, "eth0"));
        Ok(routes.fold(host, HostBuilder::route).build()?)
    }
}

fn put(network: &mut Network, host: Host, fresh: &mut Vec<HostId>) -> HostId {
    if let Some(id) = network.find(host.name()) {
        network.replace(id, host);
        return id;
    }
    let id = network.add(host);
    fresh.push(id);
    id
}

fn with_addresses(interface: &str, addresses: &[IpNet]) -> HostInterface {
    let interface = HostInterface::new(interface);
    addresses.iter().fold(interface, |interface, own| interface.address(own.addr(), own.prefix_len()))
}

fn veth(index: usize) -> String {
    format!("veth{index}")
}

fn listening(host: HostBuilder, sockets: &Listening) -> HostBuilder {
    sockets.iter().fold(host, |host, (protocol, port)| host.listen(*protocol, *port))
}

fn like(addresses: &[IpNet], other: IpAddr) -> Option<IpNet> {
    addresses.iter().copied().find(|address| address.addr().is_ipv4() == other.is_ipv4())
}

fn everywhere(like: IpAddr) -> Masked {
    match like {
        IpAddr::V4(_) => IpNet::from(Ipv4Net::default()).into(),
        IpAddr::V6(_) => IpNet::from(Ipv6Net::default()).into(),
    }
}

fn link_local(like: IpAddr) -> IpAddr {
    if like.is_ipv4() {
        Ipv4Addr::new(169, 254, 1, 1).into()
    } else {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::network::Flow;

    #[test]
    fn a_node_without_addresses_of_services_keeps_its_links() {
        let pod = Pod { addresses: vec!["10.244.1.2".parse().unwrap()], listening: Listening::new() };
        let node = Node {
            name: "node".to_owned(),
            addresses: vec!["172.18.0.2/24".parse().unwrap()],
            secondary: Vec::new(),
            pod_ranges: vec!["10.244.1.0/24".parse().unwrap()],
            gateways: vec!["10.244.1.1/24".parse().unwrap()],
            overlay: Vec::new(),
            second: Vec::new(),
            sysctls: Sysctls::node(),
            listening: [(Protocol::TCP, 22)].into(),
            pods: vec![("pod".to_owned(), Some(pod))],
        };
        let cluster = Cluster { bridged: true, nodes: vec![node], outside: Vec::new() };
        let mut network = Network::default();
        for addresses in ["ip addr add 10.96.0.1/32 dev kube-ipvs0\n", ""] {
            let mut state = NodeState::default();
            state.read_addresses("addresses", addresses).unwrap();
            cluster.put(&mut network, |_| Some(&state)).unwrap();
            let call = Flow::tcp(network.find("pod").unwrap(), "172.18.0.2:22".parse().unwrap());
            let outcomes = network.outcomes(&call).unwrap();
            assert!(outcomes.certain().is_some_and(|verdict| verdict.answered().is_some()), "{outcomes:?}");
        }
    }
}
