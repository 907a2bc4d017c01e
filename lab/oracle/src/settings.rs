//! The settings of `KubeProxyConfiguration` that affect promises.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::address::Family;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    #[default]
    Iptables,
    Ipvs,
    Nftables,
    Userspace,
    /// Another project's proxy: only what Kubernetes promises of every proxy.
    Other,
}

impl Mode {
    /// kube-proxy's modes.
    pub const ALL: [Mode; 4] = [Mode::Iptables, Mode::Ipvs, Mode::Nftables, Mode::Userspace];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Iptables => "iptables",
            Mode::Ipvs => "ipvs",
            Mode::Nftables => "nftables",
            Mode::Userspace => "userspace",
            Mode::Other => "other",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DetectLocalMode {
    /// No range is set, so nodes cannot recognize pods.
    #[default]
    Off,
    /// The cluster's pod ranges, at most one per family.
    ClusterCidr(Vec<IpNet>),
    /// The node's `spec.podCIDRs`.
    NodeCidr,
    BridgeInterface(String),
    InterfaceNamePrefix(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodePortAddress {
    Range(IpNet),
    /// The primary addresses of the Node object.
    Primary,
    Localhost,
    All,
}

impl fmt::Display for NodePortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodePortAddress::Range(range) => write!(f, "{range}"),
            NodePortAddress::Primary => f.write_str("primary"),
            NodePortAddress::Localhost => f.write_str("localhost"),
            NodePortAddress::All => f.write_str("all"),
        }
    }
}

/// `ipvs.scheduler`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheduler {
    #[default]
    RoundRobin,
    /// The same as round robin: all weights are equal.
    WeightedRoundRobin,
    /// `lc`, `wlc`, `sed`, `nq`: the fewest connections.
    LeastConnections,
    /// `lblc`, `lblcr`.
    Locality,
    /// `dh`.
    DestinationHash,
    /// `sh`.
    SourceHash,
    /// `mh`: a hash of client address and port.
    Maglev,
}

impl Scheduler {
    pub fn name(self) -> &'static str {
        match self {
            Scheduler::RoundRobin => "rr",
            Scheduler::WeightedRoundRobin => "wrr",
            Scheduler::LeastConnections => "lc",
            Scheduler::Locality => "lblc",
            Scheduler::DestinationHash => "dh",
            Scheduler::SourceHash => "sh",
            Scheduler::Maglev => "mh",
        }
    }
}

/// svcproxy's `masqueradeSource`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MasqueradeSource {
    /// Any of the node's addresses: the kernel chooses by the outgoing interface.
    #[default]
    OutgoingInterface,
    /// The primary addresses of the Node object.
    Primary,
    /// At most one address per family.
    Addresses(Vec<IpAddr>),
}

/// The value of the field.
impl fmt::Display for MasqueradeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MasqueradeSource::OutgoingInterface => Ok(()),
            MasqueradeSource::Primary => f.write_str("primary"),
            MasqueradeSource::Addresses(all) => {
                let texts: Vec<String> = all.iter().map(IpAddr::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

/// svcproxy's `loadBalancing`, and the annotation `svcproxy/load-balancing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadBalancing {
    #[default]
    Random,
    /// By the client's address.
    Maglev,
    /// By the client's address and port.
    MaglevPort,
}

impl LoadBalancing {
    pub fn named(name: &str) -> Option<LoadBalancing> {
        match name {
            "random" => Some(LoadBalancing::Random),
            "maglev" => Some(LoadBalancing::Maglev),
            "maglev-port" => Some(LoadBalancing::MaglevPort),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySettings {
    pub mode: Mode,
    pub detect_local: DetectLocalMode,
    pub masquerade_all: bool,
    pub masquerade_source: MasqueradeSource,
    /// `noMasqueradeCIDRs` (KEP-6246).
    pub no_masquerade: Vec<IpNet>,
    /// Empty: every address; in nftables mode the primary addresses.
    pub node_port_addresses: Vec<NodePortAddress>,
    pub localhost_node_ports: bool,
    pub scheduler: Scheduler,
    pub load_balancing: LoadBalancing,
    /// The feature gate `AllowServiceExternalIPs` (KEP-5707); if it is off, the proxy ignores `externalIPs`.
    pub external_ips: bool,
}

impl Default for ProxySettings {
    fn default() -> Self {
        ProxySettings {
            mode: Mode::default(),
            detect_local: DetectLocalMode::default(),
            masquerade_all: false,
            masquerade_source: MasqueradeSource::default(),
            no_masquerade: Vec::new(),
            node_port_addresses: Vec::new(),
            localhost_node_ports: true,
            scheduler: Scheduler::default(),
            load_balancing: LoadBalancing::default(),
            external_ips: true,
        }
    }
}

impl ProxySettings {
    /// Returns the entries of `noMasqueradeCIDRs` that the mode accepts.
    pub fn exempt_ranges(&self) -> &[IpNet] {
        match self.mode {
            Mode::Iptables | Mode::Nftables => &self.no_masquerade,
            Mode::Ipvs | Mode::Userspace | Mode::Other => &[],
        }
    }

    /// Returns `masqueradeSource` if the mode accepts it.
    pub fn chosen_source(&self) -> &MasqueradeSource {
        match self.mode {
            Mode::Userspace | Mode::Other => &MasqueradeSource::OutgoingInterface,
            Mode::Iptables | Mode::Ipvs | Mode::Nftables => &self.masquerade_source,
        }
    }

    /// Returns how endpoints of a Service are chosen whose annotation asks for `asked`.
    pub(crate) fn balancing(&self, asked: Option<LoadBalancing>) -> LoadBalancing {
        let asked = asked.unwrap_or(self.load_balancing);
        if self.mode == Mode::Nftables { asked } else { LoadBalancing::Random }
    }

    pub(crate) fn node_port_addresses(&self, family: Family) -> impl Iterator<Item = NodePortAddress> + '_ {
        self.node_port_addresses.iter().copied().filter(move |entry| match entry {
            NodePortAddress::Range(range) => Family::of_range(*range) == family,
            NodePortAddress::Primary | NodePortAddress::Localhost | NodePortAddress::All => true,
        })
    }
}
