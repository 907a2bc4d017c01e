//! `healthCheckNodePort`: what a node tells the load balancer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::address::Family;
use crate::endpoints;
use crate::service;
use crate::world::Objects;

/// One service's health check on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// Kubernetes namespace of the service.
    pub namespace: String,
    /// Its name.
    pub service: String,
    /// The port that answers, over HTTP, on the node's addresses.
    pub port: u16,
    /// How many of its ready endpoints are on the node. Those that terminate are not ready.
    pub local_endpoints: usize,
}

impl HealthCheck {
    /// The HTTP status: 200 with endpoints, 503 without.
    #[must_use]
    pub fn status(&self) -> u16 {
        if self.local_endpoints > 0 { 200 } else { 503 }
    }
}

/// The health checks that `node` answers: one for each LoadBalancer service with externalTrafficPolicy Local.
#[must_use]
pub fn checks(objects: &Objects, node: &str) -> Vec<HealthCheck> {
    let check = |service: &k8s_openapi::api::core::v1::Service| {
        let spec = service.spec.as_ref()?;
        let applies = spec.type_.as_deref() == Some("LoadBalancer")
            && spec.external_traffic_policy.as_deref() == Some("Local")
            && service::left_alone(service).is_none();
        let port = spec.health_check_node_port.filter(|_| applies)?;
        let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
        let ports = Family::ALL.into_iter().flat_map(|family| service::ports(service, family));
        let local: BTreeSet<(Family, IpAddr)> = ports.flat_map(|port| ready_here(objects, &port, node)).collect();
        // A dual-stack service's families are counted by one proxy each; the one with more is what pods there are.
        let of = |family| local.iter().filter(|(of, _)| *of == family).count();
        Some(HealthCheck {
            namespace: service.metadata.namespace.clone().unwrap_or_default(),
            service: service.metadata.name.clone().unwrap_or_default(),
            port,
            local_endpoints: of(Family::V4).max(of(Family::V6)),
        })
    };
    objects.services.iter().filter_map(check).collect()
}

fn ready_here(objects: &Objects, port: &service::ServicePort, node: &str) -> Vec<(Family, IpAddr)> {
    let copies = endpoints::copies(&objects.slices, port);
    let mine = copies.into_iter().filter(|endpoint| endpoint.ready && endpoint.is_local(node));
    mine.map(|endpoint| (port.family, endpoint.address.ip())).collect()
}
