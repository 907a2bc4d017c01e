//! Which addresses of a Service, and of a node, are served.

use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};

use crate::config::{Mode, NodePortAddresses};
use crate::model::{Change, Family};
use crate::mutants::{Hook, Mutant};
use crate::plan::NodePortScope;

fn set_ingress(change: &mut Change, turn: fn(&mut [LoadBalancerIngress])) {
    let Change::Service(_, Some(service)) = change else { return };
    let service: &mut Service = Arc::make_mut(service);
    let status = service.status.as_mut().and_then(|status| status.load_balancer.as_mut());
    if let Some(ingress) = status.and_then(|status| status.ingress.as_mut()) {
        turn(ingress);
    }
}

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "published-first-load-balancer-ip",
        "serves only the first of several load-balancer addresses",
        "loadbalancer",
        Hook::ServicePort(|_, port| port.load_balancer_ips.truncate(1)),
    ),
    Mutant::new(
        "published-load-balancer-ip-needs-node-port",
        "serves load-balancer addresses only of Services with node ports",
        "loadbalancer",
        Hook::ServicePort(|_, port| {
            if port.node_port.is_none() {
                port.load_balancer_ips.clear();
            }
        }),
    ),
    Mutant::new(
        "published-proxy-mode-ignored",
        "serves load-balancer addresses with ipMode Proxy on the node",
        "loadbalancer",
        Hook::Change(|change| set_ingress(change, |all| all.iter_mut().for_each(|one| one.ip_mode = None))),
    ),
    Mutant::new(
        "published-first-ip-mode",
        "takes the ipMode of a Service's first load-balancer address for that of all",
        "loadbalancer",
        Hook::Change(|change| {
            set_ingress(change, |all| {
                let first = all.first().and_then(|one| one.ip_mode.clone());
                all.iter_mut().for_each(|one| one.ip_mode.clone_from(&first));
            });
        }),
    ),
    Mutant::new(
        "published-first-external-ip",
        "serves only the first of several external IPs",
        "external-ip",
        Hook::ServicePort(|_, port| port.external_ips.truncate(1)),
    ),
    Mutant::new(
        "published-first-service-cidr",
        "serves cluster IPs of the first ServiceCIDR only",
        "address-ranges",
        Hook::ServicePort(|state, port| {
            let first = state.service_cidrs().next();
            port.cluster_ip = port.cluster_ip.filter(|ip| first.is_none_or(|range| range.contains(ip)));
        }),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "published-cluster-ip-among-pods",
        "takes a cluster IP with the first two octets of a pod's address for a pod's",
        "address-ranges",
        Hook::ServicePort(|state, port| {
            let of_pods = |range: &IpNet| range.addr().is_ipv4().then(|| IpNet::new(range.addr(), 16).ok()).flatten();
            let pods: Vec<IpNet> = state.node().pod_cidrs.iter().filter_map(of_pods).collect();
            port.cluster_ip = port.cluster_ip.filter(|ip| !pods.iter().any(|range| range.contains(ip)));
        }),
    ),
    Mutant::new(
        "published-node-ports-all-as-primary",
        "takes nodePortAddresses all for primary",
        "node-port-all",
        Hook::Config(|config| {
            if config.node_port_addresses == NodePortAddresses::All {
                config.node_port_addresses = NodePortAddresses::Primary;
            }
        }),
    ),
    Mutant::new(
        "published-node-ports-all-of-ipv4",
        "opens node ports on every IPv4 address, and on the primary IPv6 address only",
        "node-port-all",
        Hook::NodePlan(|plan| {
            if plan.family == Family::V6 && matches!(plan.node_ports, NodePortScope::EveryLocalAddress { .. }) {
                plan.node_ports = NodePortScope::Addresses(plan.primary.into_iter().collect());
            }
        }),
    ),
    Mutant::new(
        "published-host-ports-masqueraded",
        "masquerades connections that another program translated, such as a hostPort's",
        "host-port",
        Hook::TablesBeside(
            "table inet mutant {
  chain postrouting {
    type nat hook postrouting priority 99; policy accept;
    ct status dnat masquerade
  }
}
",
        ),
    ),
    Mutant::new(
        "published-host-ports-dropped",
        "drops connections to a node's address that another program translated, such as a hostPort's",
        "host-port",
        Hook::TablesBeside(
            "table inet mutant {
  chain forward {
    type filter hook forward priority 1; policy accept;
    ct original ip daddr 172.18.0.2 meta l4proto tcp ct original proto-dst 8080 drop
  }
}
",
        ),
    ),
    Mutant::new(
        "published-address-of-the-api",
        "rejects what the node sends to other ports of an external IP, where the API server is",
        "api-on-node-network",
        Hook::TablesBeside(
            "table inet mutant {
  chain output {
    type filter hook output priority 1; policy accept;
    ip daddr 172.18.0.101 tcp dport 6443 reject with tcp reset
  }
}
",
        ),
    ),
];
