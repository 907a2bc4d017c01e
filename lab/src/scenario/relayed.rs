//! Whom a pod sees where the proxy relays: in userspace mode the client's connection ends at the node that it is led by, and
//! the pod's begins there. So where a scenario says `client`, the pod sees an address of that node.
//!
//! This is the one place that knows of it; scenarios say what holds where the client's address can be kept.

use std::net::IpAddr;

use svclab_apiserver::objects::Store;
use svclab_cluster::traffic::probe::ClusterHost;

use super::look::Modes;
use super::resolve::{ProbePlan, addresses};
use super::values::{Frontend, Target};
use crate::expect::{SourceWanted, Wanted};
use crate::mode::Mode;

/// Turns a step's promise into what the nodes' modes can keep; says what is not promised then.
pub(super) fn probe(store: &Store, modes: &Modes, to: &Target, plan: &mut ProbePlan) -> Option<String> {
    let via = plan.route.as_ref().map(|(_, _, node)| node.as_str());
    let nodes = relaying(store, &plan.probe.from, via, to)?;
    match &mut plan.wanted {
        Wanted::Answered { source: Some(source), .. } => see(store, modes, source, &nodes),
        _ => None,
    }
}

/// The same over a connection that is open already, which any node may have led.
pub(super) fn send(store: &Store, modes: &Modes, wanted: &mut Option<Wanted>) -> Option<String> {
    match wanted {
        Some(Wanted::Answered { source: Some(source), .. }) => see(store, modes, source, &all(store)),
        _ => None,
    }
}

fn see(store: &Store, modes: &Modes, source: &mut SourceWanted, nodes: &[String]) -> Option<String> {
    let relays: Vec<&str> =
        nodes.iter().map(String::as_str).filter(|node| modes.get(*node) == Some(&Mode::Userspace)).collect();
    if !source.client || source.not || relays.is_empty() {
        return None;
    }
    // Another node of another mode may have led it all the same.
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

/// The nodes that may lead the connection; `None`: it goes to no service.
fn relaying(store: &Store, from: &ClusterHost, via: Option<&str>, to: &Target) -> Option<Vec<String>> {
    let spec = store.cluster_spec();
    match to {
        Target::Pod(..) | Target::Node(..) => return None,
        Target::Address(address) => {
            let is_pod = spec.pods.iter().any(|pod| pod.addresses.contains(&address.ip()));
            if is_pod || spec.nodes.iter().any(|node| of_node(store, &node.name).contains(&address.ip())) {
                return None;
            }
        }
        Target::Service { frontend: Frontend::NodePort(node), .. } => return Some(vec![node.clone()]),
        Target::Service { .. } => {}
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
