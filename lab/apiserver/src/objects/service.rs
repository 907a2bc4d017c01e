//! Defaults and allocations of Services.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{
    ClientIPConfig, LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec, ServiceStatus,
    SessionAffinityConfig,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::allocate::{Allocations, NODE_PORTS};
use super::error::ObjectError;
use super::object::ObjectKey;

const AFFINITY_SECONDS: i32 = 10_800;
const INGRESS_IP: &str = "status.loadBalancer.ingress[].ip";

pub(super) struct AddressPools<'a> {
    /// The ranges, the primary family first.
    pub(super) service_cidrs: &'a [IpNet],
    /// The ranges of all ServiceCIDR objects: manifests may name any of their addresses.
    pub(super) all_service_cidrs: &'a [IpNet],
    /// The nodes' pod ranges, which no address is drawn from where they overlap the service ranges.
    pub(super) pod_ranges: &'a [IpNet],
    /// Ranges of load-balancer addresses; empty without a load balancer.
    pub(super) vip_ranges: &'a [IpNet],
    pub(super) seed: u64,
}

struct ServiceAdmission<'a> {
    object: String,
    pools: &'a AddressPools<'a>,
    allocations: &'a mut Allocations,
}

/// Completes a Service; omitted fields keep the value of `previous`.
pub(super) fn admit(
    mut service: Service,
    key: &ObjectKey,
    previous: Option<&Service>,
    pools: &AddressPools<'_>,
    allocations: &mut Allocations,
) -> Result<Service, ObjectError> {
    let mut admission = ServiceAdmission { object: format!("service/{key}"), pools, allocations };
    let mut spec = service.spec.take().unwrap_or_default();
    let previous_spec = previous.and_then(|previous| previous.spec.clone()).unwrap_or_default();
    defaults(&mut spec);
    if spec.type_.as_deref() != Some("ExternalName") {
        admission.cluster_ips(&mut spec, &previous_spec)?;
        // Claims requested and kept ports first, so that no allocated port collides with them.
        admission.claim_requested_node_ports(&mut spec, &previous_spec)?;
        admission.health_check_port(&mut spec, &previous_spec)?;
        admission.allocate_missing_node_ports(&mut spec)?;
        admission.external_ips(&spec)?;
    }
    admission.publish_addresses(&mut service, &spec, previous)?;
    service.spec = Some(spec);
    Ok(service)
}

fn equals(value: Option<&String>, expected: &str) -> bool {
    value.is_some_and(|value| value == expected)
}

fn may_have_node_ports(spec: &ServiceSpec) -> bool {
    equals(spec.type_.as_ref(), "NodePort") || equals(spec.type_.as_ref(), "LoadBalancer")
}

/// Whether to allocate node ports; requested ones are kept anyway.
fn wants_automatic_node_ports(spec: &ServiceSpec) -> bool {
    let not_wanted =
        equals(spec.type_.as_ref(), "LoadBalancer") && spec.allocate_load_balancer_node_ports == Some(false);
    may_have_node_ports(spec) && !not_wanted
}

fn defaults(spec: &mut ServiceSpec) {
    let text = |value: &str| Some(value.to_owned());
    spec.type_ = spec.type_.take().or_else(|| text("ClusterIP"));
    spec.session_affinity = spec.session_affinity.take().or_else(|| text("None"));
    if equals(spec.type_.as_ref(), "ExternalName") {
        return;
    }
    let affinity = equals(spec.session_affinity.as_ref(), "ClientIP");
    let config = spec.session_affinity_config.take().filter(|_| affinity);
    let client_ip = config.and_then(|config| config.client_ip).unwrap_or_default();
    spec.session_affinity_config = affinity.then(|| SessionAffinityConfig {
        client_ip: Some(ClientIPConfig { timeout_seconds: client_ip.timeout_seconds.or(Some(AFFINITY_SECONDS)) }),
    });
    if equals(spec.type_.as_ref(), "LoadBalancer") {
        spec.allocate_load_balancer_node_ports.get_or_insert(true);
    }
    spec.internal_traffic_policy = spec.internal_traffic_policy.take().or_else(|| text("Cluster"));
    let external = spec.external_ips.as_ref().is_some_and(|addresses| !addresses.is_empty());
    if !equals(spec.type_.as_ref(), "ClusterIP") || external {
        spec.external_traffic_policy = spec.external_traffic_policy.take().or_else(|| text("Cluster"));
    }
    for port in spec.ports.iter_mut().flatten() {
        port.protocol = port.protocol.take().or_else(|| text("TCP"));
        port.target_port = port.target_port.take().or(Some(IntOrString::Int(port.port)));
    }
}

impl ServiceAdmission<'_> {
    fn field(&self, field: &str, problem: impl Into<String>) -> ObjectError {
        ObjectError::field(&self.object, field, problem)
    }

    fn exhausted(&self, field: &str, range: String) -> ObjectError {
        ObjectError::Exhausted { object: self.object.clone(), field: field.to_owned(), range }
    }

    fn address(&self, field: &str, text: &str) -> Result<IpAddr, ObjectError> {
        text.parse().map_err(|_| self.field(field, format!("{text:?} is no IP address")))
    }

    fn claim(&mut self, field: &str, address: IpAddr) -> Result<(), ObjectError> {
        let claimed = self.allocations.claim_address(address, &self.object);
        claimed.map_err(|owner| self.field(field, format!("{address} already belongs to {owner}")))
    }

    fn ranges_for_families(&self, spec: &ServiceSpec) -> Result<Vec<IpNet>, ObjectError> {
        let available = self.pools.service_cidrs;
        let policy = spec.ip_family_policy.as_deref().unwrap_or("SingleStack");
        let wanted: Vec<IpNet> = match &spec.ip_families {
            None => available.to_vec(),
            Some(families) => families
                .iter()
                .map(|family| {
                    available.iter().find(|range| family_name(range.addr()) == family).copied().ok_or_else(|| {
                        self.field("spec.ipFamilies", format!("this cluster has no {family} service range"))
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        let rest = available.iter().filter(|range| !wanted.contains(range)).copied().collect::<Vec<_>>();
        match policy {
            "SingleStack" if spec.ip_families.as_ref().is_some_and(|families| families.len() > 1) => Ok(wanted),
            "SingleStack" => Ok(wanted.into_iter().take(1).collect()),
            "PreferDualStack" => Ok([wanted, rest].concat()),
            "RequireDualStack" if available.len() > 1 => Ok([wanted, rest].concat()),
            "RequireDualStack" => Err(self.field("spec.ipFamilyPolicy", "this cluster has one IP family only")),
            other => Err(self.field(
                "spec.ipFamilyPolicy",
                format!("{other:?}: expected SingleStack, PreferDualStack or RequireDualStack"),
            )),
        }
    }

    fn cluster_ips(&mut self, spec: &mut ServiceSpec, previous: &ServiceSpec) -> Result<(), ObjectError> {
        let selects = spec.selector.as_ref().is_some_and(|selector| !selector.is_empty());
        if equals(spec.cluster_ip.as_ref(), "None") && !selects && spec.ip_family_policy.is_none() {
            // Without a selector, endpoints may have families that the cluster lacks.
            return headless_without_selector(spec, self.pools.service_cidrs);
        }
        let ranges = self.ranges_for_families(spec)?;
        spec.ip_families = Some(ranges.iter().map(|range| family_name(range.addr()).to_owned()).collect());
        let policy = if ranges.len() > 1 { "PreferDualStack" } else { "SingleStack" };
        spec.ip_family_policy.get_or_insert_with(|| policy.to_owned());
        if equals(spec.cluster_ip.as_ref(), "None") {
            spec.cluster_ips = Some(vec!["None".to_owned()]);
            return Ok(());
        }
        let written = spec.cluster_ips.clone().or_else(|| spec.cluster_ip.clone().map(|ip| vec![ip]));
        let candidates = written.or_else(|| previous.cluster_ips.clone()).unwrap_or_default();
        let candidates =
            candidates.iter().map(|text| self.address("spec.clusterIPs", text)).collect::<Result<Vec<_>, _>>()?;
        let mut given = Vec::new();
        for range in ranges {
            let ours = candidates.iter().find(|address| address.is_ipv4() == range.addr().is_ipv4());
            given.push(match ours {
                Some(address)
                    if range.contains(address)
                        || self.pools.all_service_cidrs.iter().any(|range| range.contains(address)) =>
                {
                    self.claim("spec.clusterIPs", *address)?;
                    *address
                }
                Some(address) => {
                    let problem =
                        format!("{address} is not in the cluster's service range {range}, nor in another ServiceCIDR");
                    return Err(self.field("spec.clusterIPs", problem));
                }
                None => self
                    .allocations
                    .free_address(range, self.pools.pod_ranges, (self.pools.seed, &self.object))
                    .ok_or_else(|| self.exhausted("spec.clusterIPs", range.to_string()))?,
            });
        }
        spec.cluster_ip = given.first().map(ToString::to_string);
        spec.cluster_ips = Some(given.iter().map(ToString::to_string).collect());
        Ok(())
    }

    fn claim_requested_node_ports(
        &mut self,
        spec: &mut ServiceSpec,
        previous: &ServiceSpec,
    ) -> Result<(), ObjectError> {
        let wanted = may_have_node_ports(spec);
        for (index, port) in spec.ports.iter_mut().flatten().enumerate() {
            let protocol = port.protocol.clone().unwrap_or_default();
            let field = format!("spec.ports[{index}].nodePort");
            let kept = || previous.ports.iter().flatten().find(|old| same_port(old, port))?.node_port;
            port.node_port = match port.node_port.or_else(kept).filter(|_| wanted) {
                Some(number) => Some(i32::from(self.claim_port(&field, number, &protocol)?)),
                None => None,
            };
        }
        Ok(())
    }

    fn allocate_missing_node_ports(&mut self, spec: &mut ServiceSpec) -> Result<(), ObjectError> {
        let wanted = wants_automatic_node_ports(spec);
        let ports = spec.ports.iter_mut().flatten().enumerate();
        for (index, port) in ports.filter(|(_, port)| wanted && port.node_port.is_none()) {
            let protocol = port.protocol.clone().unwrap_or_default();
            let what = format!("{}/{}", port.port, protocol);
            let free = self.allocations.free_port(self.pools.seed, &protocol, &self.object, &what);
            let range = format!("{}-{}", NODE_PORTS.start(), NODE_PORTS.end());
            let field = format!("spec.ports[{index}].nodePort");
            port.node_port = Some(i32::from(free.ok_or_else(|| self.exhausted(&field, range))?));
        }
        Ok(())
    }

    fn claim_port(&mut self, field: &str, number: i32, protocol: &str) -> Result<u16, ObjectError> {
        let port = u16::try_from(number).ok().filter(|port| NODE_PORTS.contains(port)).ok_or_else(|| {
            let range = format!("{number}: expected {} to {}", NODE_PORTS.start(), NODE_PORTS.end());
            self.field(field, range)
        })?;
        let claimed = self.allocations.claim_port(port, protocol, &self.object).map(|()| port);
        claimed.map_err(|owner| self.field(field, format!("node port {port}/{protocol} already belongs to {owner}")))
    }

    fn health_check_port(&mut self, spec: &mut ServiceSpec, previous: &ServiceSpec) -> Result<(), ObjectError> {
        let field = "spec.healthCheckNodePort";
        let local = equals(spec.external_traffic_policy.as_ref(), "Local");
        if !local || !equals(spec.type_.as_ref(), "LoadBalancer") {
            spec.health_check_node_port = None;
            return Ok(());
        }
        let kept = spec.health_check_node_port.or(previous.health_check_node_port);
        spec.health_check_node_port = match kept {
            Some(number) => Some(i32::from(self.claim_port(field, number, "TCP")?)),
            None => {
                let free = self.allocations.free_port(self.pools.seed, "TCP", &self.object, "healthCheckNodePort");
                let range = format!("{}-{}", NODE_PORTS.start(), NODE_PORTS.end());
                Some(i32::from(free.ok_or_else(|| self.exhausted(field, range))?))
            }
        };
        Ok(())
    }

    fn external_ips(&self, spec: &ServiceSpec) -> Result<(), ObjectError> {
        spec.external_ips.iter().flatten().try_for_each(|text| self.address("spec.externalIPs", text).map(|_| ()))
    }

    /// Sets the load balancer's addresses: the manifest's, else the previous ones, else new ones. An ingress entry
    /// without address requests a new one with its `ipMode`.
    fn publish_addresses(
        &mut self,
        service: &mut Service,
        spec: &ServiceSpec,
        previous: Option<&Service>,
    ) -> Result<(), ObjectError> {
        let conditions = service.status.as_ref().and_then(|status| status.conditions.clone());
        if !equals(spec.type_.as_ref(), "LoadBalancer") {
            let load_balancer = Some(LoadBalancerStatus::default());
            service.status = Some(ServiceStatus { conditions, load_balancer });
            return Ok(());
        }
        let written = ingress_of(service);
        let mode = written.iter().find(|ingress| ingress.ip.is_none()).and_then(|ingress| ingress.ip_mode.clone());
        let mut ingress: Vec<_> = written.into_iter().filter(|ingress| ingress.ip.is_some()).collect();
        if ingress.is_empty() && mode.is_none() {
            ingress = previous.map(ingress_of).unwrap_or_default();
        }
        for entry in &mut ingress {
            let address = self.address(INGRESS_IP, entry.ip.as_deref().unwrap_or_default())?;
            self.share_published_address(spec, address)?;
            entry.ip_mode.get_or_insert_with(|| "VIP".to_owned());
        }
        if ingress.is_empty() {
            ingress = self.fresh_ingress(spec, mode.as_deref().unwrap_or("VIP"))?;
        }
        if let Some(bad) =
            ingress.iter().filter_map(|entry| entry.ip_mode.as_deref()).find(|mode| !matches!(*mode, "VIP" | "Proxy"))
        {
            return Err(self.field("status.loadBalancer.ingress[].ipMode", format!("{bad:?}: expected VIP or Proxy")));
        }
        let status = LoadBalancerStatus { ingress: (!ingress.is_empty()).then_some(ingress) };
        service.status = Some(ServiceStatus { conditions, load_balancer: Some(status) });
        Ok(())
    }

    fn share_published_address(&mut self, spec: &ServiceSpec, address: IpAddr) -> Result<(), ObjectError> {
        let port = |port: &ServicePort| {
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((u16::try_from(port.port).ok()?, protocol))
        };
        let ports: Vec<_> = spec.ports.iter().flatten().filter_map(port).collect();
        let shared = self.allocations.share_address(address, &ports, &self.object);
        shared.map_err(|owner| self.field(INGRESS_IP, format!("{address} already belongs to {owner}")))
    }

    fn fresh_ingress(&mut self, spec: &ServiceSpec, mode: &str) -> Result<Vec<LoadBalancerIngress>, ObjectError> {
        let families = spec.ip_families.clone().unwrap_or_default();
        let mut ingress = Vec::new();
        for range in self.pools.vip_ranges {
            if families.iter().any(|family| family == family_name(range.addr())) {
                let address = self
                    .allocations
                    .next_address(*range, 1, &self.object)
                    .ok_or_else(|| self.exhausted(INGRESS_IP, range.to_string()))?;
                self.share_published_address(spec, address)?;
                let (ip, ip_mode) = (Some(address.to_string()), Some(mode.to_owned()));
                ingress.push(LoadBalancerIngress { ip, ip_mode, ..LoadBalancerIngress::default() });
            }
        }
        Ok(ingress)
    }
}

/// Sets both families, the requested ones first.
fn headless_without_selector(spec: &mut ServiceSpec, ranges: &[IpNet]) -> Result<(), ObjectError> {
    let first = ranges.first().map_or("IPv4", |range| family_name(range.addr()));
    let families = spec.ip_families.get_or_insert_with(|| vec![first.to_owned()]);
    for family in ["IPv4", "IPv6"] {
        if !families.iter().any(|known| known == family) {
            families.push(family.to_owned());
        }
    }
    spec.ip_family_policy = Some("RequireDualStack".to_owned());
    spec.cluster_ips = Some(vec!["None".to_owned()]);
    Ok(())
}

pub(crate) fn ingress_of(service: &Service) -> Vec<LoadBalancerIngress> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|status| status.ingress.clone()).unwrap_or_default()
}

/// Returns `IPv4` or `IPv6`.
pub fn family_name(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn same_port(old: &ServicePort, new: &ServicePort) -> bool {
    old.port == new.port && old.protocol == new.protocol
}
