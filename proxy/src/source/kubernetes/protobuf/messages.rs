//! The fields that the proxy keeps or checks, with the numbers of Kubernetes' `generated.proto` files. Decoding skips all other
//! fields.
//!
//! An `optional` field is a pointer in Kubernetes' Go types. API servers always write the others, with their zero value if unset.

use prost::Message;

use super::meta::{ObjectMeta, Time};

#[derive(Clone, PartialEq, Message)]
pub struct Service {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<ServiceSpec>,
    #[prost(message, optional, tag = "3")]
    pub status: Option<ServiceStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServiceSpec {
    #[prost(message, repeated, tag = "1")]
    pub ports: Vec<ServicePort>,
    #[prost(string, tag = "3")]
    pub cluster_ip: String,
    #[prost(string, tag = "4")]
    pub r#type: String,
    #[prost(string, repeated, tag = "5")]
    pub external_ips: Vec<String>,
    #[prost(string, tag = "7")]
    pub session_affinity: String,
    #[prost(string, tag = "8")]
    pub load_balancer_ip: String,
    #[prost(string, repeated, tag = "9")]
    pub load_balancer_source_ranges: Vec<String>,
    #[prost(string, tag = "10")]
    pub external_name: String,
    #[prost(string, tag = "11")]
    pub external_traffic_policy: String,
    #[prost(int32, tag = "12")]
    pub health_check_node_port: i32,
    #[prost(bool, tag = "13")]
    pub publish_not_ready_addresses: bool,
    #[prost(message, optional, tag = "14")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    #[prost(string, optional, tag = "17")]
    pub ip_family_policy: Option<String>,
    #[prost(string, repeated, tag = "18")]
    pub cluster_ips: Vec<String>,
    #[prost(string, repeated, tag = "19")]
    pub ip_families: Vec<String>,
    #[prost(bool, optional, tag = "20")]
    pub allocate_load_balancer_node_ports: Option<bool>,
    #[prost(string, optional, tag = "21")]
    pub load_balancer_class: Option<String>,
    #[prost(string, optional, tag = "22")]
    pub internal_traffic_policy: Option<String>,
    #[prost(string, optional, tag = "23")]
    pub traffic_distribution: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServicePort {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub protocol: String,
    #[prost(int32, tag = "3")]
    pub port: i32,
    #[prost(message, optional, tag = "4")]
    pub target_port: Option<IntOrString>,
    #[prost(int32, tag = "5")]
    pub node_port: i32,
    #[prost(string, optional, tag = "6")]
    pub app_protocol: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IntOrString {
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    #[prost(int32, tag = "2")]
    pub int: i32,
    #[prost(string, tag = "3")]
    pub string: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct SessionAffinityConfig {
    #[prost(message, optional, tag = "1")]
    pub client_ip: Option<ClientIpConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ClientIpConfig {
    #[prost(int32, optional, tag = "1")]
    pub timeout_seconds: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServiceStatus {
    #[prost(message, optional, tag = "1")]
    pub load_balancer: Option<LoadBalancerStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LoadBalancerStatus {
    #[prost(message, repeated, tag = "1")]
    pub ingress: Vec<LoadBalancerIngress>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LoadBalancerIngress {
    #[prost(string, tag = "1")]
    pub ip: String,
    #[prost(string, tag = "2")]
    pub hostname: String,
    #[prost(string, optional, tag = "3")]
    pub ip_mode: Option<String>,
    #[prost(message, repeated, tag = "4")]
    pub ports: Vec<PortStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PortStatus {
    #[prost(int32, tag = "1")]
    pub port: i32,
    #[prost(string, tag = "2")]
    pub protocol: String,
    #[prost(string, optional, tag = "3")]
    pub error: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EndpointSlice {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, repeated, tag = "2")]
    pub endpoints: Vec<Endpoint>,
    #[prost(message, repeated, tag = "3")]
    pub ports: Vec<EndpointPort>,
    #[prost(string, tag = "4")]
    pub address_type: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Endpoint {
    #[prost(string, repeated, tag = "1")]
    pub addresses: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub conditions: Option<EndpointConditions>,
    #[prost(string, optional, tag = "3")]
    pub hostname: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub node_name: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub zone: Option<String>,
    #[prost(message, optional, tag = "8")]
    pub hints: Option<EndpointHints>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EndpointConditions {
    #[prost(bool, optional, tag = "1")]
    pub ready: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub serving: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub terminating: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EndpointHints {
    #[prost(message, repeated, tag = "1")]
    pub for_zones: Vec<Named>,
    #[prost(message, repeated, tag = "2")]
    pub for_nodes: Vec<Named>,
}

/// `ForZone` and `ForNode`.
#[derive(Clone, PartialEq, Message)]
pub struct Named {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct EndpointPort {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub protocol: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub port: Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub app_protocol: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<NodeSpec>,
    #[prost(message, optional, tag = "3")]
    pub status: Option<NodeStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeSpec {
    #[prost(string, tag = "1")]
    pub pod_cidr: String,
    #[prost(message, repeated, tag = "5")]
    pub taints: Vec<Taint>,
    #[prost(string, repeated, tag = "7")]
    pub pod_cidrs: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Taint {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(string, tag = "3")]
    pub effect: String,
    #[prost(message, optional, tag = "4")]
    pub time_added: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeStatus {
    #[prost(message, repeated, tag = "5")]
    pub addresses: Vec<NodeAddress>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeAddress {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(string, tag = "2")]
    pub address: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServiceCidr {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<ServiceCidrSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServiceCidrSpec {
    #[prost(string, repeated, tag = "1")]
    pub cidrs: Vec<String>,
}

/// `events.k8s.io/v1`; the only kind that the proxy writes.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, optional, tag = "2")]
    pub event_time: Option<MicroTime>,
    #[prost(string, tag = "4")]
    pub reporting_controller: String,
    #[prost(string, tag = "5")]
    pub reporting_instance: String,
    #[prost(string, tag = "6")]
    pub action: String,
    #[prost(string, tag = "7")]
    pub reason: String,
    #[prost(message, optional, tag = "8")]
    pub regarding: Option<ObjectReference>,
    #[prost(string, tag = "10")]
    pub note: String,
    #[prost(string, tag = "11")]
    pub r#type: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ObjectReference {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub namespace: String,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub uid: String,
    #[prost(string, tag = "5")]
    pub api_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct MicroTime {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanoseconds: i32,
}
