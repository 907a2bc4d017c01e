//! Finds where outside requests enter the cluster, and converts outcomes to probe outcomes.

use std::net::{IpAddr, SocketAddr};

use svclab_apiserver::objects::Store;
use svclab_cluster::traffic::probe::ProbeAnswer;
use svclab_sim::network::{Network, PacketVerdict, ReplyFailure};
use svclab_spec::{ClusterSpec, LoadBalancerVip, VipMode};

use crate::scenario::values::{ProbeTarget, ServiceFrontend};

/// Whether a health check succeeds, by node, address and port.
type HealthLookup<'a> = &'a dyn Fn(&str, IpAddr, u16) -> bool;

pub(super) fn behind_load_balancer(
    store: &Store,
    to: &ProbeTarget,
    address: SocketAddr,
    healthy: HealthLookup<'_>,
) -> Option<Vec<String>> {
    let ProbeTarget::Service { frontend: ServiceFrontend::LoadBalancer(_), service, .. } = to else { return None };
    // A proxying load balancer connects to a node port: see [`is_proxied`].
    let vip = store.vips_of(service).into_iter().find(|vip| vip.address == address.ip())?;
    Some(if vip.mode == VipMode::Proxy { Vec::new() } else { sends_to(store, &vip, healthy) })
}

pub(super) fn sends_to(store: &Store, vip: &LoadBalancerVip, healthy: HealthLookup<'_>) -> Vec<String> {
    let nodes = store.cluster_spec().nodes.into_iter().map(|node| node.name);
    nodes.filter(|node| healthy(node, vip.address, vip.health_check_port)).collect()
}

pub(super) fn is_proxied(store: &Store, to: &ProbeTarget, address: IpAddr) -> bool {
    let vips = match to {
        ProbeTarget::Service { frontend: ServiceFrontend::LoadBalancer(_), service, .. } => store.vips_of(service),
        _ => return false,
    };
    vips.iter().any(|vip| vip.mode == VipMode::Proxy && vip.address == address)
}

pub(super) fn answer(network: &Network, spec: &ClusterSpec, verdict: &PacketVerdict) -> ProbeAnswer {
    match verdict {
        PacketVerdict::Answered { by, at, saw } => ProbeAnswer::Replied {
            server: server(spec, network.host(*by).name(), *at),
            peer: *saw,
            at: *at,
            dscp: None,
        },
        PacketVerdict::Unanswered { why: ReplyFailure::WrongSource { from }, .. } => {
            ProbeAnswer::Broken(format!("an answer from {from}"))
        }
        PacketVerdict::Refused { delivered: true, .. } | PacketVerdict::Rejected { delivered: true, .. } => {
            ProbeAnswer::Refused
        }
        PacketVerdict::Refused { .. }
        | PacketVerdict::Rejected { .. }
        | PacketVerdict::Unanswered { .. }
        | PacketVerdict::Dropped { .. } => ProbeAnswer::TimedOut,
    }
}

/// Returns the name that the server reports: the pod, or on a node the host-network pod with that port.
fn server(spec: &ClusterSpec, machine: &str, at: SocketAddr) -> String {
    if let Some(pod) = machine.strip_prefix("pod/") {
        return pod.to_owned();
    }
    let here = spec.pods.iter().filter(|pod| pod.host_network && machine.strip_prefix("node/") == Some(&pod.node));
    let mut serving = here.filter(|pod| pod.ports.iter().any(|port| port.port == at.port()));
    serving.next().map_or_else(|| machine.to_owned(), |pod| format!("{}/{}", pod.namespace, pod.name))
}
