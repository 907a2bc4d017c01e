//! From where a host outside sends into the cluster, and what a journey is in the words of probes.

use std::net::{IpAddr, SocketAddr};

use svclab_apiserver::objects::Store;
use svclab_cluster::traffic::probe::ProbeAnswer;
use svclab_sim::network::{Network, PacketVerdict, ReplyFailure};
use svclab_spec::{ClusterSpec, LoadBalancerVip, VipMode};

use crate::scenario::values::{Frontend, Target};

/// Whether a node answers well for a `healthCheckNodePort`, on its address of the same family as this one.
type Healthy<'a> = &'a dyn Fn(&str, IpAddr, u16) -> bool;

/// The nodes that the cloud's load balancer sends a service's traffic to, if the target is a published address of its.
pub(super) fn behind_load_balancer(
    store: &Store,
    to: &Target,
    address: SocketAddr,
    healthy: Healthy<'_>,
) -> Option<Vec<String>> {
    let Target::Service { frontend: Frontend::LoadBalancer, service, .. } = to else { return None };
    // A proxying one is the client of a node port, and no packet of the caller's gets there: see [`is_proxied`].
    let vip = store.vips_of(service).into_iter().find(|vip| vip.address == address.ip())?;
    Some(if vip.mode == VipMode::Proxy { Vec::new() } else { sends_to(store, &vip, healthy) })
}

/// The nodes that a load balancer's address leads to.
pub(super) fn sends_to(store: &Store, vip: &LoadBalancerVip, healthy: Healthy<'_>) -> Vec<String> {
    let nodes = store.cluster_spec().nodes.into_iter().map(|node| node.name);
    nodes.filter(|node| vip.health_check_node_port.is_none_or(|port| healthy(node, vip.address, port))).collect()
}

/// Whether a target's address is a proxying load balancer's.
pub(super) fn is_proxied(store: &Store, to: &Target) -> bool {
    let vips = match to {
        Target::Service { frontend: Frontend::LoadBalancer, service, .. } => store.vips_of(service),
        _ => return false,
    };
    vips.iter().any(|vip| vip.mode == VipMode::Proxy)
}

/// What the caller sees.
pub(super) fn answer(network: &Network, spec: &ClusterSpec, verdict: &PacketVerdict) -> ProbeAnswer {
    match verdict {
        PacketVerdict::Answered { by, at, saw } => {
            ProbeAnswer::Replied { server: server(spec, network.host(*by).name(), *at), peer: *saw, at: *at }
        }
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

/// Who a server says that it is: its pod; on a node, the pod of the host network with that port.
fn server(spec: &ClusterSpec, machine: &str, at: SocketAddr) -> String {
    if let Some(pod) = machine.strip_prefix("pod/") {
        return pod.to_owned();
    }
    let here = spec.pods.iter().filter(|pod| pod.host_network && machine.strip_prefix("node/") == Some(&pod.node));
    let mut serving = here.filter(|pod| pod.ports.iter().any(|port| port.port == at.port()));
    serving.next().map_or_else(|| machine.to_owned(), |pod| format!("{}/{}", pod.namespace, pod.name))
}
