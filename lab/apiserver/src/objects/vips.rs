use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use svclab_spec::{LoadBalancerVip, PROXY_HEALTH_PORT, Protocol, VipMode};

use super::service;

pub(super) fn vips_of(service: &Service) -> Vec<LoadBalancerVip> {
    let spec = service.spec.clone().unwrap_or_default();
    let port = |number: i32| u16::try_from(number).ok();
    let ports: Vec<_> = spec
        .ports
        .iter()
        .flatten()
        .filter_map(|entry| {
            let protocol = match entry.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                // The load balancer supports TCP and UDP only.
                Some("SCTP") => return None,
                _ => Protocol::Tcp,
            };
            // Only `Proxy` mode needs the node port.
            Some((protocol, port(entry.port)?, port(entry.node_port.unwrap_or(entry.port))?))
        })
        .collect();
    let published = service::ingress_of(service).into_iter().filter_map(|ingress| {
        let address: IpAddr = ingress.ip?.parse().ok()?;
        let mode = if ingress.ip_mode.as_deref() == Some("Proxy") { VipMode::Proxy } else { VipMode::Vip };
        Some((address, mode))
    });
    published
        .map(|(address, mode)| LoadBalancerVip {
            address,
            mode,
            ports: ports.clone(),
            health_check_port: spec.health_check_node_port.and_then(port).unwrap_or(PROXY_HEALTH_PORT),
        })
        .collect()
}
