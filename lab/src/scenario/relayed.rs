//! The source address that a pod sees in userspace mode. The client's connection ends at a node, whose proxy opens a
//! second connection to the pod. So where a scenario promises `client`, the pod sees an address of that node, and a
//! promised DSCP is not judged.

use std::net::IpAddr;

use svclab_apiserver::objects::Store;
use svclab_cluster::traffic::probe::ClusterHost;

use super::resolve::{ProbePlan, addresses};
use super::rule_checks::ModeByNode;
use super::values::{ProbeTarget, ServiceFrontend};
use crate::expect::{ProbePromise, SourcePromise};
use crate::mode::Mode;

/// Replaces the promised source address by the relaying nodes' addresses, and leaves out the promised DSCP. Returns
/// notes for the report.
pub(super) fn probe(store: &Store, modes: &ModeByNode, to: &ProbeTarget, plan: &mut ProbePlan) -> Vec<String> {
    let via = plan.route.as_ref().map(|(_, _, node)| node.as_str());
    let Some(nodes) = relaying(store, &plan.probe.from, via, to) else { return Vec::new() };
    let ProbePromise::Answered { source, dscp, .. } = &mut plan.wanted else { return Vec::new() };
    let source = source.as_mut().and_then(|source| replace_client(store, modes, source, &nodes));
    let is_relayed = nodes.iter().any(|node| modes.get(node) == Some(&Mode::Userspace));
    let dscp = dscp.take_if(|_| is_relayed).map(|_| "sawDscp is not promised in userspace mode".to_owned());
    source.into_iter().chain(dscp).collect()
}

/// Like [`probe`], for an open connection, which any node may relay.
pub(super) fn send(store: &Store, modes: &ModeByNode, wanted: &mut Option<ProbePromise>) -> Option<String> {
    match wanted {
        Some(ProbePromise::Answered { source: Some(source), .. }) => replace_client(store, modes, source, &all(store)),
        _ => None,
    }
}

fn replace_client(store: &Store, modes: &ModeByNode, source: &mut SourcePromise, nodes: &[String]) -> Option<String> {
    let relays: Vec<&str> =
        nodes.iter().map(String::as_str).filter(|node| modes.get(*node) == Some(&Mode::Userspace)).collect();
    if !source.client || source.not || relays.is_empty() {
        return None;
    }
    // A node in another mode forwards the client's own address.
    source.client = relays.len() < nodes.len();
    source.addresses.extend(relays.iter().flat_map(|node| of_node(store, node)));
    source.words = format!("{}, which is relayed by {}", source.words, relays.join(" or "));
    Some(format!("sawSource: client is not promised in userspace mode (relayed by {})", relays.join(" or ")))
}

fn of_node(store: &Store, node: &str) -> Vec<IpAddr> {
    addresses(store, &ClusterHost::Node(node.to_owned())).unwrap_or_default()
}

fn all(store: &Store) -> Vec<String> {
    store.cluster_spec().nodes.into_iter().map(|node| node.name).collect()
}

/// Returns the nodes that may forward the connection; `None` if the target is no service.
fn relaying(store: &Store, from: &ClusterHost, via: Option<&str>, to: &ProbeTarget) -> Option<Vec<String>> {
    let spec = store.cluster_spec();
    match to {
        ProbeTarget::Pod(..) | ProbeTarget::Node(..) => return None,
        ProbeTarget::Address(address) => {
            let is_pod = spec.pods.iter().any(|pod| pod.addresses.contains(&address.ip()));
            if is_pod || spec.nodes.iter().any(|node| of_node(store, &node.name).contains(&address.ip())) {
                return None;
            }
        }
        ProbeTarget::Service { frontend: ServiceFrontend::NodePort(node), .. } => return Some(vec![node.clone()]),
        ProbeTarget::Service { .. } => {}
    }
    let own = match from {
        ClusterHost::Node(node) => Some(node.clone()),
        ClusterHost::Pod { namespace, name } => {
            spec.pods.iter().find(|pod| pod.namespace == *namespace && pod.name == *name).map(|pod| pod.node.clone())
        }
        ClusterHost::Client(_) | ClusterHost::LoadBalancer => via.map(str::to_owned),
    };
    Some(own.map_or_else(|| all(store), |node| vec![node]))
}
