//! The settings of the proxies that a promise depends on, in the words of a `KubeProxyConfiguration`.

use ipnet::IpNet;

use crate::address::Family;

/// The proxy mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Rules of iptables.
    #[default]
    Iptables,
    /// Virtual servers of IPVS.
    Ipvs,
    /// Elements of nftables' maps.
    Nftables,
    /// The proxy itself relays.
    Userspace,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 4] = [Mode::Iptables, Mode::Ipvs, Mode::Nftables, Mode::Userspace];

    /// As `mode:` and scenario files have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Iptables => "iptables",
            Mode::Ipvs => "ipvs",
            Mode::Nftables => "nftables",
            Mode::Userspace => "userspace",
        }
    }
}

/// `detectLocalMode` with its value: how a node tells its pods from others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DetectLocalMode {
    /// It does not: no range was given.
    #[default]
    Off,
    /// Who has an address in the cluster's pod ranges, at most one per family.
    ClusterCidr(Vec<IpNet>),
    /// Who has an address in this node's `spec.podCIDRs`.
    NodeCidr,
    /// Who comes in through this bridge.
    BridgeInterface(String),
    /// Who comes in through an interface whose name begins like this.
    InterfaceNamePrefix(String),
}

/// One entry of `nodePortAddresses`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodePortAddress {
    /// Addresses in this range.
    Range(IpNet),
    /// The addresses that the Node object names first.
    Primary,
    /// The loopback addresses.
    Localhost,
    /// Every address of the node.
    All,
}

/// `ipvs.scheduler`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheduler {
    /// Round robin; the default.
    #[default]
    RoundRobin,
    /// Weighted round robin: as all weights are equal, the same.
    WeightedRoundRobin,
    /// `lc`, `wlc`, `sed`, `nq`: who has the fewest connections.
    LeastConnections,
    /// `lblc`, `lblcr`: one backend for each address that is called, until it has too many connections.
    Locality,
    /// `dh`: a hash of the address that is called.
    DestinationHash,
    /// `sh`: a hash of the client's address.
    SourceHash,
    /// `mh`: a hash of the client's address and port.
    Maglev,
}

/// The settings of every node's proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySettings {
    /// `mode`.
    pub mode: Mode,
    /// `detectLocalMode` and what belongs to it.
    pub detect_local: DetectLocalMode,
    /// `iptables.masqueradeAll`.
    pub masquerade_all: bool,
    /// `nodePortAddresses`; empty: every address, in nftables mode the primary ones.
    pub node_port_addresses: Vec<NodePortAddress>,
    /// `iptables.localhostNodePorts`.
    pub localhost_node_ports: bool,
    /// `ipvs.scheduler`.
    pub scheduler: Scheduler,
    /// The feature gate `AllowServiceExternalIPs` (KEP-5707): without it `externalIPs` are not looked at.
    pub external_ips: bool,
}

impl Default for ProxySettings {
    /// kube-proxy's defaults.
    fn default() -> Self {
        ProxySettings {
            mode: Mode::default(),
            detect_local: DetectLocalMode::default(),
            masquerade_all: false,
            node_port_addresses: Vec::new(),
            localhost_node_ports: true,
            scheduler: Scheduler::default(),
            external_ips: true,
        }
    }
}

impl ProxySettings {
    /// The entries of `nodePortAddresses` that say something about `family`.
    pub(crate) fn node_port_addresses(&self, family: Family) -> impl Iterator<Item = NodePortAddress> + '_ {
        self.node_port_addresses.iter().copied().filter(move |entry| match entry {
            NodePortAddress::Range(range) => Family::of_range(*range) == family,
            NodePortAddress::Primary | NodePortAddress::Localhost | NodePortAddress::All => true,
        })
    }
}
