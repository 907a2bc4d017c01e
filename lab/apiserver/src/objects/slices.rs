//! The first half of the EndpointSlice controller: the endpoints of a Service.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::object::ObjectKey;
use super::pod::PodEntry;
use super::service::family_name;

const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
pub(super) const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";

/// Endpoints by family and resolved ports; only endpoints of the same group share slices.
pub(super) type EndpointGroups = BTreeMap<(String, Vec<PortKey>), BTreeMap<ObjectKey, Endpoint>>;

pub(super) fn is_managed(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    spec.selector.as_ref().is_some_and(|selector| !selector.is_empty()) && spec.type_.as_deref() != Some("ExternalName")
}

pub(super) fn selects(service: &Service, pod: &PodEntry) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| selector.iter().all(|(name, value)| pod.labels.get(name) == Some(value)))
}

pub(super) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

pub(super) fn endpoint_groups<'a>(
    service: &Service,
    pods: impl Iterator<Item = (&'a ObjectKey, &'a PodEntry)>,
    zone_of: impl Fn(&str) -> Option<String>,
) -> EndpointGroups {
    let mut groups = EndpointGroups::new();
    let Some(spec) = &service.spec else { return groups };
    for (key, pod) in pods {
        for family in spec.ip_families.iter().flatten() {
            if let Some(address) = pod.spec.addresses.iter().find(|address| family_name(**address) == family) {
                let group = groups.entry((family.clone(), resolved_ports(&spec.ports, pod))).or_default();
                group.insert(key.clone(), endpoint(pod, *address, service, zone_of(&pod.spec.node)));
            }
        }
    }
    groups
}

/// A resolved port: index in the Service, name, protocol, number.
pub(super) type PortKey = (usize, Option<String>, String, i32);

/// Omits named target ports that the pod lacks.
fn resolved_ports(ports: &Option<Vec<ServicePort>>, pod: &PodEntry) -> Vec<PortKey> {
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

fn endpoint(pod: &PodEntry, address: IpAddr, service: &Service, zone: Option<String>) -> Endpoint {
    let distribution = service.spec.as_ref().and_then(|spec| spec.traffic_distribution.as_deref());
    let ready = publishes_not_ready(service) || (pod.ready && !pod.terminating);
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(pod.ready),
            terminating: Some(pod.terminating),
        }),
        hints: hints(distribution.filter(|_| ready), pod, zone.as_deref()),
        node_name: Some(pod.spec.node.clone()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: Some(pod.spec.name.clone()),
            namespace: Some(pod.spec.namespace.clone()),
            uid: pod.object.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        zone,
        ..Endpoint::default()
    }
}

/// Returns an endpoint's hints: its own zone or node (KEP-4444, KEP-3015), as in Kubernetes.
fn hints(distribution: Option<&str>, pod: &PodEntry, zone: Option<&str>) -> Option<EndpointHints> {
    let for_zones = zone.map(|zone| vec![ForZone { name: zone.to_owned() }]);
    match distribution? {
        "PreferSameNode" => {
            let for_nodes = Some(vec![ForNode { name: pod.spec.node.clone() }]);
            Some(EndpointHints { for_nodes, for_zones })
        }
        "PreferSameZone" | "PreferClose" if for_zones.is_some() => Some(EndpointHints { for_nodes: None, for_zones }),
        // Kubernetes' controller ignores an unknown distribution.
        _ => None,
    }
}

/// Whether Kubernetes' controller leaves the slice `before` as it is instead of writing `wanted`. A slice with endpoints
/// keeps a wrong label `headless` when nothing else changes (`setEndpointSliceLabels` and `placeholderSliceCompare` in
/// k8s.io/endpointslice).
pub(super) fn is_same_to_controller(before: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let is_empty = wanted.endpoints.as_ref().is_none_or(Vec::is_empty);
    let labels = |slice: &EndpointSlice| {
        let mut labels = slice.metadata.labels.clone().unwrap_or_default();
        if !is_empty {
            labels.retain(|name, _| ![SERVICE_LABEL, MANAGED_BY_LABEL, HEADLESS_LABEL].contains(&name.as_str()));
        }
        labels
    };
    before.endpoints == wanted.endpoints && before.ports == wanted.ports && labels(before) == labels(wanted)
}

pub(super) fn slice_ports(keys: &[PortKey]) -> Vec<EndpointPort> {
    let port = |(_, name, protocol, number): &PortKey| EndpointPort {
        name: Some(name.clone().unwrap_or_default()),
        port: Some(*number),
        protocol: Some(protocol.clone()),
        ..EndpointPort::default()
    };
    keys.iter().map(port).collect()
}

pub(super) fn slice_metadata(key: &ObjectKey, service: &Service) -> ObjectMeta {
    // Proxies select slices by `service-proxy-name`.
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_LABEL.to_owned(), key.name.clone());
    labels.insert(MANAGED_BY_LABEL.to_owned(), "endpointslice-controller.k8s.io".to_owned());
    // Upstream's setEndpointSliceLabels: a Service's own label counts for nothing.
    labels.remove(HEADLESS_LABEL);
    if service.spec.as_ref().is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None")) {
        labels.insert(HEADLESS_LABEL.to_owned(), String::new());
    }
    ObjectMeta {
        namespace: Some(key.namespace.clone()),
        generate_name: Some(format!("{}-", key.name)),
        labels: Some(labels),
        owner_references: Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            name: key.name.clone(),
            uid: service.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}
