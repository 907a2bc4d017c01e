//! Encodes kept objects, for the state file. Leaves out what one object's versions differ in without a difference to the rules: version,
//! UID and others' annotations.

use k8s_openapi::api::core::v1::{
    LoadBalancerIngress, Node, PortStatus, Service, ServicePort, ServiceSpec, ServiceStatus, SessionAffinityConfig,
    Taint,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use prost::Message;
use prost::bytes::Bytes;

use super::super::super::Change;
use super::super::super::object::{ObjectId, ObjectKind};
use super::super::prune::is_for_this_proxy;
use super::{messages, meta};
use crate::model::ObjectKey;

/// Returns the changed object's identity and its encoding; `None`: it is deleted.
pub(in super::super) fn change(change: &Change) -> (ObjectId, Option<Vec<u8>>) {
    let named = |name: &String| ObjectKey::new("", name);
    let (kind, key, bytes) = match change {
        Change::Node(name, object) => (ObjectKind::Node, named(name), object.as_deref().map(node)),
        Change::Service(key, object) => (ObjectKind::Service, key.clone(), object.as_deref().map(service)),
        Change::EndpointSlice(key, object) => (ObjectKind::EndpointSlice, key.clone(), object.as_deref().map(slice)),
        Change::ServiceCidr(name, object) => {
            (ObjectKind::ServiceCidr, named(name), object.as_deref().map(service_cidr))
        }
    };
    (ObjectId { kind, key }, bytes)
}

fn service(from: &Service) -> Vec<u8> {
    let encoded = messages::Service {
        metadata: metadata(&from.metadata),
        spec: from.spec.as_ref().map(service_spec),
        status: from.status.as_ref().map(service_status),
    };
    encoded.encode_to_vec()
}

fn slice(from: &EndpointSlice) -> Vec<u8> {
    let port = |port: &k8s_openapi::api::discovery::v1::EndpointPort| messages::EndpointPort {
        name: port.name.clone(),
        protocol: port.protocol.clone(),
        port: port.port,
        app_protocol: port.app_protocol.clone(),
    };
    let encoded = messages::EndpointSlice {
        metadata: metadata(&from.metadata),
        endpoints: list(from.endpoints.as_ref(), endpoint),
        ports: list(from.ports.as_ref(), port),
        address_type: from.address_type.clone(),
    };
    encoded.encode_to_vec()
}

fn node(from: &Node) -> Vec<u8> {
    let address = |from: &k8s_openapi::api::core::v1::NodeAddress| messages::NodeAddress {
        r#type: from.type_.clone(),
        address: from.address.clone(),
    };
    let encoded = messages::Node {
        metadata: metadata(&from.metadata),
        spec: from.spec.as_ref().map(|spec| messages::NodeSpec {
            pod_cidr: text(spec.pod_cidr.as_ref()),
            taints: list(spec.taints.as_ref(), taint),
            pod_cidrs: list(spec.pod_cidrs.as_ref(), String::clone),
        }),
        status: from
            .status
            .as_ref()
            .map(|status| messages::NodeStatus { addresses: list(status.addresses.as_ref(), address) }),
    };
    encoded.encode_to_vec()
}

fn service_cidr(from: &ServiceCIDR) -> Vec<u8> {
    let spec =
        from.spec.as_ref().map(|spec| messages::ServiceCidrSpec { cidrs: list(spec.cidrs.as_ref(), String::clone) });
    messages::ServiceCidr { metadata: metadata(&from.metadata), spec }.encode_to_vec()
}

fn metadata(from: &ObjectMeta) -> meta::ObjectMeta {
    meta::ObjectMeta {
        name: text(from.name.as_ref()),
        namespace: text(from.namespace.as_ref()),
        creation_timestamp: from.creation_timestamp.as_ref().map(time),
        deletion_timestamp: from.deletion_timestamp.as_ref().map(time),
        labels: from.labels.clone().unwrap_or_default(),
        annotations: from
            .annotations
            .iter()
            .flatten()
            .filter(|(key, _)| is_for_this_proxy(key))
            .map(annotation)
            .collect(),
        ..meta::ObjectMeta::default()
    }
}

fn annotation((key, value): (&String, &String)) -> meta::Annotation {
    meta::Annotation { key: Bytes::from(key.clone()), value: Bytes::from(value.clone()) }
}

fn time(from: &Time) -> meta::Time {
    meta::Time { seconds: Some(from.0.as_second()) }
}

fn service_spec(from: &ServiceSpec) -> messages::ServiceSpec {
    messages::ServiceSpec {
        ports: list(from.ports.as_ref(), service_port),
        cluster_ip: text(from.cluster_ip.as_ref()),
        r#type: text(from.type_.as_ref()),
        external_ips: list(from.external_ips.as_ref(), String::clone),
        session_affinity: text(from.session_affinity.as_ref()),
        load_balancer_ip: text(from.load_balancer_ip.as_ref()),
        load_balancer_source_ranges: list(from.load_balancer_source_ranges.as_ref(), String::clone),
        external_name: text(from.external_name.as_ref()),
        external_traffic_policy: text(from.external_traffic_policy.as_ref()),
        health_check_node_port: from.health_check_node_port.unwrap_or_default(),
        publish_not_ready_addresses: from.publish_not_ready_addresses.unwrap_or_default(),
        session_affinity_config: from.session_affinity_config.as_ref().map(session_affinity_config),
        ip_family_policy: from.ip_family_policy.clone(),
        cluster_ips: list(from.cluster_ips.as_ref(), String::clone),
        ip_families: list(from.ip_families.as_ref(), String::clone),
        allocate_load_balancer_node_ports: from.allocate_load_balancer_node_ports,
        load_balancer_class: from.load_balancer_class.clone(),
        internal_traffic_policy: from.internal_traffic_policy.clone(),
        traffic_distribution: from.traffic_distribution.clone(),
    }
}

fn session_affinity_config(from: &SessionAffinityConfig) -> messages::SessionAffinityConfig {
    let client_ip = from.client_ip.as_ref();
    messages::SessionAffinityConfig {
        client_ip: client_ip.map(|config| messages::ClientIpConfig { timeout_seconds: config.timeout_seconds }),
    }
}

fn service_port(from: &ServicePort) -> messages::ServicePort {
    let target_port = from.target_port.as_ref().map(|port| match port {
        IntOrString::Int(int) => messages::IntOrString { r#type: 0, int: *int, string: String::new() },
        IntOrString::String(string) => messages::IntOrString { r#type: 1, int: 0, string: string.clone() },
    });
    messages::ServicePort {
        name: text(from.name.as_ref()),
        protocol: text(from.protocol.as_ref()),
        port: from.port,
        target_port,
        node_port: from.node_port.unwrap_or_default(),
        app_protocol: from.app_protocol.clone(),
    }
}

fn service_status(from: &ServiceStatus) -> messages::ServiceStatus {
    let load_balancer = from.load_balancer.as_ref();
    messages::ServiceStatus {
        load_balancer: load_balancer
            .map(|balancer| messages::LoadBalancerStatus { ingress: list(balancer.ingress.as_ref(), ingress) }),
    }
}

fn ingress(from: &LoadBalancerIngress) -> messages::LoadBalancerIngress {
    let port = |port: &PortStatus| messages::PortStatus {
        port: port.port,
        protocol: port.protocol.clone(),
        error: port.error.clone(),
    };
    messages::LoadBalancerIngress {
        ip: text(from.ip.as_ref()),
        hostname: text(from.hostname.as_ref()),
        ip_mode: from.ip_mode.clone(),
        ports: list(from.ports.as_ref(), port),
    }
}

fn endpoint(from: &Endpoint) -> messages::Endpoint {
    messages::Endpoint {
        addresses: from.addresses.clone(),
        conditions: from.conditions.as_ref().map(|conditions| messages::EndpointConditions {
            ready: conditions.ready,
            serving: conditions.serving,
            terminating: conditions.terminating,
        }),
        hostname: from.hostname.clone(),
        node_name: from.node_name.clone(),
        zone: from.zone.clone(),
        hints: from.hints.as_ref().map(hints),
    }
}

fn hints(from: &EndpointHints) -> messages::EndpointHints {
    let named = |name: &String| messages::Named { name: name.clone() };
    messages::EndpointHints {
        for_zones: list(from.for_zones.as_ref(), |zone| named(&zone.name)),
        for_nodes: list(from.for_nodes.as_ref(), |node| named(&node.name)),
    }
}

fn taint(from: &Taint) -> messages::Taint {
    messages::Taint {
        key: from.key.clone(),
        value: text(from.value.as_ref()),
        effect: from.effect.clone(),
        time_added: from.time_added.as_ref().map(time),
    }
}

pub(super) fn text(from: Option<&String>) -> String {
    from.cloned().unwrap_or_default()
}

fn list<F, T>(from: Option<&Vec<F>>, convert: impl Fn(&F) -> T) -> Vec<T> {
    from.into_iter().flatten().map(convert).collect()
}
