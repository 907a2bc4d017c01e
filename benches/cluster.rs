//! Clusters of a given size. One of ten Services has a node port, one is over UDP, the others have a cluster IP over TCP.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use svcproxy::model::{Change, ObjectKey};

pub const PORT: u16 = 80;
/// The index of the Service with a node port among ten, until the range is used up.
const NODE_PORT: u32 = 5;
/// The default of kube-apiserver's `--service-node-port-range`.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
const UDP: u32 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClusterSize {
    pub services: u32,
    pub endpoints: u32,
}

impl fmt::Display for ClusterSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.services, self.endpoints)
    }
}

impl FromStr for ClusterSize {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<ClusterSize> {
        let parts = text.split_once('x').and_then(|(services, endpoints)| {
            Some(ClusterSize { services: services.parse().ok()?, endpoints: endpoints.parse().ok()? })
        });
        parts.with_context(|| format!("{text}: not SERVICESxENDPOINTS, such as 2000x10"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SliceEndpoints {
    /// The initial endpoints. The number becomes an annotation, which proxies ignore.
    Original(u32),
    /// The first endpoint is replaced by one with the address of this generation.
    Replaced(u32),
    None,
    OneMore,
    At(Ipv4Addr),
}

impl ClusterSize {
    pub fn changes(self) -> Vec<Change> {
        (0..self.services).flat_map(|index| [service(index), self.slice(index, SliceEndpoints::Original(0))]).collect()
    }

    /// Returns the index of a cluster-IP Service over TCP.
    pub fn typical(self) -> u32 {
        self.services / 2 + 1
    }

    pub fn udp(self) -> u32 {
        UDP
    }

    pub fn another(self) -> Vec<Change> {
        // A multiple of ten is a cluster-IP Service over TCP.
        let index = self.services.next_multiple_of(10);
        vec![service(index), self.slice(index, SliceEndpoints::Original(0))]
    }

    pub fn without_another(self) -> Vec<Change> {
        let key = key(self.services.next_multiple_of(10));
        vec![Change::Service(key.clone(), None), Change::EndpointSlice(key, None)]
    }

    pub fn one_percent(self) -> impl Iterator<Item = u32> {
        (1..self.services).step_by(100)
    }

    pub fn slice(self, index: u32, state: SliceEndpoints) -> Change {
        let key = key(index);
        let mut metadata = metadata(&key);
        metadata.labels = Some([("kubernetes.io/service-name".to_owned(), key.name.to_string())].into());
        if let SliceEndpoints::Original(note) = state {
            metadata.annotations = Some([("bench/note".to_owned(), note.to_string())].into());
        }
        let endpoint = |position: u32| {
            let address = match state {
                SliceEndpoints::Replaced(generation) if position == 0 => address([10, 250, 0, 1], generation % 0xffff),
                SliceEndpoints::At(address) => address,
                _ if position == self.endpoints => address([10, 251, 0, 1], 0),
                _ => pod_ip(self, index, position),
            };
            let conditions = EndpointConditions { ready: Some(true), ..EndpointConditions::default() };
            Endpoint {
                addresses: vec![address.to_string()],
                conditions: Some(conditions),
                node_name: Some("another-node".to_owned()),
                ..Endpoint::default()
            }
        };
        let count = match state {
            SliceEndpoints::None => 0,
            SliceEndpoints::At(_) => 1,
            SliceEndpoints::OneMore => self.endpoints + 1,
            SliceEndpoints::Original(_) | SliceEndpoints::Replaced(_) => self.endpoints,
        };
        let slice = EndpointSlice {
            metadata,
            address_type: "IPv4".into(),
            endpoints: Some((0..count).map(endpoint).collect()),
            // The API server sets the empty name. kube-proxy ignores ports without a name.
            ports: Some(vec![EndpointPort {
                name: Some(String::new()),
                port: Some(i32::from(PORT)),
                protocol: Some(protocol(index).into()),
                ..EndpointPort::default()
            }]),
        };
        Change::EndpointSlice(key, Some(Arc::new(slice)))
    }
}

pub fn cluster_ip(index: u32) -> Ipv4Addr {
    address([10, 96, 0, 1], index)
}

pub fn pod_ip(size: ClusterSize, index: u32, position: u32) -> Ipv4Addr {
    address([10, 128, 0, 1], index * size.endpoints + position)
}

pub fn is_udp(index: u32) -> bool {
    index % 10 == UDP
}

pub fn node_port(index: u32) -> Option<u16> {
    let port = NODE_PORTS.start().checked_add(u16::try_from(index / 10).ok()?)?;
    (index % 10 == NODE_PORT && NODE_PORTS.contains(&port)).then_some(port)
}

fn protocol(index: u32) -> &'static str {
    if is_udp(index) { "UDP" } else { "TCP" }
}

fn key(index: u32) -> ObjectKey {
    ObjectKey::new("bench", &format!("service-{index:05}"))
}

fn metadata(key: &ObjectKey) -> ObjectMeta {
    ObjectMeta { namespace: Some(key.namespace.to_string()), name: Some(key.name.to_string()), ..ObjectMeta::default() }
}

fn address(base: [u8; 4], offset: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::from(base)) + offset)
}

fn service(index: u32) -> Change {
    let key = key(index);
    let node_port = node_port(index);
    let port = ServicePort {
        port: i32::from(PORT),
        protocol: Some(protocol(index).into()),
        node_port: node_port.map(i32::from),
        ..ServicePort::default()
    };
    let cluster_ip = cluster_ip(index).to_string();
    let spec = ServiceSpec {
        type_: Some(if node_port.is_some() { "NodePort" } else { "ClusterIP" }.into()),
        cluster_ip: Some(cluster_ip.clone()),
        cluster_ips: Some(vec![cluster_ip]),
        ip_families: Some(vec!["IPv4".into()]),
        ports: Some(vec![port]),
        ..ServiceSpec::default()
    };
    let service = Service { metadata: metadata(&key), spec: Some(spec), status: None };
    Change::Service(key, Some(Arc::new(service)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_services_have_the_kind_that_the_event_needs() {
        for services in [10, 100, 1000, 5000, 20_000] {
            let size = ClusterSize { services, endpoints: 10 };
            let (typical, another) = (size.typical(), services.next_multiple_of(10));
            assert!(typical < services && ![NODE_PORT, UDP].contains(&(typical % 10)), "{services}");
            assert!(size.udp() < services && protocol(size.udp()) == "UDP");
            assert!(![NODE_PORT, UDP].contains(&(another % 10)));
            assert_eq!(size.one_percent().count() as u32, (services / 100).max(1));
            assert!(size.one_percent().all(|index| protocol(index) == "TCP"));
            assert_eq!(size.changes().len() as u32, 2 * services);
        }
    }
}
