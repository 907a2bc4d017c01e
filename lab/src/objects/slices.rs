//! The EndpointSlice controller: Services and Pods in, slices out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::pod::PodEntry;
use super::service::family_name;
use super::store::ObjectKey;
use crate::cluster::spec::NodeSpec;

/// The label that ties a slice to its service.
pub(super) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The slices of `service`: none without a selector or for an ExternalName service.
pub(super) fn of_service(
    key: &ObjectKey,
    service: &Service,
    pods: &BTreeMap<ObjectKey, PodEntry>,
    nodes: &[NodeSpec],
    limit: usize,
) -> Vec<EndpointSlice> {
    let spec = service.spec.clone().unwrap_or_default();
    let selector = spec.selector.clone().unwrap_or_default();
    if selector.is_empty() || spec.type_.as_deref() == Some("ExternalName") {
        return Vec::new();
    }
    let selected: Vec<&PodEntry> = pods
        .iter()
        .filter(|(pod, _)| pod.namespace == key.namespace)
        .map(|(_, pod)| pod)
        .filter(|pod| selector.iter().all(|(name, value)| pod.labels.get(name) == Some(value)))
        .collect();
    let mut slices = Vec::new();
    for family in spec.ip_families.iter().flatten() {
        let mut groups: BTreeMap<Vec<PortKey>, Vec<Endpoint>> = BTreeMap::new();
        for pod in &selected {
            if let Some(address) = pod.spec.addresses.iter().find(|address| family_name(**address) == family) {
                let endpoint = endpoint(pod, *address, service, nodes);
                groups.entry(ports_for(&spec.ports, pod)).or_default().push(endpoint);
            }
        }
        for (ports, endpoints) in groups {
            for chunk in endpoints.chunks(limit.max(1)) {
                let number = slices.len();
                slices.push(slice(key, service, family, &ports, chunk.to_vec(), number));
            }
        }
    }
    slices
}

/// A resolved port: (name, protocol, number), in the service's order.
type PortKey = (usize, Option<String>, String, i32);

/// The service's ports as `pod` has them; a named target port that the pod lacks is left out.
fn ports_for(ports: &Option<Vec<ServicePort>>, pod: &PodEntry) -> Vec<PortKey> {
    let resolve = |(index, port): (usize, &ServicePort)| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let number = match &port.target_port {
            Some(IntOrString::Int(number)) => *number,
            Some(IntOrString::String(name)) => *pod.named_ports.get(&(name.clone(), protocol.clone()))?,
            None => port.port,
        };
        Some((index, port.name.clone(), protocol, number))
    };
    ports.iter().flatten().enumerate().filter_map(resolve).collect()
}

fn endpoint(pod: &PodEntry, address: IpAddr, service: &Service, nodes: &[NodeSpec]) -> Endpoint {
    let spec = service.spec.as_ref();
    let published = spec.and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    let zone = nodes.iter().find(|node| node.name == pod.spec.node).and_then(|node| node.zone.clone());
    let distribution = spec.and_then(|spec| spec.traffic_distribution.as_deref());
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(published || (pod.ready && !pod.terminating)),
            serving: Some(published || pod.ready),
            terminating: Some(pod.terminating),
        }),
        hints: hints(distribution, pod, zone.as_deref()),
        node_name: Some(pod.spec.node.clone()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: Some(pod.spec.name.clone()),
            namespace: Some(pod.spec.namespace.clone()),
            ..ObjectReference::default()
        }),
        zone,
        ..Endpoint::default()
    }
}

/// Every endpoint is for its own zone, or for its own node (KEP-4444 and KEP-3015): the simplest allocation that keeps
/// the promise, and the one that upstream's controller makes for `trafficDistribution`.
fn hints(distribution: Option<&str>, pod: &PodEntry, zone: Option<&str>) -> Option<EndpointHints> {
    let for_zones = zone.map(|zone| vec![ForZone { name: zone.to_owned() }]);
    match distribution? {
        "PreferSameNode" => {
            let for_nodes = Some(vec![ForNode { name: pod.spec.node.clone() }]);
            Some(EndpointHints { for_nodes, for_zones })
        }
        _ if for_zones.is_some() => Some(EndpointHints { for_nodes: None, for_zones }),
        _ => None,
    }
}

fn slice(
    key: &ObjectKey,
    service: &Service,
    family: &str,
    ports: &[PortKey],
    endpoints: Vec<Endpoint>,
    number: usize,
) -> EndpointSlice {
    // The controller mirrors the service's labels: consumers select slices by `service-proxy-name` as well.
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_LABEL.to_owned(), key.name.clone());
    labels.insert("endpointslice.kubernetes.io/managed-by".to_owned(), "endpointslice-controller.k8s.io".to_owned());
    if service.spec.as_ref().is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None")) {
        labels.insert("service.kubernetes.io/headless".to_owned(), String::new());
    }
    let port = |(_, name, protocol, number): &PortKey| EndpointPort {
        name: Some(name.clone().unwrap_or_default()),
        port: Some(*number),
        protocol: Some(protocol.clone()),
        ..EndpointPort::default()
    };
    EndpointSlice {
        address_type: family.to_owned(),
        metadata: ObjectMeta {
            name: Some(format!("{}-{}-{number}", key.name, family.to_lowercase())),
            namespace: Some(key.namespace.clone()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        endpoints: Some(endpoints),
        ports: Some(ports.iter().map(port).collect()),
    }
}
