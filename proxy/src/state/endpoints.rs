//! EndpointSlices as one address family sees them: compact, and merged over a Service's slices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::service::{LABEL_HEADLESS, LABEL_PROXY_NAME};
use crate::model::{Family, Protocol, parse_ip};

/// Names the Service that a slice belongs to
/// (<https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetesioservice-name>).
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";

/// One endpoint of one service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Address and port that packets go to.
    pub address: SocketAddr,
    /// It runs on this node.
    pub local: bool,
    /// May get new connections.
    pub ready: bool,
    /// Answers, whether or not it is terminating.
    pub serving: bool,
    /// Is shutting down.
    pub terminating: bool,
    /// Zones that should use it (`hints.forZones`).
    pub zone_hints: BTreeSet<String>,
    /// Nodes that should use it (`hints.forNodes`).
    pub node_hints: BTreeSet<String>,
}

/// A slice, reduced to what the proxy uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Name of the Service it belongs to.
    pub service: String,
    // A large cluster has tens of thousands of endpoints: boxed slices have no spare room, and hints are rare.
    ports: Box<[(String, Protocol, u16)]>,
    endpoints: Box<[SliceEndpoint]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SliceEndpoint {
    address: IpAddr,
    local: bool,
    ready: bool,
    serving: bool,
    terminating: bool,
    hints: Option<Box<Hints>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Hints {
    zones: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

impl SliceEndpoint {
    fn at(&self, port: u16) -> Endpoint {
        let hints = self.hints.as_deref().cloned().unwrap_or_default();
        Endpoint {
            address: SocketAddr::new(self.address, port),
            local: self.local,
            ready: self.ready,
            serving: self.serving,
            terminating: self.terminating,
            zone_hints: hints.zones,
            node_hints: hints.nodes,
        }
    }
}

impl Slice {
    /// Reads a slice; `None` if it is of another family, of another proxy, or belongs to no Service.
    pub fn read(slice: &EndpointSlice, family: Family, node_name: &str) -> Option<Slice> {
        let labels = slice.metadata.labels.as_ref()?;
        if slice.address_type != family.as_str()
            || labels.contains_key(LABEL_PROXY_NAME)
            || labels.contains_key(LABEL_HEADLESS)
        {
            return None;
        }
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            let number = port.port.and_then(|p| u16::try_from(p).ok()).filter(|p| *p != 0)?;
            Some((port.name.clone().unwrap_or_default(), Protocol::from_api(port.protocol.as_deref())?, number))
        });
        let endpoints = slice.endpoints.iter().flatten().filter_map(|endpoint| {
            // Only the first address counts: the API calls further ones an undefined extension.
            let address = parse_ip(endpoint.addresses.first()?).filter(|ip| Family::of(ip) == family)?;
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            // A missing condition means: ready; serving as ready; not terminating (EndpointConditions' documentation).
            let ready = conditions.ready.unwrap_or(true);
            let hints = endpoint.hints.clone().map(|hints| {
                Box::new(Hints {
                    zones: hints.for_zones.into_iter().flatten().map(|zone| zone.name).collect(),
                    nodes: hints.for_nodes.into_iter().flatten().map(|node| node.name).collect(),
                })
            });
            Some(SliceEndpoint {
                address,
                local: endpoint.node_name.as_deref() == Some(node_name),
                ready,
                serving: conditions.serving.unwrap_or(ready),
                terminating: conditions.terminating.unwrap_or(false),
                hints,
            })
        });
        Some(Slice {
            service: labels.get(LABEL_SERVICE_NAME)?.clone(),
            ports: ports.collect(),
            endpoints: endpoints.collect(),
        })
    }
}

/// The endpoints of one service port over all slices of its Service, sorted by address. An address that several
/// slices list counts once; a copy on this node wins, as upstream has it.
pub fn merge<'a>(slices: impl Iterator<Item = &'a Slice>, port_name: &str, protocol: Protocol) -> Vec<Endpoint> {
    let mut merged: BTreeMap<SocketAddr, Endpoint> = BTreeMap::new();
    for slice in slices {
        let ports = slice.ports.iter().filter(|(name, p, _)| name == port_name && *p == protocol);
        for (_, _, number) in ports {
            for endpoint in &*slice.endpoints {
                let address = SocketAddr::new(endpoint.address, *number);
                let known = merged.get(&address);
                if known.is_none_or(|known| !known.local && endpoint.local) {
                    merged.insert(address, endpoint.at(*number));
                }
            }
        }
    }
    merged.into_values().collect()
}
