//! Everything that is known of a node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde::{Deserialize, Serialize};

use crate::network::Network;

/// A node at one moment. What could not be read is `None` or empty, and listed in `unread`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The node's host name.
    pub host: String,
    /// When it was taken, in RFC 3339 and UTC.
    pub taken: String,
    /// The kernel's release (`uname -r`).
    pub kernel: String,
    /// Versions of programs, by their names.
    pub versions: BTreeMap<String, String>,
    /// What `iptables-nft-save -c` prints.
    pub nft_v4: Option<String>,
    /// What `ip6tables-nft-save -c` prints.
    pub nft_v6: Option<String>,
    /// What `iptables-legacy-save -c` prints.
    pub legacy_v4: Option<String>,
    /// What `ip6tables-legacy-save -c` prints.
    pub legacy_v6: Option<String>,
    /// What `nft -j list ruleset` prints.
    pub nft: Option<String>,
    /// What `ipset save` prints.
    pub sets: Option<String>,
    /// What `ipvsadm -Sn` prints.
    pub servers: Option<String>,
    /// Interfaces, addresses, routes and neighbours.
    pub network: Option<Network>,
    /// Where programs of the node's own network wait.
    pub sockets: Option<Vec<Socket>>,
    /// Kernel settings by their names with dots (`net.ipv4.conf.eth0.rp_filter`).
    pub sysctls: BTreeMap<String, String>,
    /// Entries and limit of the connection table, and its statistics, by name.
    pub conntrack: BTreeMap<String, u64>,
    /// What the API holds.
    pub objects: Option<Objects>,
    /// The name of this node's Node object, if it is known.
    pub node_name: Option<String>,
    /// The proxy's configuration: a `KubeProxyConfiguration` in YAML or JSON.
    pub proxy_config: Option<String>,
    /// What could not be read, and why.
    pub unread: Vec<Unread>,
    /// How a part was read where it was not the usual way, by its path in an archive (`rules/ipvs`: `/proc/net/ip_vs`).
    pub sources: BTreeMap<String, String>,
}

/// Objects that a service proxy works from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Objects {
    /// Services.
    pub services: Vec<Service>,
    /// EndpointSlices.
    pub slices: Vec<EndpointSlice>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// ServiceCIDRs.
    pub service_cidrs: Vec<ServiceCIDR>,
}

/// A socket that waits for what comes: a listening one of TCP, an unconnected one of UDP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Socket {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Its address; an unspecified one is every address of the family, `::` as a rule of both.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}
