use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, ObjectReference, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::KnownNames;
use crate::Objects;
use crate::collect::trim;

/// The label that names an EndpointSlice's Service (kubernetes.io, "EndpointSlices").
const SERVICE_NAME: &str = "kubernetes.io/service-name";

pub(super) fn gather(names: &mut KnownNames<'_>, objects: &Objects) {
    for service in &objects.services {
        let (namespace, name) = (service.metadata.namespace.clone(), service.metadata.name.clone());
        names.services.extend(namespace.zip(name));
        meta_names(names, &service.metadata);
        let spec = service.spec.iter();
        names.known.extend(spec.clone().flat_map(|spec| spec.external_name.clone()));
        let ports = spec.flat_map(|spec| spec.ports.iter().flatten());
        names.known.extend(ports.flat_map(|port| port.name.clone()));
        let status = service.status.iter().flat_map(|status| &status.load_balancer);
        let ingress = status.flat_map(|balancer| balancer.ingress.iter().flatten());
        names.known.extend(ingress.flat_map(|ingress| ingress.hostname.clone()));
    }
    for slice in &objects.slices {
        let labels = slice.metadata.labels.as_ref();
        let service = labels.and_then(|labels| labels.get(SERVICE_NAME)).cloned();
        names.services.extend(slice.metadata.namespace.clone().zip(service.clone()));
        names.known.extend(service);
        meta_names(names, &slice.metadata);
        names.known.extend(slice.ports.iter().flatten().flat_map(|port| port.name.clone()));
        for endpoint in slice.endpoints.iter().flatten() {
            let reference = endpoint.target_ref.as_ref();
            names.known.extend(reference.and_then(|reference| reference.name.clone()));
            names
                .known
                .extend([&endpoint.hostname, &endpoint.node_name, &endpoint.zone].into_iter().flatten().cloned());
        }
    }
    for node in &objects.nodes {
        meta_names(names, &node.metadata);
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        names.known.extend(addresses.map(|address| address.address.clone()).filter(|address| !is_address(address)));
    }
    names.known.extend(objects.service_cidrs.iter().flat_map(|cidr| cidr.metadata.name.clone()));
}

fn meta_names(names: &mut KnownNames<'_>, meta: &ObjectMeta) {
    names.known.extend([&meta.name, &meta.namespace].into_iter().flatten().cloned());
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// Redacts objects; also removes the fields that [`trim`] removes.
pub(super) fn replace(names: &KnownNames<'_>, objects: &mut Objects) {
    trim::objects(objects);
    objects.services.iter_mut().for_each(|it| service(names, it));
    objects.slices.iter_mut().for_each(|it| slice(names, it));
    objects.nodes.iter_mut().for_each(|it| node(names, it));
    objects.service_cidrs.iter_mut().for_each(|it| meta(names, &mut it.metadata));
}

fn name(names: &KnownNames<'_>, name: &mut Option<String>) {
    *name = name.take().map(|name| names.replaced(&name));
}

fn values(names: &KnownNames<'_>, values: &mut Option<BTreeMap<String, String>>) {
    for value in values.iter_mut().flat_map(BTreeMap::values_mut) {
        *value = names.value(value);
    }
}

fn meta(names: &KnownNames<'_>, meta: &mut ObjectMeta) {
    let mut all = std::mem::take(meta);
    name(names, &mut all.name);
    name(names, &mut all.namespace);
    values(names, &mut all.labels);
    values(names, &mut all.annotations);
    let owners = all.owner_references.map(|owners| {
        let hidden = |owner: OwnerReference| OwnerReference { name: names.replaced(&owner.name), ..owner };
        owners.into_iter().map(hidden).collect()
    });
    *meta = ObjectMeta {
        name: all.name,
        namespace: all.namespace,
        uid: all.uid,
        labels: all.labels,
        annotations: all.annotations,
        creation_timestamp: all.creation_timestamp,
        deletion_timestamp: all.deletion_timestamp,
        generation: all.generation,
        resource_version: all.resource_version,
        owner_references: owners,
        ..ObjectMeta::default()
    };
}

fn service(names: &KnownNames<'_>, service: &mut Service) {
    meta(names, &mut service.metadata);
    if let Some(spec) = &mut service.spec {
        values(names, &mut spec.selector);
        name(names, &mut spec.external_name);
        name(names, &mut spec.load_balancer_class);
        spec.ports.iter_mut().flatten().for_each(|it| port(names, it));
    }
    let status = service.status.iter_mut().flat_map(|status| &mut status.load_balancer);
    for ingress in status.flat_map(|balancer| balancer.ingress.iter_mut().flatten()) {
        name(names, &mut ingress.hostname);
        ingress.ports = None;
    }
}

fn port(names: &KnownNames<'_>, port: &mut ServicePort) {
    name(names, &mut port.name);
    name(names, &mut port.app_protocol);
    if let Some(IntOrString::String(target)) = &mut port.target_port {
        *target = names.replaced(target);
    }
}

fn slice(names: &KnownNames<'_>, slice: &mut EndpointSlice) {
    meta(names, &mut slice.metadata);
    for port in slice.ports.iter_mut().flatten() {
        name(names, &mut port.name);
        name(names, &mut port.app_protocol);
    }
    slice.endpoints.iter_mut().flatten().for_each(|it| endpoint(names, it));
}

fn endpoint(names: &KnownNames<'_>, endpoint: &mut Endpoint) {
    // Slices of type FQDN have host names as addresses.
    for address in endpoint.addresses.iter_mut().filter(|address| !is_address(address)) {
        *address = names.replaced(address);
    }
    name(names, &mut endpoint.hostname);
    name(names, &mut endpoint.node_name);
    name(names, &mut endpoint.zone);
    values(names, &mut endpoint.deprecated_topology);
    if let Some(hints) = &mut endpoint.hints {
        for zone in hints.for_zones.iter_mut().flatten() {
            zone.name = names.replaced(&zone.name);
        }
        for node in hints.for_nodes.iter_mut().flatten() {
            node.name = names.replaced(&node.name);
        }
    }
    endpoint.target_ref = endpoint.target_ref.take().map(|reference| ObjectReference {
        name: reference.name.map(|name| names.replaced(&name)),
        namespace: reference.namespace.map(|namespace| names.replaced(&namespace)),
        field_path: None,
        ..reference
    });
}

fn node(names: &KnownNames<'_>, node: &mut Node) {
    meta(names, &mut node.metadata);
    let addresses = node.status.iter_mut().flat_map(|status| status.addresses.iter_mut().flatten());
    for address in addresses.filter(|address| !is_address(&address.address)) {
        address.address = names.replaced(&address.address);
    }
}
