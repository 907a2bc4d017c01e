use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};

pub use crate::model::Frontend;
use crate::model::{
    Family, FlowFate, LABEL_PROXY_NAME, LoadBalancing, ObjectKey, Protocol, ServiceAnnotation, ServicePortName,
    affinity_across_ports, local_fallback, parse_ip, source_ranges,
};

/// Default of `sessionAffinityConfig.clientIP.timeoutSeconds` (API reference: three hours).
pub const DEFAULT_AFFINITY: Duration = Duration::from_secs(10_800);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficPolicy {
    Cluster,
    Local,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    pub name: ServicePortName,
    /// `None` only if another Service owns it ([`super::claims`]).
    pub cluster_ip: Option<IpAddr>,
    /// The port of cluster, external and load-balancer IPs.
    pub port: u16,
    pub node_port: Option<u16>,
    pub external_ips: Vec<IpAddr>,
    /// Load-balancer IPs with `ipMode: VIP` (KEP-1860: packets to a `Proxy` address never reach a node).
    pub load_balancer_ips: Vec<IpAddr>,
    /// Sources that may call load-balancer IPs; empty means all.
    pub source_ranges: Vec<IpNet>,
    pub internal_policy: TrafficPolicy,
    pub external_policy: TrafficPolicy,
    pub affinity: Option<Duration>,
    /// Whether an annotation asks that all ports of the Service send a client to one pod.
    pub affinity_across_ports: bool,
    /// The health check's port, only under policy Local.
    pub health_check_node_port: Option<u16>,
    /// What an annotation asks for.
    pub flow_fate: Option<FlowFate>,
    /// Whether an annotation asks for other nodes' endpoints where external policy Local finds none.
    pub local_fallback: bool,
    /// The annotation's.
    pub load_balancing: Option<LoadBalancing>,
    /// Sources that may use node ports and external IPs. `None`: all; an empty list: none of this family.
    pub annotated_ranges: Option<Box<[IpNet]>>,
}

impl ServicePort {
    pub fn frontends(&self) -> impl Iterator<Item = Frontend> {
        let addresses = self.cluster_ip.iter().chain(&self.external_ips).chain(&self.load_balancer_ips);
        let addresses = addresses.map(|ip| Frontend::Address(SocketAddr::new(*ip, self.port)));
        addresses.chain(self.node_port.map(Frontend::NodePort))
    }

    /// Returns external and load-balancer IPs, sorted and without duplicates.
    pub fn external_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let all: BTreeSet<IpAddr> = self.external_ips.iter().chain(&self.load_balancer_ips).copied().collect();
        all.into_iter()
    }

    pub fn externally_accessible(&self) -> bool {
        self.node_port.is_some() || !self.external_ips.is_empty() || !self.load_balancer_ips.is_empty()
    }

    /// Whether endpoints on all nodes may be backends: under `externalTrafficPolicy: Local` pods and the node itself
    /// still reach them (short circuit).
    pub fn uses_cluster_endpoints(&self) -> bool {
        (self.cluster_ip.is_some() && self.internal_policy == TrafficPolicy::Cluster) || self.externally_accessible()
    }

    pub fn uses_local_endpoints(&self) -> bool {
        (self.cluster_ip.is_some() && self.internal_policy == TrafficPolicy::Local)
            || (self.external_policy == TrafficPolicy::Local && self.externally_accessible())
    }
}

/// Returns a Service's ports, sorted by name. Empty for headless and ExternalName Services, another proxy's, and those
/// without a cluster IP of the family.
pub fn service_ports(key: &ObjectKey, service: &Service, family: Family) -> Vec<ServicePort> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let labels = service.metadata.labels.as_ref();
    let is_of_another = labels.is_some_and(|labels| labels.contains_key(LABEL_PROXY_NAME));
    if is_of_another || spec.type_.as_deref() == Some("ExternalName") {
        return Vec::new();
    }
    let Some(cluster_ip) = cluster_ip(spec, family) else { return Vec::new() };
    let of_family = |ips: &mut dyn Iterator<Item = &String>| -> Vec<IpAddr> {
        let mut ips: Vec<IpAddr> = ips.filter_map(|ip| parse_ip(ip)).filter(|ip| Family::of(ip) == family).collect();
        ips.sort_unstable();
        ips.dedup();
        ips
    };
    let external_ips = of_family(&mut spec.external_ips.iter().flatten());
    let ingress =
        service.status.iter().filter_map(|s| s.load_balancer.as_ref()).flat_map(|l| l.ingress.iter().flatten());
    let vips = ingress.filter(|i| i.ip_mode.as_deref().is_none_or(|mode| mode == "VIP"));
    let load_balancer_ips = of_family(&mut vips.filter_map(|i| i.ip.as_ref()));
    let ranges_of_family = |ranges: &mut dyn Iterator<Item = IpNet>| -> Vec<IpNet> {
        let of_family = ranges.filter(|range| Family::of_net(range) == family);
        let mut ranges: Vec<IpNet> = of_family.map(|range| range.trunc()).collect();
        ranges.sort_unstable();
        ranges.dedup();
        ranges
    };
    let balanced = spec.load_balancer_source_ranges.iter().flatten();
    let balanced_ranges = ranges_of_family(&mut balanced.filter_map(|range| range.trim().parse().ok()));

    let annotations = service.metadata.annotations.as_ref();
    let value = |annotation: ServiceAnnotation| annotations.and_then(|all| all.get(annotation.key()));
    let across_ports =
        value(ServiceAnnotation::AffinityAcrossPorts).is_some_and(|value| affinity_across_ports(value) == Ok(true));
    let flow_fate = value(ServiceAnnotation::FlowFate).and_then(|value| value.parse().ok());
    let local_fallback = value(ServiceAnnotation::LocalFallback).is_some_and(|value| local_fallback(value) == Ok(true));
    let load_balancing = value(ServiceAnnotation::LoadBalancing).and_then(|value| value.parse().ok());
    let annotated = value(ServiceAnnotation::SourceRanges).and_then(|value| source_ranges(value).ok());
    let annotated_ranges = annotated.map(|ranges| ranges_of_family(&mut ranges.into_iter()).into_boxed_slice());

    let template = |name: ServicePortName, port: u16, node_port: Option<u16>| ServicePort {
        name,
        cluster_ip: Some(cluster_ip),
        port,
        node_port,
        external_ips: external_ips.clone(),
        load_balancer_ips: load_balancer_ips.clone(),
        source_ranges: balanced_ranges.clone(),
        internal_policy: policy(spec.internal_traffic_policy.as_deref()),
        external_policy: external_policy(spec),
        affinity: affinity(spec),
        affinity_across_ports: across_ports,
        health_check_node_port: health_check_node_port(spec),
        flow_fate,
        local_fallback,
        load_balancing,
        annotated_ranges: annotated_ranges.clone(),
    };
    let ports = spec.ports.iter().flatten();
    let mut ports: Vec<ServicePort> = ports
        .filter_map(|port| {
            let name = ServicePortName {
                service: key.clone(),
                port: port.name.as_deref().unwrap_or_default().into(),
                protocol: Protocol::from_api(port.protocol.as_deref())?,
            };
            let number = port_number(port.port)?;
            Some(template(name, number, port.node_port.and_then(port_number)))
        })
        .collect();
    ports.sort_by(|one, other| one.name.cmp(&other.name));
    ports
}

fn port_number(value: i32) -> Option<u16> {
    u16::try_from(value).ok().filter(|port| *port != 0)
}

fn cluster_ip(spec: &ServiceSpec, family: Family) -> Option<IpAddr> {
    let all = spec.cluster_ips.iter().flatten().chain(spec.cluster_ip.iter());
    all.filter_map(|ip| parse_ip(ip)).find(|ip| Family::of(ip) == family)
}

fn policy(value: Option<&str>) -> TrafficPolicy {
    if value == Some("Local") { TrafficPolicy::Local } else { TrafficPolicy::Cluster }
}

/// Returns `Cluster` unless type or external IPs make the Service externally reachable.
fn external_policy(spec: &ServiceSpec) -> TrafficPolicy {
    let external_ips = spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty());
    match spec.type_.as_deref() {
        Some("NodePort" | "LoadBalancer") => policy(spec.external_traffic_policy.as_deref()),
        _ if external_ips => policy(spec.external_traffic_policy.as_deref()),
        _ => TrafficPolicy::Cluster,
    }
}

fn affinity(spec: &ServiceSpec) -> Option<Duration> {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return None;
    }
    let configured =
        spec.session_affinity_config.as_ref().and_then(|c| c.client_ip.as_ref()).and_then(|c| c.timeout_seconds);
    Some(configured.and_then(|s| u64::try_from(s).ok()).map_or(DEFAULT_AFFINITY, Duration::from_secs))
}

fn health_check_node_port(spec: &ServiceSpec) -> Option<u16> {
    let wanted = spec.type_.as_deref() == Some("LoadBalancer") && external_policy(spec) == TrafficPolicy::Local;
    if wanted { spec.health_check_node_port.and_then(port_number) } else { None }
}
