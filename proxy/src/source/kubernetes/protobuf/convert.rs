//! Converts messages to the API's types, such that a JSON answer with the same object yields the same.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ClientIPConfig, LoadBalancerIngress, LoadBalancerStatus, Node, NodeAddress, NodeSpec, NodeStatus, PortStatus,
    Service, ServicePort, ServiceSpec, ServiceStatus, SessionAffinityConfig, Taint,
};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::api::networking::v1::{ServiceCIDR, ServiceCIDRSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::super::validate::Finding;
use super::super::prune::{TRIGGER_TIME, is_for_this_proxy};
use super::{messages, meta};

/// An API type with the message that encodes it.
pub(in super::super) trait FromProtobuf: Sized {
    type Encoded: prost::Message + Default;

    /// Omits values that the type cannot hold, and adds them to `taken`.
    fn converted(from: Self::Encoded, taken: &mut Vec<Finding>) -> Self;
}

impl FromProtobuf for Service {
    type Encoded = messages::Service;

    fn converted(from: messages::Service, taken: &mut Vec<Finding>) -> Service {
        Service {
            metadata: metadata(from.metadata, taken),
            spec: from.spec.map(service_spec),
            status: from.status.map(|status| ServiceStatus {
                load_balancer: status
                    .load_balancer
                    .map(|balancer| LoadBalancerStatus { ingress: list(balancer.ingress, ingress) }),
                conditions: None,
            }),
        }
    }
}

impl FromProtobuf for EndpointSlice {
    type Encoded = messages::EndpointSlice;

    fn converted(from: messages::EndpointSlice, taken: &mut Vec<Finding>) -> EndpointSlice {
        let port = |port: messages::EndpointPort| EndpointPort {
            name: port.name,
            protocol: port.protocol,
            port: port.port,
            app_protocol: port.app_protocol,
        };
        EndpointSlice {
            metadata: metadata(from.metadata, taken),
            address_type: from.address_type,
            endpoints: list(from.endpoints, endpoint),
            ports: list(from.ports, port),
        }
    }
}

impl FromProtobuf for Node {
    type Encoded = messages::Node;

    fn converted(from: messages::Node, taken: &mut Vec<Finding>) -> Node {
        let address = |from: messages::NodeAddress| NodeAddress { type_: from.r#type, address: from.address };
        Node {
            metadata: metadata(from.metadata, taken),
            spec: from.spec.map(|spec| NodeSpec {
                pod_cidr: text(spec.pod_cidr),
                pod_cidrs: list(spec.pod_cidrs, |range| range),
                taints: list(spec.taints, |from| taint(from, taken)),
                ..NodeSpec::default()
            }),
            status: from
                .status
                .map(|status| NodeStatus { addresses: list(status.addresses, address), ..NodeStatus::default() }),
        }
    }
}

impl FromProtobuf for ServiceCIDR {
    type Encoded = messages::ServiceCidr;

    fn converted(from: messages::ServiceCidr, taken: &mut Vec<Finding>) -> ServiceCIDR {
        ServiceCIDR {
            metadata: metadata(from.metadata, taken),
            spec: from.spec.map(|spec| ServiceCIDRSpec { cidrs: list(spec.cidrs, |range| range) }),
            status: None,
        }
    }
}

fn metadata(from: meta::ObjectMeta, taken: &mut Vec<Finding>) -> ObjectMeta {
    ObjectMeta {
        name: text(from.name),
        namespace: text(from.namespace),
        uid: text(from.uid),
        resource_version: text(from.resource_version),
        creation_timestamp: from.creation_timestamp.and_then(|at| time(at, "metadata.creationTimestamp", taken)),
        deletion_timestamp: from.deletion_timestamp.and_then(|at| time(at, "metadata.deletionTimestamp", taken)),
        labels: Some(from.labels).filter(|labels| !labels.is_empty()),
        annotations: annotations(&from.annotations),
        ..ObjectMeta::default()
    }
}

/// Returns the annotations that the proxy may keep; of a repeated one the last.
fn annotations(all: &[meta::Annotation]) -> Option<BTreeMap<String, String>> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).ok();
    let texts = all.iter().filter_map(|annotation| Some((text(&annotation.key)?, text(&annotation.value)?)));
    let kept: BTreeMap<_, _> = texts.filter(|(key, _)| key == TRIGGER_TIME || is_for_this_proxy(key)).collect();
    (!kept.is_empty()).then_some(kept)
}

/// A time without seconds is unset, as in Kubernetes' clients.
fn time(from: meta::Time, field: &str, taken: &mut Vec<Finding>) -> Option<Time> {
    match Timestamp::from_second(from.seconds?) {
        Ok(timestamp) => Some(Time(timestamp)),
        Err(error) => {
            taken.push(Finding { field: field.to_owned(), message: error.to_string() });
            None
        }
    }
}

fn service_spec(from: messages::ServiceSpec) -> ServiceSpec {
    ServiceSpec {
        allocate_load_balancer_node_ports: from.allocate_load_balancer_node_ports,
        cluster_ip: text(from.cluster_ip),
        cluster_ips: list(from.cluster_ips, |ip| ip),
        external_ips: list(from.external_ips, |ip| ip),
        external_name: text(from.external_name),
        external_traffic_policy: text(from.external_traffic_policy),
        health_check_node_port: Some(from.health_check_node_port).filter(|port| *port != 0),
        internal_traffic_policy: from.internal_traffic_policy,
        ip_families: list(from.ip_families, |family| family),
        ip_family_policy: from.ip_family_policy,
        load_balancer_class: from.load_balancer_class,
        load_balancer_ip: text(from.load_balancer_ip),
        load_balancer_source_ranges: list(from.load_balancer_source_ranges, |range| range),
        ports: list(from.ports, service_port),
        publish_not_ready_addresses: from.publish_not_ready_addresses.then_some(true),
        selector: None,
        session_affinity: text(from.session_affinity),
        session_affinity_config: from.session_affinity_config.map(|config| SessionAffinityConfig {
            client_ip: config.client_ip.map(|ip| ClientIPConfig { timeout_seconds: ip.timeout_seconds }),
        }),
        traffic_distribution: from.traffic_distribution,
        type_: text(from.r#type),
    }
}

fn service_port(from: messages::ServicePort) -> ServicePort {
    ServicePort {
        name: text(from.name),
        protocol: text(from.protocol),
        port: from.port,
        target_port: from.target_port.map(|port| match port.r#type {
            1 => IntOrString::String(port.string),
            _ => IntOrString::Int(port.int),
        }),
        node_port: Some(from.node_port).filter(|port| *port != 0),
        app_protocol: from.app_protocol,
    }
}

fn ingress(from: messages::LoadBalancerIngress) -> LoadBalancerIngress {
    let port = |port: messages::PortStatus| PortStatus { port: port.port, protocol: port.protocol, error: port.error };
    LoadBalancerIngress {
        ip: text(from.ip),
        hostname: text(from.hostname),
        ip_mode: from.ip_mode,
        ports: list(from.ports, port),
    }
}

fn endpoint(from: messages::Endpoint) -> Endpoint {
    Endpoint {
        addresses: from.addresses,
        conditions: from.conditions.map(|conditions| EndpointConditions {
            ready: conditions.ready,
            serving: conditions.serving,
            terminating: conditions.terminating,
        }),
        hostname: from.hostname,
        node_name: from.node_name,
        zone: from.zone,
        hints: from.hints.map(|hints| EndpointHints {
            for_zones: list(hints.for_zones, |zone| ForZone { name: zone.name }),
            for_nodes: list(hints.for_nodes, |node| ForNode { name: node.name }),
        }),
        ..Endpoint::default()
    }
}

fn taint(from: messages::Taint, taken: &mut Vec<Finding>) -> Taint {
    Taint {
        key: from.key,
        value: text(from.value),
        effect: from.effect,
        time_added: from.time_added.and_then(|at| time(at, "spec.taints.timeAdded", taken)),
    }
}

/// Kubernetes' JSON omits empty texts.
fn text(from: String) -> Option<String> {
    Some(from).filter(|text| !text.is_empty())
}

/// Kubernetes' JSON omits empty lists.
fn list<F, T>(from: Vec<F>, convert: impl FnMut(F) -> T) -> Option<Vec<T>> {
    (!from.is_empty()).then(|| from.into_iter().map(convert).collect())
}
