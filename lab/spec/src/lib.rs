//! The specification of a cluster, for the API, the cluster builder and scenarios.

use std::net::IpAddr;

use ipnet::IpNet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cni {
    /// A bridge `cni0` per node with hairpin mode; `bridge-nf-call-iptables` is on.
    #[default]
    Bridge,
    /// A veth and a host route per pod, like Calico.
    PointToPoint,
    /// As `PointToPoint`, and the node's end of each veth has the gateway address, like the CNI plugin `ptp` and
    /// kindnet.
    Ptp,
}

/// `net.ipv4.conf.*.rp_filter` on nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReversePath {
    /// `rp_filter` 0.
    #[default]
    Off,
    /// 1: the reply must leave by the packet's interface (RFC 3704, strict).
    Strict,
    /// 2: a route to the source must exist (RFC 3704, loose).
    Loose,
}

/// A node: a network namespace with its own `/sys` and `/run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// Kubernetes name, and value of `--hostname-override`.
    pub name: String,
    pub zone: Option<String>,
    /// Addresses on the node network, at most one per family, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// Further addresses of the same interface, for `nodePortAddresses`.
    pub extra_addresses: Vec<IpAddr>,
    /// The node's pod ranges, at most one per family.
    pub pod_cidrs: Vec<IpNet>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerPort {
    pub protocol: Protocol,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    /// SCTP with one-to-one style sockets (RFC 6458). Many kernels lack it.
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

/// A pod: a network namespace with echo servers; with host network, the node's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSpec {
    pub namespace: String,
    pub name: String,
    pub node: String,
    /// The pod's addresses, at most one per family; with host network, the node's.
    pub addresses: Vec<IpAddr>,
    pub host_network: bool,
    pub ports: Vec<ServerPort>,
}

/// A host on the node network, outside the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSpec {
    pub name: String,
    /// The client's addresses, at most one per family.
    pub addresses: Vec<IpAddr>,
}

/// The port of kube-proxy's `/healthz`, by which load balancers choose nodes under external policy Cluster (KEP-3836).
pub const PROXY_HEALTH_PORT: u16 = 10_256;

/// The cloud load balancer, a host on the node network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerSpec {
    /// The source addresses of its health checks, at most one per family.
    pub addresses: Vec<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterSpec {
    pub cni: Cni,
    /// Whether nodes reach each other's pods by VXLAN like flannel: `flannel.1` has the first address of the node's pod
    /// range.
    pub overlay: bool,
    /// The network of `eth1`, by which nodes reach each other's pods, at most one range per family; empty: no `eth1`.
    /// Node objects do not list addresses of `eth1`.
    pub second_network: Vec<IpNet>,
    pub reverse_path: ReversePath,
    /// The layer-2 segment of nodes, clients and load balancer, at most one range per family.
    pub node_network: Vec<IpNet>,
    /// The ranges of cluster IPs, at most one per family.
    pub service_cidrs: Vec<IpNet>,
    /// kube-proxy's `--cluster-cidr`: at most one range per family, which contains every pod range.
    pub cluster_cidrs: Vec<IpNet>,
    pub nodes: Vec<NodeSpec>,
    pub pods: Vec<PodSpec>,
    pub clients: Vec<ClientSpec>,
    pub load_balancer: Option<LoadBalancerSpec>,
}

impl ClusterSpec {
    /// Returns the first address of each pod range, like flannel.
    pub fn overlay_addresses(&self, node: &NodeSpec) -> Vec<IpAddr> {
        let ranges = node.pod_cidrs.iter().filter(|_| self.overlay);
        ranges.filter_map(|range| nth_address(*range, 0)).collect()
    }

    /// Returns addresses with the host numbers of the node network.
    pub fn second_addresses(&self, node: &NodeSpec) -> Vec<IpAddr> {
        let of = |second: &IpNet| {
            let own = node.addresses.iter().find(|own| own.is_ipv4() == second.addr().is_ipv4())?;
            let first = self.node_network.iter().find(|range| range.contains(own))?;
            nth_address(*second, number_in(*first, *own))
        };
        self.second_network.iter().filter_map(of).collect()
    }
}

/// Returns the low 64 bits of the difference.
fn number_in(range: IpNet, address: IpAddr) -> u64 {
    let low = |address: IpAddr| match address {
        IpAddr::V4(v4) => u64::from(u32::from(v4)),
        // Numbers within a range are small.
        #[allow(clippy::cast_possible_truncation, reason = "the last 64 bits are what is asked for")]
        IpAddr::V6(v6) => u128::from(v6) as u64,
    };
    low(address).wrapping_sub(low(range.network()))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerVip {
    pub address: IpAddr,
    pub mode: VipMode,
    /// Protocol, service port, node port (for `Proxy`).
    pub ports: Vec<(Protocol, u16, u16)>,
    /// The nodes' port at which `/healthz` answers 200 where the load balancer may send:
    /// `healthCheckNodePort`, or [`PROXY_HEALTH_PORT`].
    pub health_check_port: u16,
}

/// `status.loadBalancer.ingress[].ipMode` (KEP-1860).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VipMode {
    /// Packets reach the node with the load-balancer address as destination.
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

/// Counts from the network address; `None` beyond the end of the range.
pub fn nth_address(range: IpNet, number: u64) -> Option<IpAddr> {
    let address = match range.network() {
        IpAddr::V4(network) => IpAddr::V4(u32::from(network).checked_add(u32::try_from(number).ok()?)?.into()),
        IpAddr::V6(network) => IpAddr::V6(u128::from(network).checked_add(u128::from(number))?.into()),
    };
    range.contains(&address).then_some(address)
}
