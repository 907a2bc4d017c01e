//! What an operator decides about one proxy: values as given, and what they mean for one address family.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;

use crate::model::Family;
use crate::port_range::PortRange;

/// Proxy modes, by upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Chains and rules of iptables.
    #[default]
    Iptables,
    /// Virtual servers of the kernel's IPVS.
    Ipvs,
    /// Sets and maps of nftables.
    Nftables,
    /// Listeners in this process.
    Userspace,
}

impl FromStr for Mode {
    type Err = String;

    /// Empty is the default, as upstream has it.
    fn from_str(text: &str) -> Result<Mode, String> {
        match text {
            "" | "iptables" => Ok(Mode::Iptables),
            "ipvs" => Ok(Mode::Ipvs),
            "nftables" => Ok(Mode::Nftables),
            "userspace" => Ok(Mode::Userspace),
            "kernelspace" => Err("kernelspace is the mode of Windows nodes; this proxy is for Linux".to_owned()),
            other => Err(format!("{other:?} is none of iptables, ipvs, nftables, userspace")),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Iptables => "iptables",
            Mode::Ipvs => "ipvs",
            Mode::Nftables => "nftables",
            Mode::Userspace => "userspace",
        })
    }
}

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
    /// The node's primary addresses, and local ones in these ranges.
    PrimaryAndRanges(Vec<IpNet>),
}

/// Limits of connection tracking (`conntrack`). Zero leaves the kernel's own value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conntrack {
    /// Connections to track for each processor.
    pub max_per_core: u32,
    /// Connections to track at least, if there is a limit for each processor.
    pub min: u32,
    /// Time-out of idle established TCP connections.
    pub tcp_established: Duration,
    /// Time-out of TCP connections in CLOSE_WAIT.
    pub tcp_close_wait: Duration,
    /// Time-out of UDP flows without a reply.
    pub udp: Duration,
    /// Time-out of UDP flows with replies.
    pub udp_stream: Duration,
}

impl Default for Conntrack {
    fn default() -> Conntrack {
        Conntrack {
            max_per_core: 32 * 1024,
            min: 128 * 1024,
            tcp_established: Duration::from_secs(24 * 3600),
            tcp_close_wait: Duration::from_secs(3600),
            udp: Duration::ZERO,
            udp_stream: Duration::ZERO,
        }
    }
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

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Variant::Auto => "iptables",
            Variant::Nft => "nft",
            Variant::Legacy => "legacy",
        })
    }
}

/// How the tables are written (`--iptables-writer`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriterChoice {
    /// By netlink, where the tables are the nft variant's; else by the commands.
    #[default]
    Auto,
    /// By netlink.
    Netlink,
    /// By `iptables-restore`.
    Commands,
}

impl fmt::Display for WriterChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WriterChoice::Auto => "auto",
            WriterChoice::Netlink => "netlink",
            WriterChoice::Commands => "commands",
        })
    }
}

/// Settings of IPVS mode (`ipvs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipvs {
    /// The scheduler of all virtual servers.
    pub scheduler: String,
    /// Virtual servers in these ranges are left alone (`excludeCIDRs`).
    pub exclude: Vec<IpNet>,
    /// Answer ARP only on the device that has the address (`strictARP`).
    pub strict_arp: bool,
    /// Time-outs of connections.
    pub timeouts: IpvsTimeouts,
    /// How long a backend that leaves may keep its connections.
    pub drain_limit: Duration,
}

impl Default for Ipvs {
    fn default() -> Ipvs {
        Ipvs {
            scheduler: "rr".to_owned(),
            exclude: Vec::new(),
            strict_arp: false,
            timeouts: IpvsTimeouts::default(),
            drain_limit: Duration::from_secs(15 * 60),
        }
    }
}

/// Feature gates that change something here (`featureGates`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    /// `spec.externalIPs` of Services are served (`AllowServiceExternalIPs`).
    pub service_external_ips: bool,
    /// `/flagz` is there (`ComponentFlagz`).
    pub flagz: bool,
    /// `/statusz` is there (`ComponentStatusz`).
    pub statusz: bool,
    /// In nftables mode relays may answer node ports on loopback addresses (`KubeProxyNFTablesLocalhostNodePorts`).
    pub nftables_localhost_node_ports: bool,
}

impl Default for FeatureGates {
    fn default() -> FeatureGates {
        FeatureGates { service_external_ips: true, flagz: true, statusz: true, nftables_localhost_node_ports: true }
    }
}

/// An operator's settings, with kube-proxy's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How services are proxied (`mode`).
    pub mode: Mode,
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
    /// How tables are written.
    pub writer: WriterChoice,
    /// The family that must be proxied; the other one is, where the node can (by `bindAddress`).
    pub primary_family: Family,
    /// This node's primary address of its family, if the operator knows better than the Node object (`bindAddress`).
    pub bind_address: Option<IpAddr>,
    /// A port that cannot be bound ends the proxy.
    pub bind_address_hard_fail: bool,
    /// Where `/healthz` listens, if anywhere.
    pub healthz_bind_address: Option<SocketAddr>,
    /// Where `/metrics` listens, if anywhere.
    pub metrics_bind_address: Option<SocketAddr>,
    /// Connections are counted per service port, by reading the rules' counters at each scrape.
    pub service_counters: bool,
    /// The process's `oom_score_adj`, -1000 to 1000.
    pub oom_score_adj: i32,
    /// Limits of connection tracking.
    pub conntrack: Conntrack,
    /// Settings of IPVS mode.
    pub ipvs: Ipvs,
    /// Feature gates.
    pub gates: FeatureGates,
    /// Listening ports of userspace mode (`portRange`).
    pub port_range: PortRange,
    /// Long connections go by a flowtable (`nftables.flowtable`).
    pub flowtable: bool,
}

impl Config {
    /// kube-proxy's defaults for a node of this name.
    pub fn for_node(node_name: impl Into<String>) -> Config {
        Config {
            mode: Mode::Iptables,
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
            writer: WriterChoice::Auto,
            primary_family: Family::V4,
            bind_address: None,
            bind_address_hard_fail: false,
            healthz_bind_address: Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 10256)),
            metrics_bind_address: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 10249)),
            service_counters: false,
            oom_score_adj: -999,
            conntrack: Conntrack::default(),
            ipvs: Ipvs::default(),
            gates: FeatureGates::default(),
            port_range: PortRange::default(),
            flowtable: false,
        }
    }
}

/// The node's own addresses as the kernel has them; what `nodePortAddresses` and source ranges are held against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// Every address of every interface, loopback included; each once, sorted.
    pub local: Vec<IpAddr>,
    /// The node's primary addresses, at most one per family: its Node object's internal addresses if there is one.
    pub primary: Vec<IpAddr>,
    /// Families in which an interface that packets may come in by has no address, such as a pod's own that no bridge joins.
    pub bare: Vec<Family>,
    /// Names of the links by which packets may come in, sorted.
    pub links: Vec<String>,
    /// Addresses of other machines that the kernel sends packets to: gateways of routes and remote ends of VXLAN tunnels; each once, sorted.
    /// Empty where no mode asks for them.
    pub next_hops: Vec<IpAddr>,
    /// The addresses on the device that IPVS mode has for those of services, sorted. `None` where no mode asks for them.
    pub of_services: Option<Vec<IpAddr>>,
}

/// Time-outs of IPVS's connections; zero: as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IpvsTimeouts {
    /// Idle TCP connections.
    pub tcp: Duration,
    /// TCP connections after a FIN.
    pub tcp_fin: Duration,
    /// UDP flows.
    pub udp: Duration,
}
