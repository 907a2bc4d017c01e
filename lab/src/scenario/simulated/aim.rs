//! From where a host outside sends into the cluster, and what a journey is in the words of probes.

use std::net::SocketAddr;

use svclab_sim::network::{Broken, Network, Verdict};

use crate::cluster::spec::{ClusterSpec, LoadBalancerVip, VipMode};

use crate::objects::{Kind, ObjectKey, Store};
use crate::scenario::words::{Frontend, Target};
use crate::traffic::probe::Answer;

/// The nodes that the cloud's load balancer sends a service's traffic to, if the target is a published address of its.
pub(super) fn behind_load_balancer(store: &Store, to: &Target, address: SocketAddr) -> Option<Vec<String>> {
    let Target::Service { frontend: Frontend::LoadBalancer, service, .. } = to else { return None };
    let vip = store.vips_of(service).into_iter().find(|vip| vip.address == address.ip())?;
    let nodes = store.cluster_spec().nodes.into_iter().map(|node| node.name);
    Some(match vip {
        LoadBalancerVip { mode: VipMode::Vip, health_check_node_port: None, .. } => nodes.collect(),
        LoadBalancerVip { mode: VipMode::Vip, .. } => {
            let serving = nodes_with_ready_endpoints(store, service);
            nodes.filter(|node| serving.contains(node)).collect()
        }
        // It is the client of a node port then, and no packet of the caller's gets there: see [`is_proxied`].
        LoadBalancerVip { mode: VipMode::Proxy, .. } => Vec::new(),
    })
}

/// Whether a target's address is a proxying load balancer's.
pub(super) fn is_proxied(store: &Store, to: &Target) -> bool {
    let vips = match to {
        Target::Service { frontend: Frontend::LoadBalancer, service, .. } => store.vips_of(service),
        _ => return false,
    };
    vips.iter().any(|vip| vip.mode == VipMode::Proxy)
}

/// By the EndpointSlices, as a health check counts.
fn nodes_with_ready_endpoints(store: &Store, service: &ObjectKey) -> Vec<String> {
    let mut nodes = Vec::new();
    for record in store.records(Kind::EndpointSlice) {
        let slice: serde_json::Value = serde_json::from_slice(&record.json).unwrap_or_default();
        let of_service = slice["metadata"]["labels"]["kubernetes.io/service-name"] == service.name.as_str()
            && slice["metadata"]["namespace"] == service.namespace.as_str();
        let endpoints = slice["endpoints"].as_array().filter(|_| of_service);
        let ready = endpoints.into_iter().flatten().filter(|one| one["conditions"]["ready"] != false);
        nodes.extend(ready.filter_map(|one| one["nodeName"].as_str().map(str::to_owned)));
    }
    nodes
}

/// What the caller sees.
pub(super) fn answer(network: &Network, spec: &ClusterSpec, verdict: &Verdict) -> Answer {
    match verdict {
        Verdict::Answered { by, at, saw } => {
            Answer::Replied { server: server(spec, network.host(*by).name(), *at), peer: *saw, at: *at }
        }
        Verdict::Unanswered { why: Broken::WrongSource { from }, .. } => {
            Answer::Broken(format!("an answer from {from}"))
        }
        Verdict::Refused { told: true, .. } | Verdict::Rejected { told: true, .. } => Answer::Refused,
        Verdict::Refused { .. } | Verdict::Rejected { .. } | Verdict::Unanswered { .. } | Verdict::Dropped { .. } => {
            Answer::TimedOut
        }
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
