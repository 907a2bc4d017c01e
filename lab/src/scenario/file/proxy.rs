//! `proxy:`

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Net;
use crate::scenario::values::{OneOrMany, PlainText, TimeSpan};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ProxyFile {
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: Option<OneOrMany<Net>>,
    pub detect_local_mode: Option<DetectLocalMode>,
    pub detect_local: DetectLocalFile,
    pub node_port_addresses: Option<OneOrMany<PlainText>>,
    #[serde(rename = "noMasqueradeCIDRs")]
    pub no_masquerade_cidrs: Option<OneOrMany<Net>>,
    pub masquerade_source: Option<String>,
    pub iptables: IptablesFile,
    pub ipvs: IpvsFile,
    pub nftables: NftablesFile,
    pub conntrack: ConntrackFile,
    pub feature_gates: BTreeMap<String, bool>,
    pub state_file: bool,
    /// The Services whose traffic svcproxy counts, as `--service-counters` takes them.
    pub service_counters: Option<PlainText>,
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
    pub bridge_interface: Option<String>,
    pub interface_name_prefix: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct IptablesFile {
    pub masquerade_all: Option<bool>,
    pub masquerade_bit: Option<u8>,
    pub localhost_node_ports: Option<bool>,
    pub count_localhost_node_ports: Option<bool>,
    pub sync_period: Option<TimeSpan>,
    pub min_sync_period: Option<TimeSpan>,
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
    pub scheduler: Option<Scheduler>,
    #[serde(rename = "strictARP")]
    pub strict_arp: Option<bool>,
    pub drain_limit: Option<TimeSpan>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NftablesFile {
    pub flowtable: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ConntrackFile {
    pub tcp_be_liberal: Option<bool>,
    pub tcp_established_timeout: Option<TimeSpan>,
    pub udp_timeout: Option<TimeSpan>,
}
