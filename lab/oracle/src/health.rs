use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::address::Family;
use crate::endpoints::{self, SlicesByService};
use crate::rules::Reasons;
use crate::service;
use crate::world::Objects;

/// The result of a service's health check on one node; each family's proxy counts its own endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    pub namespace: String,
    pub service: String,
    pub port: u16,
    pub family: Family,
    /// Addresses of ready local endpoints, whatever their ports. `None`: contradicting copies.
    pub local_endpoints: Option<usize>,
}

impl HealthCheck {
    pub fn status(&self) -> Option<u16> {
        self.local_endpoints.map(|endpoints| if endpoints > 0 { 200 } else { 503 })
    }
}

/// Returns a check for each LoadBalancer service with `externalTrafficPolicy: Local`.
pub fn checks(objects: &Objects, node: &str) -> Vec<HealthCheck> {
    let slices = SlicesByService::new(&objects.slices);
    let of_service = |service: &k8s_openapi::api::core::v1::Service| {
        let Some(port) = health_check_port(service) else { return Vec::new() };
        let of_family = |family: Family| {
            let ports = service::ports(service, family);
            let own: Option<Vec<BTreeSet<IpAddr>>> =
                ports.iter().map(|port| ready_local_addresses(&slices, port, node)).collect();
            (!ports.is_empty()).then(|| HealthCheck {
                namespace: service.metadata.namespace.clone().unwrap_or_default(),
                service: service.metadata.name.clone().unwrap_or_default(),
                port,
                family,
                local_endpoints: own.map(|own| own.into_iter().flatten().collect::<BTreeSet<_>>().len()),
            })
        };
        Family::ALL.into_iter().filter_map(of_family).collect::<Vec<_>>()
    };
    let mut checks: Vec<HealthCheck> = objects.services.iter().flat_map(of_service).collect();
    // The oldest service gets a port that several claim, in each family; then by name.
    let mut by_age: Vec<&k8s_openapi::api::core::v1::Service> = objects.services.iter().collect();
    by_age.sort_by_key(|service| {
        let created = service.metadata.creation_timestamp.as_ref().map(|created| created.0);
        (created.is_none(), created, service.metadata.namespace.clone(), service.metadata.name.clone())
    });
    let age = |check: &HealthCheck| {
        let is_it = |service: &&k8s_openapi::api::core::v1::Service| {
            (service.metadata.namespace.as_ref(), service.metadata.name.as_ref())
                == (Some(&check.namespace), Some(&check.service))
        };
        by_age.iter().position(is_it)
    };
    let mut answers: BTreeMap<(u16, bool), Option<usize>> = BTreeMap::new();
    for check in &checks {
        let first = answers.entry((check.port, check.family == Family::V4)).or_insert_with(|| age(check));
        *first = (*first).min(age(check));
    }
    checks.retain(|check| answers.get(&(check.port, check.family == Family::V4)) == Some(&age(check)));
    checks
}

fn health_check_port(service: &k8s_openapi::api::core::v1::Service) -> Option<u16> {
    let spec = service.spec.as_ref()?;
    let applies = spec.type_.as_deref() == Some("LoadBalancer")
        && spec.external_traffic_policy.as_deref() == Some("Local")
        && service::unhandled_reason(service).is_none();
    let port = spec.health_check_node_port.filter(|_| applies)?;
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// `None` if copies of an endpoint contradict each other.
fn ready_local_addresses(
    slices: &SlicesByService<'_>,
    port: &service::ServicePort,
    node: &str,
) -> Option<BTreeSet<IpAddr>> {
    let copies = endpoints::copies(slices, port);
    let endpoints = endpoints::merged(&copies, node, &mut Reasons::default()).ok()?;
    let mine = endpoints.into_iter().filter(|endpoint| endpoint.ready && endpoint.is_local(node));
    Some(mine.map(|endpoint| endpoint.address.ip()).collect())
}
