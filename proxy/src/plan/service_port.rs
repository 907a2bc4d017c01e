use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::affinity::AcrossPortsPolicy;
use super::backends::{ChosenBackends, choose, ready_local};
use super::flow_fate::FatePolicy;
use super::ignored_annotations::AnnotationIgnored;
use super::load_balancing::BalancingPolicy;
use super::source_ranges;
use super::stale_flows::{keeps_flows, needs_conntrack_cleanup};
use super::{
    BackendSet, ClusterIpFrontend, ExternalFrontends, FrontendAction, FrontendVerdict, HealthCheck, Masquerade,
    NoLocalEndpoints, ServicePortPlan, ShortCircuit,
};
use crate::model::{FlowFate, Protocol};
use crate::state::NodeInfo;
use crate::state::endpoints::Endpoint;
use crate::state::service::{ServicePort, TrafficPolicy};

#[derive(Debug, Clone, Copy)]
pub struct PlanContext<'a> {
    pub node_name: &'a str,
    pub node: &'a NodeInfo,
    pub primary: Option<IpAddr>,
    pub masquerade_all: bool,
    /// See [`super::other_machines`].
    pub other_machines: &'a BTreeSet<IpAddr>,
    pub affinity_across_ports: AcrossPortsPolicy,
    pub fates: FatePolicy,
    /// Whether the annotation about a fallback has an effect.
    pub local_fallback: bool,
    /// Whether the annotation about sources has an effect.
    pub source_ranges: bool,
    pub balancing: BalancingPolicy,
}

pub fn plan_service_port(port: &ServicePort, endpoints: &[Endpoint], context: PlanContext<'_>) -> ServicePortPlan {
    let backends = choose(port, endpoints, context.node_name, context.node);
    let internal_verdict = verdict(port.internal_policy, &backends);
    let external_policy = external_policy(port, &backends, context);
    let external_verdict = verdict(external_policy, &backends);
    let external = port
        .externally_accessible()
        .then(|| plan_external(port, &backends, external_policy, external_verdict, context));
    let (affinity_across_ports, across_ports_ignored) = context.affinity_across_ports.decide(port, endpoints);
    let (flow_fate, fate_ignored) = context.fates.decide(port);
    let (load_balancing, balancing_ignored) = context.balancing.decide(port);
    let annotations_ignored = [
        across_ports_ignored.map(AnnotationIgnored::AffinityAcrossPorts),
        fate_ignored.map(AnnotationIgnored::FlowFate),
        balancing_ignored.map(AnnotationIgnored::LoadBalancing),
        (port.local_fallback && !context.local_fallback).then_some(AnnotationIgnored::LocalFallback),
        (port.annotated_ranges.is_some() && !context.source_ranges).then_some(AnnotationIgnored::SourceRanges),
    ];
    let short_circuits = external.as_ref().is_some_and(|external| external.short_circuit.is_some());
    ServicePortPlan {
        name: port.name.clone(),
        port: port.port,
        affinity: port.affinity,
        affinity_across_ports,
        internal: port.cluster_ip.map(|address| ClusterIpFrontend {
            address,
            action: FrontendAction {
                verdict: internal_verdict,
                masquerade: internal_masquerade(context.masquerade_all),
            },
        }),
        health_check: port
            .health_check_node_port
            .map(|number| HealthCheck { port: number, local_ready: ready_local(endpoints) }),
        no_local_endpoints: NoLocalEndpoints {
            internal: port.cluster_ip.is_some() && internal_verdict == FrontendVerdict::Drop,
            external: external.is_some() && external_verdict == FrontendVerdict::Drop,
        },
        external,
        hints_ignored: backends.hints_ignored,
        hairpins: hairpins(&backends, endpoints, short_circuits),
        serving: serving(port.name.protocol, flow_fate, endpoints),
        flow_fate,
        load_balancing,
        annotations_ignored: annotations_ignored.into_iter().flatten().collect(),
        cluster_backends: backends.cluster,
        local_backends: backends.local,
    }
}

/// Returns backends that may connect to themselves through this node. Other nodes' pods do so only in a short circuit.
/// An endpoint without `nodeName` may be local: controllers other than Kubernetes' own omit it.
fn hairpins(backends: &ChosenBackends, endpoints: &[Endpoint], short_circuits: bool) -> Vec<IpAddr> {
    // Binary search: a Service may have thousands of backends.
    let is_among = |all: &[SocketAddr], address: &SocketAddr| all.binary_search(address).is_ok();
    let is_backend = |address| is_among(&backends.cluster, address) || is_among(&backends.local, address);
    let own = endpoints.iter().filter(|endpoint| endpoint.local || endpoint.unplaced || short_circuits);
    let mut addresses: Vec<IpAddr> =
        own.filter(|endpoint| is_backend(&endpoint.address)).map(|endpoint| endpoint.address.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn serving(protocol: Protocol, fate: FlowFate, endpoints: &[Endpoint]) -> Vec<SocketAddr> {
    if !needs_conntrack_cleanup(protocol) && fate == FlowFate::Keep {
        return Vec::new();
    }
    endpoints.iter().filter(|endpoint| keeps_flows(protocol, endpoint)).map(|e| e.address).collect()
}

pub fn internal_masquerade(masquerade_all: bool) -> Masquerade {
    if masquerade_all { Masquerade::Always } else { Masquerade::NotPods }
}

fn verdict(policy: TrafficPolicy, backends: &ChosenBackends) -> FrontendVerdict {
    match policy {
        _ if !backends.any => FrontendVerdict::Reject,
        TrafficPolicy::Cluster => FrontendVerdict::Deliver(BackendSet::Cluster),
        TrafficPolicy::Local if backends.local.is_empty() => FrontendVerdict::Drop,
        TrafficPolicy::Local => FrontendVerdict::Deliver(BackendSet::Local),
    }
}

/// Returns the policy for this node: Local becomes Cluster where it finds no endpoint and the Service asks for a fallback.
fn external_policy(port: &ServicePort, backends: &ChosenBackends, context: PlanContext<'_>) -> TrafficPolicy {
    let falls_back = port.local_fallback && context.local_fallback && backends.any && backends.local.is_empty();
    if falls_back { TrafficPolicy::Cluster } else { port.external_policy }
}

fn plan_external(
    port: &ServicePort,
    backends: &ChosenBackends,
    policy: TrafficPolicy,
    verdict: FrontendVerdict,
    context: PlanContext<'_>,
) -> ExternalFrontends {
    // Under policy Cluster another node's backend must reply through this node.
    let local = policy == TrafficPolicy::Local;
    let masquerade = if local { Masquerade::Never } else { Masquerade::Always };
    let to_cluster = |masquerade| FrontendAction { verdict: FrontendVerdict::Deliver(BackendSet::Cluster), masquerade };
    let short_circuit = (local && backends.any).then(|| ShortCircuit {
        pods: to_cluster(Masquerade::Never),
        // The node's own connection may have the frontend address as source, to which no pod could reply.
        node: to_cluster(Masquerade::Always),
    });
    ExternalFrontends {
        node_port: port.node_port,
        external_ips: port.external_ips.clone(),
        load_balancer_ips: port.load_balancer_ips.clone(),
        of_other_machines: port.external_addresses().filter(|ip| context.other_machines.contains(ip)).collect(),
        allowed_sources: source_ranges::of_load_balancer_ips(port, context),
        annotated_sources: source_ranges::annotated(port, context),
        action: FrontendAction { verdict, masquerade },
        short_circuit,
    }
}
