//! Turns a failed probe into arguments of `svclab explain`.

use std::net::IpAddr;

use svclab_cluster::traffic::probe::ClusterHost;
use svclab_spec::{ClusterSpec, PodSpec};

use super::super::lab::KernelLab;
use crate::bundle::FailedCall;
use crate::expect::ProbePromise;
use crate::explanation::{WantedEnd, WantedSource};
use crate::scenario::Step;
use crate::scenario::file::Action;
use crate::scenario::resolve::{self, ProbePlan};

impl KernelLab {
    /// Returns the failed call; `None` if a client called an address of no node: archives lack its route.
    pub(super) fn failed_call(&self, step: &Step) -> Option<(FailedCall, WantedEnd, ProbePlan)> {
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
        let address =
            plan.probe.source_address.or_else(|| own.iter().copied().find(|own| own.is_ipv4() == to.is_ipv4()));
        let wanted = self.wanted_end(&plan, &own);
        let from = match node_of(&spec, &plan.probe.from) {
            Some(caller) if caller == node && is_node(&spec, &plan.probe.from) => "node".to_owned(),
            _ => address?.to_string(),
        };
        let protocol = plan.probe.protocol.to_string().to_lowercase();
        let call = FailedCall { node, from, to: to.to_string(), protocol };
        Some((call, wanted, plan))
    }

    fn wanted_end(&self, plan: &ProbePlan, callers: &[IpAddr]) -> WantedEnd {
        let ProbePromise::Answered { by, source, .. } = &plan.wanted else { return WantedEnd::NoAnswer };
        let pods = self.cluster.spec().pods;
        let is_wanted = |pod: &&PodSpec| by.iter().any(|(name, _)| *name == format!("{}/{}", pod.namespace, pod.name));
        let servers = pods.iter().filter(is_wanted).flat_map(|pod| pod.addresses.clone()).collect();
        let source = source.as_ref().map(|source| {
            let own = source.client.then(|| callers.iter().chain(&plan.probe.source_address)).into_iter().flatten();
            WantedSource { addresses: source.addresses.iter().chain(own).copied().collect(), not: source.not }
        });
        WantedEnd::Answer { servers, source }
    }
}

/// Returns the node whose rules decide: the one with the called address, as other nodes forward such packets unchanged;
/// else the caller's node; else the called pod's node.
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
