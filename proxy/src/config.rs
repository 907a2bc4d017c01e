//! What an operator decides about one proxy: values as given, and what they mean for one address family.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// How the proxy tells that a packet comes from a pod of this node or cluster (`detectLocalMode`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetectLocal {
    /// The source is in the cluster's pod range (`--cluster-cidr`); without a range of a family, nothing is local.
    ClusterCidr(Vec<IpNet>),
    /// The source is in this node's own pod range (`spec.podCIDRs` of its Node object).
    NodeCidr,
    /// The packet came in through this bridge.
    BridgeInterface(String),
    /// The packet came in through an interface whose name starts so.
    InterfaceNamePrefix(String),
}

/// Which of the node's addresses accept node ports (`nodePortAddresses`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// Every local address.
    All,
    /// The node's primary addresses (`primary`).
    Primary,
    /// Local addresses in these ranges.
    Ranges(Vec<IpNet>),
}

/// Which iptables commands to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Variant {
    /// `iptables` as the system's alternatives point it.
    #[default]
    Auto,
    /// `iptables-nft`.
    Nft,
    /// `iptables-legacy`.
    Legacy,
}

/// An operator's settings, with kube-proxy's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// This node's Kubernetes name (`--hostname-override`).
    pub node_name: String,
    /// Pod detection.
    pub detect_local: DetectLocal,
    /// Masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// Bit of the packet mark that asks for masquerade, 0 to 31.
    pub masquerade_bit: u8,
    /// Addresses that accept node ports.
    pub node_port_addresses: NodePortAddresses,
    /// Node ports on 127.0.0.1 (IPv4 only; needs `route_localnet`).
    pub localhost_node_ports: bool,
    /// `nf_conntrack_tcp_be_liberal`: conntrack accepts out-of-window segments, so INVALID packets are not dropped.
    pub tcp_be_liberal: bool,
    /// At least this long between two checks of the whole state.
    pub sync_period: Duration,
    /// At most one sync in this time, but for a burst of two.
    pub min_sync_period: Duration,
    /// Which commands.
    pub variant: Variant,
}

impl Config {
    /// kube-proxy's defaults for a node of this name.
    pub fn for_node(node_name: impl Into<String>) -> Config {
        Config {
            node_name: node_name.into(),
            detect_local: DetectLocal::ClusterCidr(Vec::new()),
            masquerade_all: false,
            masquerade_bit: 14,
            node_port_addresses: NodePortAddresses::All,
            localhost_node_ports: true,
            tcp_be_liberal: false,
            sync_period: Duration::from_secs(30),
            min_sync_period: Duration::from_secs(1),
            variant: Variant::Auto,
        }
    }
}

/// The node's own addresses as the kernel has them; what `nodePortAddresses` and source ranges are held against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// Every address of every interface, loopback included.
    pub local: Vec<IpAddr>,
    /// The node's primary addresses, at most one per family: its Node object's internal addresses if there is one.
    pub primary: Vec<IpAddr>,
}
