//! Builds simulated hosts from the cluster's specification.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_sim::cluster::{BuildError, Cluster, ExternalHost, Listening, Node, Pod};
use svclab_sim::host::Sysctls;
use svclab_sim::network::Network;
use svclab_sim::protocol::Protocol as Number;
use svclab_spec::nth_address;
use svclab_spec::{ClusterSpec, Cni, NodeSpec, PodSpec, Protocol, ReversePath};

use super::rendered::Rendered;

#[derive(Debug, Clone, Default)]
pub struct HostSettings {
    /// Set by proxies that serve node ports on loopback addresses.
    pub route_localnet: bool,
    pub tcp_be_liberal: bool,
    /// Clients' routes: client, destination range, node.
    pub routes: Vec<(String, IpNet, String)>,
}

pub fn number(protocol: Protocol) -> Number {
    match protocol {
        Protocol::Tcp => Number::TCP,
        Protocol::Udp => Number::UDP,
        Protocol::Sctp => Number::SCTP,
    }
}

/// Returns the simulated host's name. A host-network pod is its node.
pub fn machine(spec: &ClusterSpec, place: &ClusterHost) -> String {
    let on_host = |namespace: &str, name: &str| {
        spec.pods.iter().find(|pod| pod.host_network && pod.namespace == namespace && pod.name == name)
    };
    match place {
        ClusterHost::Pod { namespace, name } => match on_host(namespace, name) {
            Some(pod) => ClusterHost::Node(pod.node.clone()).to_string(),
            None => place.to_string(),
        },
        other => other.to_string(),
    }
}

/// The simulated hosts. Connections, affinity and the clock survive changes of objects and rules.
#[derive(Debug, Default)]
pub struct Machines {
    network: Network,
    /// Pods by node, in interface order. An interface keeps its place after its pod's removal.
    links: BTreeMap<String, Vec<PodKey>>,
}

type PodKey = (String, String);

fn key(pod: &PodSpec) -> PodKey {
    (pod.namespace.clone(), pod.name.clone())
}

fn place_of((namespace, name): &PodKey) -> ClusterHost {
    ClusterHost::Pod { namespace: namespace.clone(), name: name.clone() }
}

impl Machines {
    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Updates hosts and rules.
    ///
    /// # Errors
    /// When the simulator does not model a rule, set or address.
    pub fn update(
        &mut self,
        spec: &ClusterSpec,
        rendered: &BTreeMap<String, Rendered>,
        settings: &HostSettings,
    ) -> Result<(), BuildError> {
        for pod in spec.pods.iter().filter(|pod| !pod.host_network) {
            let links = self.links.entry(pod.node.clone()).or_default();
            if !links.contains(&key(pod)) {
                links.push(key(pod));
            }
        }
        let of_node = |node: &NodeSpec| {
            let links = self.links.get(&node.name).map(Vec::as_slice).unwrap_or_default();
            let held = rendered.get(&node.name).into_iter().flat_map(|rendered| &rendered.held);
            let held = held.map(|(_, protocol, port)| (*protocol, *port));
            HostBuilder { spec, settings }.node(node, links, held)
        };
        let nodes = spec.nodes.iter().map(of_node).collect();
        let cluster =
            Cluster { bridged: spec.cni == Cni::Bridge, nodes, outside: HostBuilder { spec, settings }.outside() };
        cluster.put(&mut self.network, |machine| {
            let node = machine.strip_prefix("node/")?;
            rendered.get(node).map(|rendered| &rendered.state)
        })
    }

    pub fn route(&mut self, spec: &ClusterSpec, settings: &HostSettings) -> Result<(), BuildError> {
        let cluster = Cluster { outside: HostBuilder { spec, settings }.outside(), ..Cluster::default() };
        cluster.put_outside(&mut self.network)
    }
}

struct HostBuilder<'a> {
    spec: &'a ClusterSpec,
    settings: &'a HostSettings,
}

impl HostBuilder<'_> {
    fn node(&self, node: &NodeSpec, links: &[PodKey], held: impl Iterator<Item = (Number, u16)>) -> Node {
        let sysctls = Sysctls {
            route_localnet: self.settings.route_localnet,
            tcp_be_liberal: self.settings.tcp_be_liberal,
            rp_filter: match self.spec.reverse_path {
                ReversePath::Off => 0,
                ReversePath::Strict => 1,
                ReversePath::Loose => 2,
            },
            bridge_nf_call_iptables: self.spec.cni == Cni::Bridge,
            bridge_nf_call_ip6tables: self.spec.cni == Cni::Bridge,
            ..Sysctls::node()
        };
        let has_gateways = self.spec.cni != Cni::PointToPoint;
        let gateways = node.pod_cidrs.iter().filter(|_| has_gateways).filter_map(gateway).collect();
        let pods = self.spec.pods.iter().filter(|pod| pod.node == node.name);
        let on_host = pods.clone().filter(|pod| pod.host_network);
        let own = |wanted: &PodKey| {
            let pod = pods.clone().find(|pod| !pod.host_network && key(pod) == *wanted);
            let pod = pod.map(|pod| Pod { addresses: pod.addresses.clone(), listening: listening(pod).collect() });
            (place_of(wanted).to_string(), pod)
        };
        Node {
            name: ClusterHost::Node(node.name.clone()).to_string(),
            addresses: self.on_segment(&node.addresses),
            secondary: self.on_segment(&node.extra_addresses),
            pod_ranges: node.pod_cidrs.clone(),
            gateways,
            overlay: self.spec.overlay_addresses(node),
            second: with_length(&self.spec.second_addresses(node), &self.spec.second_network),
            sysctls,
            listening: held.chain(on_host.flat_map(listening)).collect::<Listening>(),
            pods: links.iter().map(own).collect(),
        }
    }

    fn outside(&self) -> Vec<ExternalHost> {
        let clients = self.spec.clients.iter().map(|client| ExternalHost {
            name: ClusterHost::Client(client.name.clone()).to_string(),
            addresses: self.on_segment(&client.addresses),
            routes: self.routes(&client.name),
        });
        let balancer = self.spec.load_balancer.iter().map(|balancer| ExternalHost {
            name: ClusterHost::LoadBalancer.to_string(),
            addresses: self.on_segment(&balancer.addresses),
            routes: Vec::new(),
        });
        clients.chain(balancer).collect()
    }

    fn routes(&self, client: &str) -> Vec<(IpNet, IpAddr)> {
        let own = self.settings.routes.iter().filter(|(of, _, _)| of == client);
        let route = own.filter_map(|(_, range, node)| {
            let node = self.spec.nodes.iter().find(|known| known.name == *node)?;
            let via = node.addresses.iter().find(|address| address.is_ipv4() == range.addr().is_ipv4())?;
            Some((*range, *via))
        });
        route.collect()
    }

    fn on_segment(&self, addresses: &[IpAddr]) -> Vec<IpNet> {
        with_length(addresses, &self.spec.node_network)
    }
}

fn with_length(addresses: &[IpAddr], networks: &[IpNet]) -> Vec<IpNet> {
    let with_length = |address: &IpAddr| {
        let network = networks.iter().find(|network| network.contains(address));
        network.map_or(IpNet::from(*address), |network| IpNet::new_assert(*address, network.prefix_len()))
    };
    addresses.iter().map(with_length).collect()
}

fn listening(pod: &PodSpec) -> impl Iterator<Item = (Number, u16)> {
    pod.ports.iter().map(|port| (number(port.protocol), port.port))
}

fn gateway(range: &IpNet) -> Option<IpNet> {
    Some(IpNet::new_assert(nth_address(*range, 1)?, range.prefix_len()))
}
