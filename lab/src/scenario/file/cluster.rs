//! `cluster:`, key by key.

use std::fmt;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::scenario::values::OneOrMany;

/// Which IP families the cluster has; the first is the primary one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4 only.
    #[default]
    Ipv4,
    /// IPv6 only.
    Ipv6,
    /// IPv4 primary, IPv6 secondary.
    Dual,
}
/// How pods are wired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CniFile {
    /// A bridge per node.
    #[default]
    Bridge,
    /// A veth per pod, with routes.
    PointToPoint,
    /// The same, and the gateway's address on every node's end.
    Ptp,
}

/// What carries pods' packets between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverlayFile {
    /// Routes.
    #[default]
    None,
    /// VXLAN.
    Vxlan,
}
/// What nodes ask of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReversePathFile {
    /// Nothing.
    #[default]
    Off,
    /// RFC 3704, strict.
    Strict,
    /// RFC 3704, loose.
    Loose,
}

/// `cluster:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ClusterFile {
    pub family: Family,
    pub cni: CniFile,
    pub overlay: OverlayFile,
    #[schemars(with = "Option<bool>")]
    pub second_network: Option<Spanned<bool>>,
    pub reverse_path: ReversePathFile,
    #[schemars(with = "Option<Nodes>")]
    pub nodes: Option<Spanned<Nodes>>,
    #[schemars(with = "Vec<ClientFile>")]
    pub clients: Vec<Spanned<ClientFile>>,
    pub load_balancer: bool,
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<OneOrMany<Net>>,
    #[serde(rename = "serviceCIDR")]
    pub service_cidr: Option<OneOrMany<Net>>,
    pub node_network: Option<OneOrMany<Net>>,
    #[schemars(with = "Option<usize>")]
    pub max_endpoints_per_slice: Option<Spanned<usize>>,
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Net(pub IpNet);

impl std::str::FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Net).map_err(|_| format!("{text:?}: expected a range such as 10.244.0.0/16"))
    }
}

/// An address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip(pub std::net::IpAddr);

impl std::str::FromStr for Ip {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Ip).map_err(|_| format!("{text:?}: expected an IP address"))
    }
}

impl<'de> Deserialize<'de> for Net {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Ip {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// `nodes: 3` or a list.
#[derive(Debug)]
pub enum Nodes {
    /// That many, named `node-a`, `node-b`, …
    Count(u64),
    /// These.
    Listed(Vec<Spanned<NodeFile>>),
}

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
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
        deserializer.deserialize_any(Visitor)
    }
}

/// One of `nodes:`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeFile {
    pub name: String,
    pub zone: Option<String>,
    pub address: Option<OneOrMany<Ip>>,
    pub extra_addresses: Option<OneOrMany<Ip>>,
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
        struct Full {
            name: String,
            address: Option<OneOrMany<Ip>>,
        }
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = ClientFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a client's name, or {name, address}")
            }

            fn visit_str<E>(self, name: &str) -> Result<ClientFile, E> {
                Ok(ClientFile { name: name.to_owned(), address: None })
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<ClientFile, A::Error> {
                let full = Full::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(ClientFile { name: full.name, address: full.address })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
