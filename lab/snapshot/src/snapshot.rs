//! The state of a node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde::{Deserialize, Serialize};

use crate::bpf::AttachedProgram;
use crate::network::Network;

/// Unreadable parts are `None` or empty, and listed in `unread`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The node's host name.
    pub host: String,
    /// The time of collection, in RFC 3339 and UTC.
    pub taken: String,
    /// The kernel's release (`uname -r`).
    pub kernel: String,
    /// Versions by program.
    pub versions: BTreeMap<String, String>,
    /// Output of `iptables-nft-save -c`.
    pub nft_v4: Option<String>,
    /// Output of `ip6tables-nft-save -c`.
    pub nft_v6: Option<String>,
    /// Output of `iptables-legacy-save -c`.
    pub legacy_v4: Option<String>,
    /// Output of `ip6tables-legacy-save -c`.
    pub legacy_v6: Option<String>,
    /// Output of `nft -j list ruleset`.
    pub nft: Option<String>,
    /// Output of `ipset save`.
    pub sets: Option<String>,
    /// Output of `ipvsadm -Sn`.
    pub servers: Option<String>,
    /// Interfaces, addresses, routes and neighbours.
    pub network: Option<Network>,
    /// Programs on the paths of packets and calls; `None` also in archives of versions that did not list them.
    pub programs: Option<Vec<AttachedProgram>>,
    /// Listening sockets of the network namespace.
    pub sockets: Option<Vec<ListeningSocket>>,
    /// Kernel settings by dotted names (`net.ipv4.conf.eth0.rp_filter`).
    pub sysctls: BTreeMap<String, String>,
    /// Entries, limit and statistics of the connection table, by name.
    pub conntrack: BTreeMap<String, u64>,
    /// Objects of the Kubernetes API.
    pub objects: Option<Objects>,
    /// The name of this node's Node object.
    pub node_name: Option<String>,
    /// The proxy's `KubeProxyConfiguration` in YAML or JSON.
    pub proxy_config: Option<String>,
    /// Parts that could not be read, with reasons.
    pub unread: Vec<Unread>,
    /// Unusual sources of files, by path in the archive (`rules/ipvs`: `/proc/net/ip_vs`).
    pub sources: BTreeMap<String, String>,
}

/// Objects that a service proxy reads.
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

/// A listening TCP socket or an unconnected UDP socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListeningSocket {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The local address. An unspecified one means every address of the family; `::` usually of both families.
    pub address: IpAddr,
    /// The socket's port.
    pub port: u16,
}

/// A part that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// The part.
    pub what: String,
    /// The reason.
    pub why: String,
}
