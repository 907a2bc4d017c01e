//! Clusters of a given size, as the changes that a source would send.
//!
//! Of ten services one is a NodePort service and one is a UDP service; the others are plain cluster IPs over TCP.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use svcproxy::model::{Change, ObjectKey};

/// The port of every service and of every endpoint.
pub const PORT: u16 = 80;
/// Of each ten services the one with a node port, as long as there are any.
const NODE_PORT: u32 = 5;
/// kube-apiserver's `--service-node-port-range`, by default.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
/// Of each ten services the one that speaks UDP.
const UDP: u32 = 9;

/// How large a cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// Services.
    pub services: u32,
    /// Ready endpoints of each service.
    pub endpoints: u32,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.services, self.endpoints)
    }
}

/// What the slice of a service says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoints {
    /// Those from the start; the number is written into an annotation, which no proxy depends on.
    Original(u32),
    /// The first one is replaced; each generation has another address.
    Replaced(u32),
    /// None is there.
    None,
    /// Those from the start, and one more.
    OneMore,
    /// One alone, at this address.
    At(Ipv4Addr),
}

impl Size {
    /// Every Service and EndpointSlice.
    pub fn changes(self) -> Vec<Change> {
        (0..self.services).flat_map(|index| [service(index), self.slice(index, Endpoints::Original(0))]).collect()
    }

    /// A cluster-IP service over TCP in the middle.
    pub fn typical(self) -> u32 {
        self.services / 2 + 1
    }

    /// A cluster-IP service over UDP.
    pub fn udp(self) -> u32 {
        UDP
    }

    /// A Service and its slice, which are not among [`Size::changes`].
    pub fn another(self) -> Vec<Change> {
        // The next that is a plain one.
        let index = self.services.next_multiple_of(10);
        vec![service(index), self.slice(index, Endpoints::Original(0))]
    }

    /// The same gone.
    pub fn without_another(self) -> Vec<Change> {
        let key = key(self.services.next_multiple_of(10));
        vec![Change::Service(key.clone(), None), Change::EndpointSlice(key, None)]
    }

    /// The indices of one service in a hundred, one at least.
    pub fn one_percent(self) -> impl Iterator<Item = u32> {
        (1..self.services).step_by(100)
    }

    /// The slice of one service.
    pub fn slice(self, index: u32, state: Endpoints) -> Change {
        let key = key(index);
        let mut metadata = metadata(&key);
        metadata.labels = Some([("kubernetes.io/service-name".to_owned(), key.name.clone())].into());
        if let Endpoints::Original(note) = state {
            metadata.annotations = Some([("bench/note".to_owned(), note.to_string())].into());
        }
        let endpoint = |position: u32| {
            let address = match state {
                Endpoints::Replaced(generation) if position == 0 => address([10, 250, 0, 1], generation % 0xffff),
                Endpoints::At(address) => address,
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
            Endpoints::None => 0,
            Endpoints::At(_) => 1,
            Endpoints::OneMore => self.endpoints + 1,
            Endpoints::Original(_) | Endpoints::Replaced(_) => self.endpoints,
        };
        let slice = EndpointSlice {
            metadata,
            address_type: "IPv4".into(),
            endpoints: Some((0..count).map(endpoint).collect()),
            // As the API server fills it in: kube-proxy passes over ports whose name is left out.
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

/// The cluster IP of a service.
pub fn cluster_ip(index: u32) -> Ipv4Addr {
    address([10, 96, 0, 1], index)
}

/// The address of one of a service's endpoints from the start.
pub fn pod_ip(size: Size, index: u32, position: u32) -> Ipv4Addr {
    address([10, 128, 0, 1], index * size.endpoints + position)
}

/// Whether a service speaks UDP.
pub fn is_udp(index: u32) -> bool {
    index % 10 == UDP
}

/// The node port of a service, if it has one.
pub fn node_port(index: u32) -> Option<u16> {
    let port = NODE_PORTS.start().checked_add(u16::try_from(index / 10).ok()?)?;
    (index % 10 == NODE_PORT && NODE_PORTS.contains(&port)).then_some(port)
}

fn protocol(index: u32) -> &'static str {
    if is_udp(index) { "UDP" } else { "TCP" }
}

fn key(index: u32) -> ObjectKey {
    ObjectKey { namespace: "bench".into(), name: format!("service-{index:05}") }
}

fn metadata(key: &ObjectKey) -> ObjectMeta {
    ObjectMeta { namespace: Some(key.namespace.clone()), name: Some(key.name.clone()), ..ObjectMeta::default() }
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
    fn the_services_that_change_are_of_the_kinds_that_events_ask_for() {
        for services in [10, 100, 1000, 5000, 20_000] {
            let size = Size { services, endpoints: 10 };
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
