//! A failed probe as a node's rules see it: which node decides, and who calls there.

use std::net::IpAddr;

use svclab_cluster::traffic::probe::ClusterHost;
use svclab_spec::{ClusterSpec, Protocol};

use super::super::lab::Lab;
use crate::bundle::FailedCall;
use crate::scenario::resolve::{self, ProbePlan};
use crate::scenario::{Action, Step};

impl Lab {
    /// The call of a step that is a probe, or opens a connection, and how it is sent.
    /// A caller outside is told the way to a node by a route of its own, which an archive does not have: unless it calls an
    /// address of the node's, nothing is said.
    pub(super) fn failed_call(&self, step: &Step) -> Option<(FailedCall, ProbePlan)> {
        let plan = self.store.read(|store| match &step.action {
            Action::Probe(file) => resolve::probe(store, file, &step.expect).ok(),
            Action::Connect(file) => resolve::connect(store, file, &step.expect).ok(),
            _ => None,
        })?;
        let spec = self.cluster.spec();
        let to = plan.probe.to;
        let is_inside = matches!(plan.probe.from, ClusterHost::Pod { .. } | ClusterHost::Node(_));
        let own =
            |node: &svclab_spec::NodeSpec| node.addresses.contains(&to.ip()) || node.extra_addresses.contains(&to.ip());
        if !is_inside && !spec.nodes.iter().any(own) {
            return None;
        }
        let node = deciding(&spec, &plan.probe.from, to.ip())?;
        let own = self.store.read(|store| resolve::addresses(store, &plan.probe.from)).ok()?;
        let address = plan.probe.source_address.or_else(|| own.into_iter().find(|own| own.is_ipv4() == to.is_ipv4()));
        let from = match node_of(&spec, &plan.probe.from) {
            Some(caller) if caller == node && is_node(&spec, &plan.probe.from) => "node".to_owned(),
            _ => address?.to_string(),
        };
        let protocol = match plan.probe.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        let call = FailedCall { node, from, to: to.to_string(), protocol: protocol.to_owned() };
        Some((call, plan))
    }
}

/// The node whose rules decide: that whose own address is called, for other nodes hand such a packet on unchanged; else the
/// caller's, and that of the pod that is called.
fn deciding(spec: &ClusterSpec, from: &ClusterHost, to: IpAddr) -> Option<String> {
    let has = |addresses: &[IpAddr]| addresses.contains(&to);
    let called = spec.nodes.iter().find(|node| has(&node.addresses) || has(&node.extra_addresses));
    let pod = || spec.pods.iter().find(|pod| has(&pod.addresses)).map(|pod| pod.node.clone());
    let called = called.map(|node| node.name.clone());
    called.or_else(|| node_of(spec, from)).or_else(pod)
}

fn node_of(spec: &ClusterSpec, place: &ClusterHost) -> Option<String> {
    match place {
        ClusterHost::Node(name) => Some(name.clone()),
        ClusterHost::Pod { namespace, name } => {
            let pod = spec.pods.iter().find(|pod| pod.namespace == *namespace && pod.name == *name);
            pod.map(|pod| pod.node.clone())
        }
        ClusterHost::Client(_) | ClusterHost::LoadBalancer => None,
    }
}

/// Whether a place has a node's own network.
fn is_node(spec: &ClusterSpec, place: &ClusterHost) -> bool {
    let shares = |namespace: &str, name: &str| {
        spec.pods.iter().any(|pod| pod.namespace == namespace && pod.name == name && pod.host_network)
    };
    match place {
        ClusterHost::Node(_) => true,
        ClusterHost::Pod { namespace, name } => shares(namespace, name),
        ClusterHost::Client(_) | ClusterHost::LoadBalancer => false,
    }
}
