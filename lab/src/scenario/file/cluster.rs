use std::fmt;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::scenario::values::OneOrMany;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClusterFamily {
    #[default]
    Ipv4,
    Ipv6,
    Dual,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CniFile {
    #[default]
    Bridge,
    PointToPoint,
    /// A veth per pod, with routes, and the gateway's address on the node's end of every veth.
    Ptp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverlayFile {
    #[default]
    None,
    Vxlan,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReversePathFile {
    #[default]
    Off,
    Strict,
    Loose,
}

/// `cluster:` The descriptions are the table in docs/scenarios.md.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ClusterFile {
    #[schemars(description = "`ipv4` (default), `ipv6` or `dual` (IPv4 primary)")]
    pub family: ClusterFamily,
    #[schemars(
        description = "`bridge` (default: a bridge per node, hairpin ports, bridged packets pass iptables), `point-to-point` (a veth per pod, with routes), or `ptp` (a veth per pod, with the gateway's address on the node's end of every veth, as the plugin of that name and kind's kindnet do)"
    )]
    pub cni: CniFile,
    #[schemars(
        description = "`none` (default: nodes have routes to each other's pods), or `vxlan`: a device `flannel.1` on every node, with the first address of its pod range, carries pods' packets between nodes in UDP, with an MTU of 1430"
    )]
    pub overlay: OverlayFile,
    #[schemars(
        description = "`true`: nodes have an interface `eth1` on a second segment (`172.19.0.0/24`, `fd00:172:19::/64`, with the same number as on `nodeNetwork`), their routes to each other's pods use that segment, and their Node objects do not name it; not with an overlay; default `false`"
    )]
    #[schemars(with = "Option<bool>")]
    pub second_network: Option<Spanned<bool>>,
    #[schemars(
        description = "the nodes' `rp_filter`: `off` (default), `loose` (a route back exists) or `strict` (a route back by the interface that the packet arrived on)"
    )]
    pub reverse_path: ReversePathFile,
    #[schemars(
        description = "how many (`node-a`, `node-b`, …), or a list of `{name, zone, address, extraAddresses, podCIDR}`; default `2`"
    )]
    #[schemars(with = "Option<Nodes>")]
    pub nodes: Option<Spanned<Nodes>>,
    #[schemars(
        description = "hosts outside the cluster, on the nodes' network: names, or `{name, address}`; default none"
    )]
    #[schemars(with = "Vec<ClientFile>")]
    pub clients: Vec<Spanned<ClientFile>>,
    #[schemars(
        description = "the name of a client: the Kubernetes API listens there, on the nodes' network; default: on 127.0.0.1 of every node"
    )]
    #[schemars(with = "Option<String>")]
    pub api_server: Option<Spanned<String>>,
    #[schemars(
        description = "`true`: a cloud load balancer, which sends to the nodes whose `/healthz` answers 200: at the service's `healthCheckNodePort` under external policy `Local`, else at port 10256, over the family of the address; default `false`"
    )]
    pub load_balancer: bool,
    #[schemars(
        description = "the range of all pods, of which each node gets a /24 (/64); default `10.244.0.0/16`, `fd00:10:244::/56`"
    )]
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<OneOrMany<Net>>,
    #[schemars(description = "the range of cluster IPs; default `10.96.0.0/16`, `fd00:10:96::/112`")]
    #[serde(rename = "serviceCIDR")]
    pub service_cidr: Option<OneOrMany<Net>>,
    #[schemars(description = "the range of nodes and clients; default `172.18.0.0/24`, `fd00:172:18::/64`")]
    pub node_network: Option<OneOrMany<Net>>,
    #[schemars(description = "like the flag of the EndpointSlice controller; default `100`")]
    #[schemars(with = "Option<usize>")]
    pub max_endpoints_per_slice: Option<Spanned<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Net(pub IpNet);

impl std::str::FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Net).map_err(|_| format!("{text:?}: expected a range such as 10.244.0.0/16"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip(pub std::net::IpAddr);

impl std::str::FromStr for Ip {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Ip).map_err(|_| format!("{text:?}: expected an IP address"))
    }
}

/// `nodes: 3` or a list.
#[derive(Debug)]
pub enum Nodes {
    /// The number of nodes, which are named `node-a`, `node-b`, …
    Count(u64),
    Listed(Vec<Spanned<NodeFile>>),
}

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NodesVisitor;
        impl<'de> serde::de::Visitor<'de> for NodesVisitor {
            type Value = Nodes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of nodes, or a list of them")
            }

            fn visit_u64<E>(self, count: u64) -> Result<Nodes, E> {
                Ok(Nodes::Count(count))
            }

            fn visit_i64<E: serde::de::Error>(self, count: i64) -> Result<Nodes, E> {
                u64::try_from(count).map(Nodes::Count).map_err(|_| E::custom("expected a number of nodes from 1 on"))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, sequence: A) -> Result<Nodes, A::Error> {
                Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(sequence)).map(Nodes::Listed)
            }
        }
        deserializer.deserialize_any(NodesVisitor)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeFile {
    /// The node's name.
    pub name: String,
    /// The node's zone, its label `topology.kubernetes.io/zone`; default: none.
    pub zone: Option<String>,
    /// The node's address on `nodeNetwork`, or a list of one per family; default: `.2`, `.3`, ….
    pub address: Option<OneOrMany<Ip>>,
    /// Further addresses of the node's interface; default: none.
    pub extra_addresses: Option<OneOrMany<Ip>>,
    /// The range of the node's pods, or a list of one per family; default: a /24 (/64) of `podCIDR`.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<OneOrMany<Net>>,
}

/// One of `clients:`: a name, or a name with an address.
#[derive(Debug)]
pub struct ClientFile {
    pub name: String,
    pub address: Option<OneOrMany<Ip>>,
}

impl<'de> Deserialize<'de> for ClientFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ClientMap {
            name: String,
            address: Option<OneOrMany<Ip>>,
        }
        struct ClientVisitor;
        impl<'de> serde::de::Visitor<'de> for ClientVisitor {
            type Value = ClientFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a client's name, or {name, address}")
            }

            fn visit_str<E>(self, name: &str) -> Result<ClientFile, E> {
                Ok(ClientFile { name: name.to_owned(), address: None })
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<ClientFile, A::Error> {
                let full = ClientMap::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(ClientFile { name: full.name, address: full.address })
            }
        }
        deserializer.deserialize_any(ClientVisitor)
    }
}
