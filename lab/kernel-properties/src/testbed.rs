//! The machines, which stay while services, endpoints and settings change.

use std::net::IpAddr;

use ipnet::IpNet;
use svclab_oracle::generate::{DeclaredAddresses, Families, NodeRecipe, PodRecipe, Recipe};
use svclab_oracle::{self as oracle, ClusterModel, ReversePath, World};
use svclab_spec::{ClientSpec, ClusterSpec, Cni, LoadBalancerSpec, NodeSpec, PodSpec, Protocol, ServerPort};
use svcproxy::config::Variant;

/// All target ports of the generator, over TCP and UDP.
const PORTS: [u16; 6] = [8080, 8081, 8082, 8180, 8181, 8182];

#[derive(Debug, Clone, Copy)]
pub struct Testbed {
    pub name: &'static str,
    pub variant: Variant,
    families: Families,
    point_to_point: bool,
    link_gateways: bool,
    pub overlay: bool,
    second: bool,
    reverse_path: ReversePath,
    /// Each node's zone, and whether it has a second address.
    nodes: &'static [(Option<u8>, bool)],
    /// Each pod's node, and whether it is on the host network. Each node also has a caller.
    pods: &'static [(u8, bool)],
}

const BRIDGE_IPV4: Testbed = Testbed {
    name: "bridge_ipv4",
    variant: Variant::Nft,
    families: Families::V4,
    point_to_point: false,
    link_gateways: false,
    overlay: false,
    second: false,
    reverse_path: ReversePath::Loose,
    nodes: &[(Some(0), false), (Some(1), true), (Some(1), false)],
    pods: &[(0, false), (0, false), (1, false), (1, true), (2, false)],
};

pub const ALL: [Testbed; 5] = [
    BRIDGE_IPV4,
    Testbed {
        name: "point_to_point_ipv6",
        families: Families::V6,
        point_to_point: true,
        reverse_path: ReversePath::Off,
        nodes: &[(Some(0), true), (Some(1), false), (None, false)],
        pods: &[(0, false), (1, false), (1, false), (2, false), (2, true)],
        ..BRIDGE_IPV4
    },
    Testbed {
        name: "bridge_dual_stack",
        families: Families::Dual,
        second: true,
        nodes: &[(Some(0), true), (Some(1), false)],
        pods: &[(0, false), (0, false), (0, true), (1, false), (1, false)],
        ..BRIDGE_IPV4
    },
    Testbed {
        name: "point_to_point_dual_stack_legacy",
        variant: Variant::Legacy,
        families: Families::Dual,
        point_to_point: true,
        second: true,
        nodes: &[(Some(0), false), (Some(1), true)],
        pods: &[(0, false), (0, false), (1, false), (1, true)],
        ..BRIDGE_IPV4
    },
    Testbed {
        name: "ptp_dual_stack",
        families: Families::Dual,
        point_to_point: true,
        link_gateways: true,
        overlay: true,
        nodes: &[(Some(0), true), (Some(1), false)],
        pods: &[(0, false), (0, true), (1, false), (1, false)],
        ..BRIDGE_IPV4
    },
];

impl Testbed {
    pub fn named(name: &str) -> Option<Testbed> {
        ALL.into_iter().find(|testbed| testbed.name == name)
    }

    pub fn recipe(&self) -> Recipe {
        let nodes = self.nodes.iter().map(|(zone, second)| NodeRecipe {
            zone: *zone,
            second_address: *second,
            declared: DeclaredAddresses::All,
        });
        let pods = self.pods.iter().map(|(node, host)| PodRecipe { node: *node, host_network: *host });
        Recipe {
            families: self.families,
            point_to_point: self.point_to_point,
            link_gateways: self.link_gateways,
            overlay: self.overlay,
            second: self.second,
            reverse_path: self.reverse_path,
            nodes: nodes.collect(),
            pods: pods.collect(),
            ..Recipe::default()
        }
    }

    pub fn spec(&self) -> ClusterSpec {
        let ClusterModel { world, objects } = self.recipe().build();
        let v4 = |address: &IpAddr| address.is_ipv4();
        let first: Vec<IpAddr> = world.nodes.first().map(|node| firsts(&node.addresses)).unwrap_or_default();
        let ranges = |v4_range: &str, v6_range: &str| -> Vec<IpNet> {
            let texts = first.iter().map(|address| if v4(address) { v4_range } else { v6_range });
            texts.filter_map(|text| text.parse().ok()).collect()
        };
        let nodes = world.nodes.iter().map(|node| {
            let addresses = firsts(&node.addresses);
            NodeSpec {
                name: node.name.clone(),
                zone: None,
                extra_addresses: node.addresses.iter().filter(|own| !addresses.contains(own)).copied().collect(),
                pod_cidrs: objects.pod_ranges(&node.name),
                addresses,
            }
        });
        ClusterSpec {
            cni: match world.cni {
                oracle::Cni::Bridge => Cni::Bridge,
                oracle::Cni::PointToPoint => Cni::PointToPoint,
                oracle::Cni::Ptp => Cni::Ptp,
            },
            overlay: self.overlay,
            second_network: if self.second { ranges("172.19.0.0/24", "fd00:172:19::/64") } else { Vec::new() },
            reverse_path: match world.reverse_path {
                ReversePath::Off => svclab_spec::ReversePath::Off,
                ReversePath::Loose => svclab_spec::ReversePath::Loose,
            },
            node_network: ranges("172.18.0.0/24", "fd00:172:18::/64"),
            service_cidrs: ranges("10.96.0.0/16", "fd00:10:96::/112"),
            cluster_cidrs: ranges("10.244.0.0/16", "fd00:10:244::/56"),
            nodes: nodes.collect(),
            pods: pods(&world),
            clients: world
                .clients
                .iter()
                .map(|client| ClientSpec { name: client.name.clone(), addresses: client.addresses.clone() })
                .collect(),
            load_balancer: Some(LoadBalancerSpec { addresses: world.load_balancer }),
        }
    }
}

fn firsts(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let of = |v4: bool| addresses.iter().copied().find(|address| address.is_ipv4() == v4);
    [of(true), of(false)].into_iter().flatten().collect()
}

fn pods(world: &World) -> Vec<PodSpec> {
    let ports = PORTS.iter().flat_map(|port| [Protocol::Tcp, Protocol::Udp].map(|protocol| (protocol, *port)));
    let ports: Vec<ServerPort> = ports.map(|(protocol, port)| ServerPort { protocol, port }).collect();
    let pods = world.pods.iter().map(|pod| PodSpec {
        namespace: pod.name.namespace.clone(),
        name: pod.name.name.clone(),
        node: pod.node.clone(),
        addresses: pod.addresses.clone(),
        host_network: pod.host_network,
        ports: ports.clone(),
    });
    pods.collect()
}

pub fn listening() -> Vec<(oracle::Protocol, u16)> {
    let both = |port: &u16| [oracle::Protocol::Tcp, oracle::Protocol::Udp].map(|protocol| (protocol, *port));
    PORTS.iter().flat_map(both).collect()
}

/// The error is a target port without listeners.
pub fn serves(cluster: &ClusterModel) -> Result<(), String> {
    let ports = cluster.objects.slices.iter().flat_map(|slice| slice.ports.iter().flatten());
    let missing = ports.filter_map(|port| port.port).find(|port| !PORTS.iter().any(|own| i32::from(*own) == *port));
    missing.map_or(Ok(()), |port| {
        Err(format!("the generator gives target port {port}, and no pod of the testbeds has it"))
    })
}
