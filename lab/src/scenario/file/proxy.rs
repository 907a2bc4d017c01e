//! `proxy:`

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Net;
use crate::scenario::values::{OneOrMany, PlainText, TimeSpan};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ProxyFile {
    /// The range of all pods, or a list of one per family; default: the cluster's pod range.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: Option<OneOrMany<Net>>,
    /// How the proxy recognises the pods of its node; default `ClusterCIDR`.
    pub detect_local_mode: Option<DetectLocalMode>,
    /// The names for the modes `BridgeInterface` and `InterfaceNamePrefix`.
    pub detect_local: DetectLocalFile,
    /// The node's addresses that have node ports: a range, `primary`, `localhost` or `all`, or a list; default:
    /// kube-proxy's of the mode.
    pub node_port_addresses: Option<OneOrMany<PlainText>>,
    /// Ranges of endpoints to which the node's own calls of Services keep their source address, one or a list; default:
    /// none.
    #[serde(rename = "noMasqueradeCIDRs")]
    pub no_masquerade_cidrs: Option<OneOrMany<Net>>,
    /// The source address of masqueraded packets: `primary`, or an address per family, separated by commas; svcproxy's;
    /// default: an address of the outgoing interface.
    pub masquerade_source: Option<String>,
    /// Settings of iptables mode; some apply to other modes, too.
    pub iptables: IptablesFile,
    /// Settings of IPVS mode.
    pub ipvs: IpvsFile,
    /// Settings of nftables mode.
    pub nftables: NftablesFile,
    /// Settings of connection tracking.
    pub conntrack: ConntrackFile,
    /// Feature gates by name, `true` or `false`; default: kube-proxy's.
    pub feature_gates: BTreeMap<String, bool>,
    /// `true`: svcproxy keeps the API's objects in `/run/svclab/state/NODE`; default `false`.
    pub state_file: bool,
    /// `true`: svcproxy ends when its configuration file changes, as kube-proxy always does; default `false`.
    pub restart_on_config_change: bool,
    /// The Services whose traffic svcproxy counts, as `--service-counters` takes them; default: none.
    pub service_counters: Option<PlainText>,
    /// What becomes of open connections to a lost endpoint: `keep`, `reset` or `drain=TIME`; svcproxy's; default
    /// `keep`.
    pub flow_fate: Option<PlainText>,
    /// How a new connection's endpoint is chosen: `random`, `maglev` or `maglev-port`; svcproxy's; default `random`.
    pub load_balancing: Option<PlainText>,
    /// The annotations of Services that have an effect, without the prefix `svcproxy/`, one or a list; svcproxy's;
    /// default: all.
    pub service_annotations: Option<OneOrMany<PlainText>>,
}

/// How the proxy recognises the pods of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum DetectLocalMode {
    /// By the cluster's pod range.
    ClusterCIDR,
    /// By the node's pod range.
    NodeCIDR,
    /// By the bridge that packets come from.
    BridgeInterface,
    /// By the name of the interface that packets come from.
    InterfaceNamePrefix,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct DetectLocalFile {
    /// The bridge of the node's pods.
    pub bridge_interface: Option<String>,
    /// The start of the names of the pods' interfaces.
    pub interface_name_prefix: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct IptablesFile {
    /// `true`: the source of every packet to a cluster IP is masqueraded; default `false`.
    pub masquerade_all: Option<bool>,
    /// The bit of the packet mark that asks for masquerading, 0 to 31; default 14.
    pub masquerade_bit: Option<u8>,
    /// Whether node ports answer on loopback addresses; default `true`.
    pub localhost_node_ports: Option<bool>,
    /// Whether packets to node ports on loopback addresses are counted; svcproxy's; default `false`.
    pub count_localhost_node_ports: Option<bool>,
    /// The longest time between two checks of the whole state, in every mode; default `30s`.
    pub sync_period: Option<TimeSpan>,
    /// The least time between two syncs, in every mode; default `1ms` in a lab.
    pub min_sync_period: Option<TimeSpan>,
    /// How svcproxy writes the tables of iptables-nft: `netlink` or `commands`; default: `netlink` where it works.
    pub writer: Option<IptablesWriter>,
}

/// How svcproxy writes the tables of iptables-nft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IptablesWriter {
    Netlink,
    Commands,
}

/// The IPVS schedulers that kube-proxy knows, by ipvsadm(8)'s names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    Rr,
    Wrr,
    Lc,
    Wlc,
    Lblc,
    Lblcr,
    Dh,
    Sh,
    Sed,
    Nq,
    Mh,
}

impl std::fmt::Display for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct IpvsFile {
    /// The scheduler of virtual servers; default `rr`.
    pub scheduler: Option<Scheduler>,
    /// `true`: the node does not answer ARP requests for cluster IPs; default `false`.
    #[serde(rename = "strictARP")]
    pub strict_arp: Option<bool>,
    /// The longest that a removed backend keeps its connections; svcproxy's; default `15m`.
    pub drain_limit: Option<TimeSpan>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NftablesFile {
    /// `true`: a flowtable forwards connections of more than 20 packets; svcproxy's; default `false`.
    pub flowtable: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ConntrackFile {
    /// `true`: conntrack accepts packets outside the window of a TCP connection; default `false`.
    pub tcp_be_liberal: Option<bool>,
    /// How long conntrack keeps an idle TCP connection; default: kube-proxy's, `24h`.
    pub tcp_established_timeout: Option<TimeSpan>,
    /// How long conntrack keeps a UDP flow without an answer; default: the kernel's.
    pub udp_timeout: Option<TimeSpan>,
}
