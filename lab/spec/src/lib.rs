//! What a cluster is made of, as plain data: the cluster builds it, the API has Nodes and allocates addresses by it, scenarios fill
//! it in.

use std::net::IpAddr;

use ipnet::IpNet;

/// How pods are wired to their node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cni {
    /// One bridge `cni0` per node, hairpin mode on its ports, `bridge-nf-call-iptables` on.
    #[default]
    Bridge,
    /// One veth per pod straight into the node, a host route to each pod (Calico's shape).
    PointToPoint,
    /// The same with the address of the pod range's gateway on the node's end of every veth, alone (/32, /128): the shape of
    /// the CNI plugin `ptp`, which kind's kindnet uses.
    Ptp,
}

/// What nodes ask of a packet's source: `net.ipv4.conf.*.rp_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReversePath {
    /// Nothing: 0.
    #[default]
    Off,
    /// That the answer would leave by the interface that the packet came in by (RFC 3704, strict): 1.
    Strict,
    /// That there is a way back at all (RFC 3704, loose): 2.
    Loose,
}

/// A node: a host with a network namespace, a `/sys` and a `/run` of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// Kubernetes name; also what `--hostname-override` gets.
    pub name: String,
    /// `topology.kubernetes.io/zone`, if any.
    pub zone: Option<String>,
    /// Addresses on the node network, at most one per family; the first is the primary one.
    pub addresses: Vec<IpAddr>,
    /// Further addresses of the same interface (for `nodePortAddresses`).
    pub extra_addresses: Vec<IpAddr>,
    /// Pod ranges of this node, at most one per family.
    pub pod_cidrs: Vec<IpNet>,
}

/// A port that a pod's server listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerPort {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port number.
    pub port: u16,
}

/// Transport protocols that the lab can speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, in its one-to-one style (RFC 6458); many kernels lack it.
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

/// A pod: a namespace on a node (or the node's own, for host network) with echo servers in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSpec {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
    /// The node it runs on.
    pub node: String,
    /// Its addresses, at most one per family; for host network, the node's.
    pub addresses: Vec<IpAddr>,
    /// Shares the node's network namespace.
    pub host_network: bool,
    /// What its echo servers listen on.
    pub ports: Vec<ServerPort>,
}

/// A machine outside the cluster, on the node network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSpec {
    /// Its name in scenarios.
    pub name: String,
    /// Its addresses, at most one per family.
    pub addresses: Vec<IpAddr>,
}

/// The cloud load balancer: one host on the node network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerSpec {
    /// Its own addresses, at most one per family (the source of its health checks).
    pub addresses: Vec<IpAddr>,
}

/// The whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterSpec {
    /// Wiring of pods.
    pub cni: Cni,
    /// Nodes reach each other's pods by VXLAN, as flannel has it: with a device `flannel.1` that has the first address of the
    /// node's pod range, and an MTU that leaves room for the outer headers.
    pub overlay: bool,
    /// Nodes have a second interface, `eth1`, on a segment of their own with these ranges (at most one per family), and reach each
    /// other's pods by it; their Node objects do not name it. None: they have one interface.
    pub second_network: Vec<IpNet>,
    /// What nodes ask of sources.
    pub reverse_path: ReversePath,
    /// Ranges of the node network (nodes, clients, load balancer are on one layer-2 segment), at most one per family.
    pub node_network: Vec<IpNet>,
    /// Ranges of service cluster IPs, at most one per family.
    pub service_cidrs: Vec<IpNet>,
    /// Ranges that contain every node's pod range, at most one per family (kube-proxy's `--cluster-cidr`).
    pub cluster_cidrs: Vec<IpNet>,
    /// Nodes.
    pub nodes: Vec<NodeSpec>,
    /// Pods that stand from the start.
    pub pods: Vec<PodSpec>,
    /// Clients outside the cluster.
    pub clients: Vec<ClientSpec>,
    /// The cloud load balancer, if the cluster has one.
    pub load_balancer: Option<LoadBalancerSpec>,
}

impl ClusterSpec {
    /// The addresses of a node's end of the overlay, if there is one: the first of each pod range, as flannel takes it.
    pub fn overlay_addresses(&self, node: &NodeSpec) -> Vec<IpAddr> {
        let ranges = node.pod_cidrs.iter().filter(|_| self.overlay);
        ranges.filter_map(|range| nth_address(*range, 0)).collect()
    }

    /// The addresses of a node's `eth1`: it has the same number in the second network as on the node network.
    pub fn second_addresses(&self, node: &NodeSpec) -> Vec<IpAddr> {
        let of = |second: &IpNet| {
            let own = node.addresses.iter().find(|own| own.is_ipv4() == second.addr().is_ipv4())?;
            let first = self.node_network.iter().find(|range| range.contains(own))?;
            nth_address(*second, number_in(*first, *own))
        };
        self.second_network.iter().filter_map(of).collect()
    }
}

/// The number of `address` in `range`, which contains it; the last 64 bits of it.
fn number_in(range: IpNet, address: IpAddr) -> u64 {
    let low = |address: IpAddr| match address {
        IpAddr::V4(v4) => u64::from(u32::from(v4)),
        // The cut is meant: numbers in a range are small.
        #[allow(clippy::cast_possible_truncation, reason = "the last 64 bits are what is asked for")]
        IpAddr::V6(v6) => u128::from(v6) as u64,
    };
    low(address).wrapping_sub(low(range.network()))
}

/// One load-balancer address and where its traffic goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerVip {
    /// The published address.
    pub address: IpAddr,
    /// `ipMode`: `Vip` hands packets to a node unchanged, `Proxy` connects to the node port itself.
    pub mode: VipMode,
    /// Service port to node port (used by `Proxy`).
    pub ports: Vec<(Protocol, u16, u16)>,
    /// `healthCheckNodePort` to ask; `None` sends to every node.
    pub health_check_node_port: Option<u16>,
}

/// `status.loadBalancer.ingress[].ipMode` (KEP-1860).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VipMode {
    /// Packets reach the node with the load balancer's address as destination.
    Vip,
    /// The load balancer is a proxy; nodes see its own address and the node port.
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

/// Address number `number` of `range`, counted from its network address; `None` beyond its end.
pub fn nth_address(range: IpNet, number: u64) -> Option<IpAddr> {
    let address = match range.network() {
        IpAddr::V4(network) => IpAddr::V4(u32::from(network).checked_add(u32::try_from(number).ok()?)?.into()),
        IpAddr::V6(network) => IpAddr::V6(u128::from(network).checked_add(u128::from(number))?.into()),
    };
    range.contains(&address).then_some(address)
}
