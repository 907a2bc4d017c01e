//! A cluster as plain data: the API, the cluster builder and scenarios share these types.

use std::net::IpAddr;

use ipnet::IpNet;

/// How pods connect to their node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cni {
    /// One bridge `cni0` per node, with hairpin mode on its ports and `bridge-nf-call-iptables` on.
    #[default]
    Bridge,
    /// One veth per pod in the node's namespace, and a host route to each pod, like Calico.
    PointToPoint,
    /// Like `PointToPoint`; the node's end of each veth has the gateway address with a full-length prefix, like the CNI
    /// plugin `ptp` and kindnet.
    Ptp,
}

/// `net.ipv4.conf.*.rp_filter` on nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReversePath {
    /// 0.
    #[default]
    Off,
    /// 1: the node would send the reply by the interface of the packet (RFC 3704, strict).
    Strict,
    /// 2: the node has a route to the source (RFC 3704, loose).
    Loose,
}

/// A node: a network namespace, and its own `/sys` and `/run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// Kubernetes name, and value of `--hostname-override`.
    pub name: String,
    /// `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// Addresses on the node network, at most one per family, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// Further addresses of the same interface, for `nodePortAddresses`.
    pub extra_addresses: Vec<IpAddr>,
    /// At most one per family.
    pub pod_cidrs: Vec<IpNet>,
}

/// A port on which a pod's server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerPort {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port number.
    pub port: u16,
}

/// Transport protocols of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Transmission Control Protocol.
    Tcp,
    /// User Datagram Protocol.
    Udp,
    /// SCTP in one-to-one style (RFC 6458). Many kernels lack it.
    Sctp,
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        })
    }
}

/// A pod: a network namespace on a node, or the node's own for host network, with echo servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSpec {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
    /// Name of its node.
    pub node: String,
    /// At most one per family; for host network, the node's addresses.
    pub addresses: Vec<IpAddr>,
    /// Shares the node's network namespace.
    pub host_network: bool,
    /// Ports of the echo servers.
    pub ports: Vec<ServerPort>,
}

/// A machine outside the cluster, on the node network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSpec {
    /// Its name in scenarios.
    pub name: String,
    /// At most one per family.
    pub addresses: Vec<IpAddr>,
}

/// The cloud load balancer: a host on the node network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerSpec {
    /// At most one per family; sources of its health checks.
    pub addresses: Vec<IpAddr>,
}

/// A whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterSpec {
    /// Connection of pods.
    pub cni: Cni,
    /// Nodes reach each other's pods by VXLAN like flannel: the device `flannel.1` has the first address of the node's
    /// pod range, and an MTU with room for the outer headers.
    pub overlay: bool,
    /// Ranges of `eth1`, a second interface by which nodes reach each other's pods, at most one per family; Node
    /// objects do not list its addresses. Empty: nodes have one interface.
    pub second_network: Vec<IpNet>,
    /// Source validation on nodes.
    pub reverse_path: ReversePath,
    /// Ranges of the layer-2 segment of nodes, clients and load balancer, at most one per family.
    pub node_network: Vec<IpNet>,
    /// Ranges of cluster IPs, at most one per family.
    pub service_cidrs: Vec<IpNet>,
    /// kube-proxy's `--cluster-cidr`: ranges that contain every pod range, at most one per family.
    pub cluster_cidrs: Vec<IpNet>,
    /// Nodes.
    pub nodes: Vec<NodeSpec>,
    /// Pods that exist from the start.
    pub pods: Vec<PodSpec>,
    /// Hosts outside the cluster.
    pub clients: Vec<ClientSpec>,
    /// The cloud load balancer, if the cluster has one.
    pub load_balancer: Option<LoadBalancerSpec>,
}

impl ClusterSpec {
    /// A node's addresses on the overlay: the first of each pod range, like flannel.
    pub fn overlay_addresses(&self, node: &NodeSpec) -> Vec<IpAddr> {
        let ranges = node.pod_cidrs.iter().filter(|_| self.overlay);
        ranges.filter_map(|range| nth_address(*range, 0)).collect()
    }

    /// A node's addresses on `eth1`: the same host numbers as on the node network.
    pub fn second_addresses(&self, node: &NodeSpec) -> Vec<IpAddr> {
        let of = |second: &IpNet| {
            let own = node.addresses.iter().find(|own| own.is_ipv4() == second.addr().is_ipv4())?;
            let first = self.node_network.iter().find(|range| range.contains(own))?;
            nth_address(*second, number_in(*first, *own))
        };
        self.second_network.iter().filter_map(of).collect()
    }
}

/// The low 64 bits of the difference between `address` and the start of `range`.
fn number_in(range: IpNet, address: IpAddr) -> u64 {
    let low = |address: IpAddr| match address {
        IpAddr::V4(v4) => u64::from(u32::from(v4)),
        // Numbers within a range are small.
        #[allow(clippy::cast_possible_truncation, reason = "the last 64 bits are what is asked for")]
        IpAddr::V6(v6) => u128::from(v6) as u64,
    };
    low(address).wrapping_sub(low(range.network()))
}

/// A load-balancer address and where its traffic goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerVip {
    /// The published address.
    pub address: IpAddr,
    /// Whether the load balancer forwards packets or proxies connections.
    pub mode: VipMode,
    /// Service port to node port, for `Proxy`.
    pub ports: Vec<(Protocol, u16, u16)>,
    /// `healthCheckNodePort`, by which the load balancer selects nodes; `None`: it sends to every node.
    pub health_check_node_port: Option<u16>,
}

/// `status.loadBalancer.ingress[].ipMode` (KEP-1860).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VipMode {
    /// A packet reaches the node with the load-balancer address as destination.
    Vip,
    /// The load balancer connects to the node port from its own address.
    Proxy,
}

impl std::fmt::Display for VipMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            VipMode::Vip => "VIP",
            VipMode::Proxy => "Proxy",
        })
    }
}

/// Address `number` of `range`, counted from the network address; `None` beyond the end of the range.
pub fn nth_address(range: IpNet, number: u64) -> Option<IpAddr> {
    let address = match range.network() {
        IpAddr::V4(network) => IpAddr::V4(u32::from(network).checked_add(u32::try_from(number).ok()?)?.into()),
        IpAddr::V6(network) => IpAddr::V6(u128::from(network).checked_add(u128::from(number))?.into()),
    };
    range.contains(&address).then_some(address)
}
