//! Objects for tests, all in the namespace `default`, and ports.
#![allow(clippy::unwrap_used, reason = "only tests use this module")]

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::model::{Change, LABEL_SERVICE_NAME, ObjectKey, Protocol, ServicePortName, ShortString};
use crate::state::endpoints::Endpoint;
use crate::state::service::{ServicePort, TrafficPolicy};

/// Takes a free port of 127.0.0.1 from all other programs for as long as the socket lives. The socket never listens:
/// connections are refused, and a listener with `SO_REUSEADDR` can still use the port.
///
/// # Panics
/// If no port is free.
pub fn held_port() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

pub fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

pub fn port_name(service: &str, protocol: Protocol) -> ServicePortName {
    ServicePortName { service: key(service), port: ShortString::default(), protocol }
}

/// # Panics
/// If the value is no valid `T`.
pub fn object<T: DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

pub fn service(name: &str, spec: Value) -> Change {
    Change::Service(key(name), Some(object(json!({ "metadata": { "name": name }, "spec": spec }))))
}

pub fn load_balancer(name: &str, spec: Value, addresses: &[&str]) -> Change {
    let ingress: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    let status = json!({ "loadBalancer": { "ingress": ingress } });
    Change::Service(key(name), Some(object(json!({ "metadata": { "name": name }, "spec": spec, "status": status }))))
}

/// The slice is named as its Service; `endpoints` and `ports` are as in the API.
pub fn slice(service: &str, endpoints: Value, ports: Value) -> Change {
    let value = json!({
        "metadata": { "name": service, "labels": { LABEL_SERVICE_NAME: service } }, "addressType": "IPv4",
        "endpoints": endpoints, "ports": ports,
    });
    Change::EndpointSlice(key(service), Some(object(value)))
}

pub fn slice_of_hosts(service: &str, hosts: &[&str], protocol: &str) -> Change {
    let endpoints: Vec<Value> = hosts.iter().map(|host| json!({ "addresses": [host] })).collect();
    slice(service, json!(endpoints), json!([{ "port": 8080, "protocol": protocol }]))
}

pub fn node(name: &str, mut value: Value) -> Change {
    value["metadata"]["name"] = json!(name);
    Change::Node(name.to_owned(), Some(object(value)))
}

pub fn service_port(name: ServicePortName, cluster_ip: &str) -> ServicePort {
    ServicePort {
        name,
        cluster_ip: Some(cluster_ip.parse().unwrap()),
        port: 80,
        node_port: None,
        external_ips: Vec::new(),
        load_balancer_ips: Vec::new(),
        source_ranges: Vec::new(),
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        affinity_across_ports: false,
        health_check_node_port: None,
        flow_fate: None,
        local_fallback: false,
        annotated_ranges: None,
        load_balancing: None,
    }
}

pub fn endpoint(address: &str) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        local: false,
        unplaced: false,
        ready: true,
        serving: true,
        terminating: false,
        zone_hints: BTreeSet::new(),
        node_hints: BTreeSet::new(),
    }
}
