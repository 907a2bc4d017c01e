use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use ipnet::IpNet;

use crate::model::{Family, FlowFate, LoadBalancing, ServiceAnnotation, ServiceSelection};
use crate::port_range::PortRange;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    #[default]
    Iptables,
    Ipvs,
    Nftables,
    /// This process relays connections.
    Userspace,
}

impl FromStr for Mode {
    type Err = String;

    /// An empty text means the default, as in kube-proxy.
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

/// How the proxy recognises packets from local pods (`detectLocalMode`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetectLocal {
    /// In the cluster's pod range (`--cluster-cidr`). Without a range of its family a packet is not local.
    ClusterCidr(Vec<IpNet>),
    /// In the pod ranges of the Node object (`spec.podCIDRs`).
    NodeCidr,
    BridgeInterface(String),
    InterfaceNamePrefix(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortAddresses {
    All,
    Primary,
    Ranges(Vec<IpNet>),
    PrimaryAndRanges(Vec<IpNet>),
}

/// Which address masqueraded packets get (`masqueradeSource`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MasqueradeSource {
    /// The kernel's choice for the outgoing interface, as upstream.
    #[default]
    OutgoingInterface,
    /// The node's primary address of each family.
    Primary,
    /// At most one address per family. A family without one uses the outgoing interface's.
    Addresses(Vec<IpAddr>),
}

impl MasqueradeSource {
    pub fn is_chosen(&self, family: Family) -> bool {
        match self {
            MasqueradeSource::OutgoingInterface => false,
            MasqueradeSource::Primary => true,
            MasqueradeSource::Addresses(all) => all.iter().any(|address| Family::of(address) == family),
        }
    }
}

/// Conntrack settings; zero keeps the kernel's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conntrack {
    pub max_per_core: u32,
    /// Lower bound of the table's size, if `max_per_core` is set.
    pub min: u32,
    pub tcp_established: Duration,
    pub tcp_close_wait: Duration,
    /// Timeout of UDP entries without a reply.
    pub udp: Duration,
    /// Timeout of UDP entries with replies.
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

/// The comments are help texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Variant {
    /// Use the variant that update-alternatives selects
    #[default]
    Auto,
    /// iptables-nft
    Nft,
    /// iptables-legacy
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
///
/// The comments are help texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum WriterChoice {
    /// By netlink where the tables are iptables-nft's, else by the commands
    #[default]
    Auto,
    /// By netlink; no command is run, and none needs to be installed
    Netlink,
    /// By iptables-restore
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipvs {
    pub scheduler: String,
    /// Ranges whose virtual servers the proxy does not delete (`excludeCIDRs`).
    pub exclude: Vec<IpNet>,
    /// `strictARP`: answer ARP only on the device that has the address.
    pub strict_arp: bool,
    pub timeouts: IpvsTimeouts,
    /// Limits how long a removed backend keeps its connections.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    /// Feature gate `AllowServiceExternalIPs`.
    pub service_external_ips: bool,
    pub flagz: bool,
    pub statusz: bool,
    /// Feature gate `KubeProxyNFTablesLocalhostNodePorts`.
    pub nftables_localhost_node_ports: bool,
}

impl Default for FeatureGates {
    fn default() -> FeatureGates {
        FeatureGates { service_external_ips: true, flagz: true, statusz: true, nftables_localhost_node_ports: true }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub mode: Mode,
    /// `--hostname-override`.
    pub node_name: String,
    pub detect_local: DetectLocal,
    pub masquerade_all: bool,
    /// Mark bit that requests masquerade, 0 to 31.
    pub masquerade_bit: u8,
    pub masquerade_source: MasqueradeSource,
    /// `noMasqueradeCIDRs`.
    pub no_masquerade: Vec<IpNet>,
    pub node_port_addresses: NodePortAddresses,
    /// Node ports on 127.0.0.1 (IPv4 only; needs `route_localnet`).
    pub localhost_node_ports: bool,
    /// Whether a rule counts connections to node ports on 127.0.0.1 (`iptables.countLocalhostNodePorts`).
    pub count_localhost_node_ports: bool,
    /// `nf_conntrack_tcp_be_liberal`: conntrack accepts out-of-window segments, so the proxy does not drop INVALID
    /// packets.
    pub tcp_be_liberal: bool,
    /// Longest time between two checks of the rules.
    pub sync_period: Duration,
    /// Shortest time between two syncs, except for a burst of two.
    pub min_sync_period: Duration,
    pub variant: Variant,
    pub writer: WriterChoice,
    /// The family that must be proxied (`bindAddress`); the other one is proxied only if the node supports it.
    pub primary_family: Family,
    /// Replaces the Node object's primary address (`bindAddress`).
    pub bind_address: Option<IpAddr>,
    pub bind_address_hard_fail: bool,
    pub healthz_bind_address: Option<SocketAddr>,
    pub metrics_bind_address: Option<SocketAddr>,
    /// The Services whose traffic is counted, if any (`--service-counters`).
    pub service_counters: Option<ServiceSelection>,
    /// From -1000 to 1000.
    pub oom_score_adj: i32,
    pub conntrack: Conntrack,
    pub ipvs: Ipvs,
    pub gates: FeatureGates,
    /// Listening ports of userspace mode (`portRange`).
    pub port_range: PortRange,
    /// Whether nftables mode uses a flowtable (`nftables.flowtable`).
    pub flowtable: bool,
    /// The fate of established connections, unless a Service's annotation asks for another one (`flowFate`).
    pub flow_fate: FlowFate,
    /// How endpoints are chosen, unless a Service's annotation asks for another way (`loadBalancing`).
    pub load_balancing: LoadBalancing,
    /// Whether the kernel has nftables' expression `hash`.
    pub kernel_hashes: bool,
    /// The annotations of Services that have an effect (`serviceAnnotations`).
    pub annotations: BTreeSet<ServiceAnnotation>,
    /// `stateFile`: the API's objects for a start without the API.
    pub state_file: Option<StateFile>,
    /// Whether the proxy ends when its configuration file changes (`restartOnConfigChange`).
    pub restart_on_config_change: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFile {
    pub path: PathBuf,
    /// An older file is ignored.
    pub max_age: Duration,
}

impl Config {
    pub fn for_node(node_name: impl Into<String>) -> Config {
        Config {
            mode: Mode::Iptables,
            node_name: node_name.into(),
            detect_local: DetectLocal::ClusterCidr(Vec::new()),
            masquerade_all: false,
            masquerade_bit: 14,
            masquerade_source: MasqueradeSource::OutgoingInterface,
            no_masquerade: Vec::new(),
            node_port_addresses: NodePortAddresses::All,
            localhost_node_ports: true,
            count_localhost_node_ports: false,
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
            service_counters: None,
            oom_score_adj: -999,
            conntrack: Conntrack::default(),
            ipvs: Ipvs::default(),
            gates: FeatureGates::default(),
            port_range: PortRange::default(),
            flowtable: false,
            flow_fate: FlowFate::Keep,
            load_balancing: LoadBalancing::Random,
            kernel_hashes: true,
            annotations: ServiceAnnotation::ALL.into(),
            state_file: None,
            restart_on_config_change: false,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// Addresses of this host, loopback included; sorted, without duplicates.
    pub local: Vec<IpAddr>,
    /// At most one address per family: the Node object's internal one if it exists.
    pub primary: Vec<IpAddr>,
    /// Families in which a receiving interface has no address, such as a pod's veth without a bridge.
    pub bare: Vec<Family>,
    /// Links that receive packets from outside, sorted.
    pub links: Vec<String>,
    /// Gateways of routes and remote ends of VXLAN tunnels; sorted, without duplicates. Empty if not needed.
    pub next_hops: Vec<IpAddr>,
    /// Addresses on `kube-ipvs0`, sorted. `None` if not needed.
    pub of_services: Option<Vec<IpAddr>>,
}

/// Timeouts of IPVS; zero keeps the kernel's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IpvsTimeouts {
    pub tcp: Duration,
    pub tcp_fin: Duration,
    pub udp: Duration,
}
