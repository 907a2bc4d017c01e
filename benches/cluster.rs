//! Clusters of a given size, as the changes that a source would send.

use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use svcproxy::source::{Change, ObjectKey};

/// Endpoints of each service.
pub const ENDPOINTS: u32 = 10;

/// The port of every service and of every endpoint.
const PORT: i32 = 80;

/// Every Service and EndpointSlice of a cluster with `services` services of [`ENDPOINTS`] endpoints each.
pub fn changes(services: u32) -> Vec<Change> {
    (0..services).flat_map(|index| [service(index), endpoint_slice(index, 0)]).collect()
}

/// The slice of one service after a rollout replaced its first endpoint; each `generation` has another address.
pub fn one_endpoint_changed(index: u32, generation: u32) -> Change {
    endpoint_slice(index, generation)
}

fn key(index: u32) -> ObjectKey {
    ObjectKey { namespace: "bench".into(), name: format!("service-{index:05}") }
}

fn metadata(key: &ObjectKey) -> ObjectMeta {
    ObjectMeta { namespace: Some(key.namespace.clone()), name: Some(key.name.clone()), ..ObjectMeta::default() }
}

/// The address at `offset` in a range.
fn address(base: [u8; 4], offset: u32) -> String {
    Ipv4Addr::from(u32::from(Ipv4Addr::from(base)) + offset).to_string()
}

fn service(index: u32) -> Change {
    let key = key(index);
    let port = ServicePort { port: PORT, protocol: Some("TCP".into()), ..ServicePort::default() };
    let cluster_ip = address([10, 96, 0, 1], index);
    let spec = ServiceSpec {
        type_: Some("ClusterIP".into()),
        cluster_ip: Some(cluster_ip.clone()),
        cluster_ips: Some(vec![cluster_ip]),
        ip_families: Some(vec!["IPv4".into()]),
        ports: Some(vec![port]),
        ..ServiceSpec::default()
    };
    let service = Service { metadata: metadata(&key), spec: Some(spec), status: None };
    Change::Service(key, Some(Arc::new(service)))
}

fn endpoint_slice(index: u32, generation: u32) -> Change {
    let key = key(index);
    let mut metadata = metadata(&key);
    metadata.labels = Some([("kubernetes.io/service-name".to_owned(), key.name.clone())].into());
    let endpoint = |position: u32| {
        let address = match position {
            0 if generation > 0 => address([10, 250, 0, 0], generation),
            _ => address([10, 128, 0, 1], index * ENDPOINTS + position),
        };
        let conditions = EndpointConditions { ready: Some(true), ..EndpointConditions::default() };
        Endpoint { addresses: vec![address], conditions: Some(conditions), ..Endpoint::default() }
    };
    let port = EndpointPort { port: Some(PORT), protocol: Some("TCP".into()), ..EndpointPort::default() };
    let slice = EndpointSlice {
        metadata,
        address_type: "IPv4".into(),
        endpoints: Some((0..ENDPOINTS).map(endpoint).collect()),
        ports: Some(vec![port]),
    };
    Change::EndpointSlice(key, Some(Arc::new(slice)))
}
