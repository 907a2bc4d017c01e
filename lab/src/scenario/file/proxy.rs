//! `proxy:`, key by key.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Net;
use crate::scenario::values::{OneOrMany, Span, Text};

/// `proxy:`, in the words of a KubeProxyConfiguration.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ProxyFile {
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: Option<OneOrMany<Net>>,
    pub detect_local_mode: Option<DetectLocalMode>,
    pub detect_local: DetectLocalFile,
    pub node_port_addresses: Option<OneOrMany<Text>>,
    pub iptables: IptablesFile,
    pub ipvs: IpvsFile,
    pub nftables: NftablesFile,
    pub conntrack: ConntrackFile,
    pub feature_gates: BTreeMap<String, bool>,
}

/// How the proxy tells its node's pods from others.
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

/// `proxy.detectLocal:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct DetectLocalFile {
    pub bridge_interface: Option<String>,
    pub interface_name_prefix: Option<String>,
}

/// `proxy.iptables:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct IptablesFile {
    pub masquerade_all: Option<bool>,
    pub masquerade_bit: Option<u8>,
    pub localhost_node_ports: Option<bool>,
    pub sync_period: Option<Span>,
    pub min_sync_period: Option<Span>,
    pub writer: Option<Writer>,
}

/// How svcproxy writes the tables of iptables-nft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Writer {
    /// By netlink.
    Netlink,
    /// With the commands.
    Commands,
}

/// Who gets the next connection in IPVS mode: the kernel's schedulers that kube-proxy knows, by ipvsadm(8)'s names.
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

/// `proxy.ipvs:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct IpvsFile {
    pub scheduler: Option<Scheduler>,
    #[serde(rename = "strictARP")]
    pub strict_arp: Option<bool>,
    pub drain_limit: Option<Span>,
}

/// `proxy.nftables:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NftablesFile {
    pub flowtable: Option<bool>,
}

/// `proxy.conntrack:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ConntrackFile {
    pub tcp_be_liberal: Option<bool>,
    pub tcp_established_timeout: Option<Span>,
    pub udp_timeout: Option<Span>,
}
