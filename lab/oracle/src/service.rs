//! Services of this proxy: one value per service port and family.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServicePort as PortSpec, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::address::{self, Family};
use crate::endpoint::Endpoint;
use crate::question::Protocol;
use crate::rules::Rule;
use crate::settings::LoadBalancing;

pub(crate) const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";
pub(crate) const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
/// docs/svcproxy.md, Nodes without endpoints.
const LOCAL_FALLBACK: &str = "svcproxy/local-fallback";
/// docs/svcproxy.md, Affinity across ports.
const AFFINITY_ACROSS_PORTS: &str = "svcproxy/affinity-across-ports";
const AFFINITY_SECONDS: i32 = 10_800;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePortName {
    pub namespace: String,
    pub service: String,
    /// Empty if the service port has no name.
    pub port: String,
    /// Ports of different protocols may share a name.
    pub protocol: Protocol,
}

impl ServicePortName {
    /// Returns the name for all ports of the Service.
    pub(crate) fn of_all_ports(&self) -> ServicePortName {
        ServicePortName { port: String::new(), protocol: Protocol::Tcp, ..self.clone() }
    }
}

impl fmt::Display for ServicePortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.service)?;
        if self.port.is_empty() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    ClusterIp,
    NodePort,
    ExternalIp,
    LoadBalancerIp,
}

impl FrontendKind {
    pub(crate) fn rule(self) -> Rule {
        match self {
            FrontendKind::ClusterIp => Rule::ClusterIp,
            FrontendKind::NodePort => Rule::NodePort,
            FrontendKind::ExternalIp => Rule::ExternalIp,
            FrontendKind::LoadBalancerIp => Rule::LoadBalancerIp,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ServicePort {
    pub(crate) name: ServicePortName,
    pub(crate) family: Family,
    pub(crate) created: Option<Time>,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
    pub(crate) cluster_ip: IpAddr,
    pub(crate) external_ips: Vec<IpAddr>,
    /// Load-balancer addresses with ipMode VIP.
    pub(crate) vips: Vec<IpAddr>,
    /// The allowed sources; empty: every source.
    pub(crate) source_ranges: Vec<IpNet>,
    pub(crate) other_family_has_ranges: bool,
    pub(crate) internal_local: bool,
    pub(crate) external_local: bool,
    /// Whether external packets may go to other nodes' endpoints under policy Local.
    pub(crate) local_fallback: bool,
    pub(crate) affinity: Option<Duration>,
    /// Whether the annotation asks that all ports send a client to one pod.
    pub(crate) affinity_across_ports: bool,
    /// The annotation's.
    pub(crate) load_balancing: Option<LoadBalancing>,
    /// The sources that the annotation allows for node ports and external IPs; an empty list: none.
    pub(crate) annotated_ranges: Option<Vec<IpNet>>,
    /// The endpoints of every slice; [`ports`] leaves the list empty.
    pub(crate) endpoints: Vec<Endpoint>,
}

impl ServicePort {
    /// Returns the port's addresses except node ports.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (FrontendKind, IpAddr)> + '_ {
        let external = self.external_ips.iter().map(|address| (FrontendKind::ExternalIp, *address));
        let vips = self.vips.iter().map(|address| (FrontendKind::LoadBalancerIp, *address));
        [(FrontendKind::ClusterIp, self.cluster_ip)].into_iter().chain(external).chain(vips)
    }

    /// Whether two endpoints, ready or not, have one address: then an address does not tell which one a client has met.
    pub(crate) fn has_shared_address(&self) -> bool {
        let mut ports = BTreeMap::new();
        let mut addresses = self.endpoints.iter().map(|endpoint| endpoint.address);
        addresses.any(|address| *ports.entry(address.ip()).or_insert(address.port()) != address.port())
    }
}

/// `None` if this proxy handles the service.
pub(crate) fn unhandled_reason(service: &Service) -> Option<Rule> {
    let spec = service.spec.as_ref();
    if labelled(service.metadata.labels.as_ref(), PROXY_NAME_LABEL) {
        return Some(Rule::OtherProxy);
    }
    if spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName") {
        return Some(Rule::ExternalName);
    }
    (spec.and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")).then_some(Rule::Headless)
}

pub(crate) fn labelled(labels: Option<&BTreeMap<String, String>>, label: &str) -> bool {
    labels.is_some_and(|labels| labels.contains_key(label))
}

fn annotated<'a>(service: &'a Service, annotation: &str) -> Option<&'a str> {
    service.metadata.annotations.as_ref()?.get(annotation).map(String::as_str)
}

/// Reads `clusterIPs`, else `clusterIP`, which repeats the first entry.
pub(crate) fn cluster_ip(spec: &ServiceSpec, family: Family) -> Option<IpAddr> {
    let listed = spec.cluster_ips.as_deref().unwrap_or_default();
    let texts = if listed.is_empty() { spec.cluster_ip.as_slice() } else { listed };
    texts.iter().filter_map(|text| address::parse(text)).find(|address| Family::of(*address) == family)
}

/// Whether the service has this cluster IP, whichever proxy handles it.
pub(crate) fn has_cluster_ip(service: &Service, address: IpAddr) -> bool {
    service.spec.as_ref().and_then(|spec| cluster_ip(spec, Family::of(address))) == Some(address)
}

/// Returns every address of the service, once.
pub(crate) fn mentioned(service: &Service) -> BTreeSet<IpAddr> {
    let of_family = |family| {
        let spec = service.spec.as_ref();
        let cluster = spec.and_then(|spec| cluster_ip(spec, family));
        let balancer = ingress(service, family, true).into_iter().chain(ingress(service, family, false));
        cluster.into_iter().chain(balancer).collect::<Vec<_>>()
    };
    let external = service.spec.iter().flat_map(|spec| spec.external_ips.iter().flatten());
    let external = external.filter_map(|text| address::parse(text));
    Family::ALL.into_iter().flat_map(of_family).chain(external).collect()
}

/// Empty if another proxy handles the service or it has no cluster IP of the family.
pub(crate) fn ports(service: &Service, family: Family) -> Vec<ServicePort> {
    let (None, Some(spec)) = (unhandled_reason(service), &service.spec) else { return Vec::new() };
    let Some(cluster_ip) = cluster_ip(spec, family) else { return Vec::new() };
    let of_family = |texts: &Option<Vec<String>>| -> Vec<IpAddr> {
        let all = texts.iter().flatten().filter_map(|text| address::parse(text));
        all.filter(|address| Family::of(*address) == family).collect()
    };
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    let load_balancer = kind == "LoadBalancer";
    let external_ips = of_family(&spec.external_ips);
    let ranges = if load_balancer { source_ranges(spec) } else { Vec::new() };
    let (source_ranges, others): (Vec<_>, Vec<_>) =
        ranges.into_iter().partition(|range| Family::of_range(*range) == family);
    let template = ServicePort {
        name: ServicePortName {
            namespace: service.metadata.namespace.clone().unwrap_or_default(),
            service: service.metadata.name.clone().unwrap_or_default(),
            port: String::new(),
            protocol: Protocol::Tcp,
        },
        family,
        created: service.metadata.creation_timestamp.clone(),
        port: 0,
        node_port: None,
        cluster_ip,
        external_ips,
        vips: if load_balancer { ingress(service, family, false) } else { Vec::new() },
        source_ranges,
        other_family_has_ranges: !others.is_empty(),
        internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
        local_fallback: annotated(service, LOCAL_FALLBACK) == Some("cluster"),
        external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
        affinity: affinity(spec),
        affinity_across_ports: annotated(service, AFFINITY_ACROSS_PORTS) == Some("all"),
        load_balancing: load_balancing(service),
        annotated_ranges: annotated_ranges(service, family),
        endpoints: Vec::new(),
    };
    let has_node_ports = kind == "NodePort" || load_balancer;
    spec.ports.iter().flatten().filter_map(|port| one(&template, port, has_node_ports)).collect()
}

fn one(template: &ServicePort, port: &PortSpec, has_node_ports: bool) -> Option<ServicePort> {
    let number = |number: i32| u16::try_from(number).ok().filter(|number| *number != 0);
    let mut one = template.clone();
    one.name.port = port.name.clone().unwrap_or_default();
    one.name.protocol = Protocol::parse(port.protocol.as_deref())?;
    one.port = number(port.port)?;
    one.node_port = port.node_port.filter(|_| has_node_ports).and_then(number);
    Some(one)
}

/// Returns load-balancer addresses: with `proxied` the ones whose ipMode is Proxy or unknown, otherwise the ones with
/// ipMode VIP.
pub(crate) fn ingress(service: &Service, family: Family, proxied: bool) -> Vec<IpAddr> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let entries = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    let wanted = entries.iter().filter(|entry| entry.ip_mode.as_deref().is_none_or(|mode| mode == "VIP") != proxied);
    let addresses = wanted.filter_map(|entry| address::parse(entry.ip.as_deref()?));
    addresses.filter(|address| Family::of(*address) == family).collect()
}

fn source_ranges(spec: &ServiceSpec) -> Vec<IpNet> {
    spec.load_balancer_source_ranges.iter().flatten().filter_map(|text| address::parse_range(text)).collect()
}

/// docs/svcproxy.md, Source ranges: a list with a mistake has no effect.
fn annotated_ranges(service: &Service, family: Family) -> Option<Vec<IpNet>> {
    let listed = annotated(service, "svcproxy/source-ranges")?.split(',').map(address::parse_range);
    let ranges: Option<Vec<IpNet>> = listed.collect();
    Some(ranges?.into_iter().filter(|range| Family::of_range(*range) == family).collect())
}

fn load_balancing(service: &Service) -> Option<LoadBalancing> {
    LoadBalancing::named(service.metadata.annotations.as_ref()?.get("svcproxy/load-balancing")?)
}

fn affinity(spec: &ServiceSpec) -> Option<Duration> {
    (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(AFFINITY_SECONDS);
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    })
}
