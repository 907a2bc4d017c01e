//! Which addresses and ports are served.

use std::net::IpAddr;
use std::sync::Mutex;

use crate::config::Mode;
use crate::model::{Change, LABEL_PROXY_NAME, Protocol};
use crate::mutants::{Hook, Mutant};
use crate::plan::{NodePortScope, ServicePortPlan};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "addresses-no-node-ports",
        "serves no node ports",
        "nodeport",
        Hook::Plan(|_, plan| external(plan, |node_port, _, _| *node_port = None)),
    ),
    Mutant::new(
        "addresses-no-udp-node-ports",
        "serves no node ports of UDP",
        "udp",
        Hook::Plan(|_, plan| {
            if plan.protocol() == Protocol::Udp {
                external(plan, |node_port, _, _| *node_port = None);
            }
        }),
    ),
    Mutant::new(
        "addresses-no-external-ips",
        "serves no external IPs",
        "external-ip",
        Hook::Plan(|_, plan| external(plan, |_, external_ips, _| external_ips.clear())),
    ),
    Mutant::new(
        "addresses-no-load-balancer-ips",
        "serves no addresses of load balancers",
        "loadbalancer",
        Hook::Plan(|_, plan| external(plan, |_, _, load_balancer_ips| load_balancer_ips.clear())),
    ),
    Mutant::new(
        "addresses-first-cluster-ip-only",
        "serves only the first cluster IP of a dual-stack Service",
        "dual-stack",
        Hook::Change(|change| {
            service(change, |service| {
                if let Some(ips) = service.spec.as_mut().and_then(|spec| spec.cluster_ips.as_mut()) {
                    ips.truncate(1);
                }
            })
        }),
    ),
    Mutant::new(
        "addresses-first-port-only",
        "serves only the first port of a Service",
        "named-ports",
        Hook::Change(|change| {
            service(change, |service| {
                if let Some(ports) = service.spec.as_mut().and_then(|spec| spec.ports.as_mut()) {
                    ports.truncate(1);
                }
            })
        }),
    ),
    Mutant::new(
        "addresses-other-proxys-services",
        "serves Services that name another proxy",
        "service-proxy-name",
        Hook::Change(|change| without_label(change, LABEL_PROXY_NAME)),
    ),
    Mutant::new(
        "addresses-age-ignored",
        "ignores the age of Services that claim one address",
        "claimed-address",
        Hook::Change(|change| service(change, |service| service.metadata.creation_timestamp = None)),
    ),
    Mutant::new(
        "addresses-node-ports-on-primary-only",
        "serves node ports on the node's primary address only",
        "two-interfaces",
        Hook::NodePlan(|plan| plan.node_ports = NodePortScope::Addresses(plan.primary.into_iter().collect())),
    ),
    Mutant::new(
        "addresses-node-ports-on-every-address",
        "serves node ports on every address of the node, whatever nodePortAddresses says",
        "node-port-addresses",
        Hook::NodePlan(|plan| plan.node_ports = NodePortScope::EveryLocalAddress { loopback: false }),
    ),
    Mutant::new(
        "addresses-node-ports-do-not-follow",
        "keeps node ports on the addresses that the node had first",
        "node-port-address-moves",
        Hook::NodePlan(|plan| {
            static FIRST: Mutex<Vec<(crate::model::Family, NodePortScope)>> = Mutex::new(Vec::new());
            let Ok(mut first) = FIRST.lock() else { return };
            let is_known = matches!(&plan.node_ports, NodePortScope::Addresses(addresses) if !addresses.is_empty());
            match first.iter().find(|(family, _)| *family == plan.family) {
                Some((_, scope)) => plan.node_ports = scope.clone(),
                None if is_known => first.push((plan.family, plan.node_ports.clone())),
                None => {}
            }
        }),
    )
    .remembering(),
    Mutant::new(
        "addresses-unused-cluster-ips-pass",
        "lets packets to unused addresses of a ServiceCIDR pass",
        "service-cidr",
        Hook::NodePlan(|plan| plan.service_ranges.clear()),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "addresses-removed-service-cidr-stays",
        "never forgets a ServiceCIDR",
        "service-cidr",
        Hook::Change(|change| {
            if let Change::ServiceCidr(_, None) = change {
                *change = nothing();
            }
        }),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "addresses-removed-services-stay",
        "never forgets a deleted Service",
        "claimed-address",
        Hook::Change(|change| {
            if let Change::Service(_, None) = change {
                *change = nothing();
            }
        }),
    ),
    Mutant::new(
        "addresses-external-follow-internal-family",
        "serves external IPs of IPv4 only",
        "dual-stack",
        Hook::Plan(|_, plan| external(plan, |_, external_ips, _| external_ips.retain(IpAddr::is_ipv4))),
    ),
];

/// A change without an effect.
pub(super) fn nothing() -> Change {
    Change::Node("no-node".to_owned(), None)
}

fn external(plan: &mut ServicePortPlan, turn: fn(&mut Option<u16>, &mut Vec<IpAddr>, &mut Vec<IpAddr>)) {
    if let Some(external) = &mut plan.external {
        turn(&mut external.node_port, &mut external.external_ips, &mut external.load_balancer_ips);
    }
}

pub(super) fn service(change: &mut Change, turn: impl FnOnce(&mut k8s_openapi::api::core::v1::Service)) {
    if let Change::Service(_, Some(service)) = change {
        turn(std::sync::Arc::make_mut(service));
    }
}

fn without_label(change: &mut Change, label: &str) {
    let labels = match change {
        Change::Service(_, Some(service)) => &mut std::sync::Arc::make_mut(service).metadata.labels,
        Change::EndpointSlice(_, Some(slice)) => &mut std::sync::Arc::make_mut(slice).metadata.labels,
        _ => return,
    };
    if let Some(labels) = labels {
        labels.remove(label);
    }
}
