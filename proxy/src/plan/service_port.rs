//! One service port: its endpoints, which sources are masqueraded, what happens without endpoints.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::backends::{Backends, choose, ready_local};
use super::flows::{keeps_flows, needs_conntrack_cleanup};
use super::{
    AllowedSources, BackendSet, ClusterIpFrontend, ExternalFrontends, FrontendAction, HealthCheck, Masquerade,
    NoLocalEndpoints, ServicePortPlan, ShortCircuit, Verdict,
};
use crate::state::NodeInfo;
use crate::state::endpoints::Endpoint;
use crate::state::service::{ServicePort, TrafficPolicy};

/// What a service port's plan depends on besides the Service and its endpoints.
#[derive(Debug, Clone, Copy)]
pub struct NodeContext<'a> {
    /// This node's name.
    pub node_name: &'a str,
    /// This node's zone and ranges.
    pub node: &'a NodeInfo,
    /// The node's primary address of the family.
    pub primary: Option<IpAddr>,
    /// `masqueradeAll`.
    pub masquerade_all: bool,
    /// Addresses of other machines; see [`super::other_machines`].
    pub other_machines: &'a BTreeSet<IpAddr>,
}

/// Plans one service port.
pub fn plan_service_port(port: &ServicePort, endpoints: &[Endpoint], around: NodeContext<'_>) -> ServicePortPlan {
    let backends = choose(port, endpoints, around.node_name, around.node);
    let internal_verdict = verdict(port.internal_policy, &backends);
    let external_verdict = verdict(port.external_policy, &backends);
    let external = port.externally_accessible().then(|| plan_external(port, &backends, external_verdict, around));
    let short_circuits = external.as_ref().is_some_and(|external| external.short_circuit.is_some());
    ServicePortPlan {
        name: port.name.clone(),
        port: port.port,
        affinity: port.affinity,
        internal: port.cluster_ip.map(|address| ClusterIpFrontend {
            address,
            action: FrontendAction {
                verdict: internal_verdict,
                masquerade: internal_masquerade(around.masquerade_all),
            },
        }),
        health_check: port
            .health_check_node_port
            .map(|number| HealthCheck { port: number, local_ready: ready_local(endpoints) }),
        no_local_endpoints: NoLocalEndpoints {
            internal: port.cluster_ip.is_some() && internal_verdict == Verdict::Drop,
            external: external.is_some() && external_verdict == Verdict::Drop,
        },
        external,
        hints_ignored: backends.hints_ignored,
        hairpins: hairpins(&backends, endpoints, short_circuits),
        serving: serving(port, endpoints),
        cluster_backends: backends.cluster,
        local_backends: backends.local,
    }
}

/// Pods of other nodes come by here only where a short circuit leaves their address as it is. An endpoint that names no node may be
/// a pod of this one: controllers other than Kubernetes' own leave `nodeName` out.
fn hairpins(backends: &Backends, endpoints: &[Endpoint], short_circuits: bool) -> Vec<IpAddr> {
    // They are sorted, as endpoints are: a Service may have very many.
    let is_among = |all: &[SocketAddr], address: &SocketAddr| all.binary_search(address).is_ok();
    let is_backend = |address| is_among(&backends.cluster, address) || is_among(&backends.local, address);
    let own = endpoints.iter().filter(|endpoint| endpoint.local || endpoint.unplaced || short_circuits);
    let mut addresses: Vec<IpAddr> =
        own.filter(|endpoint| is_backend(&endpoint.address)).map(|endpoint| endpoint.address.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn serving(port: &ServicePort, endpoints: &[Endpoint]) -> Vec<SocketAddr> {
    if !needs_conntrack_cleanup(port.name.protocol) {
        return Vec::new();
    }
    endpoints.iter().filter(|endpoint| keeps_flows(port.name.protocol, endpoint)).map(|e| e.address).collect()
}

/// Who is masqueraded to cluster IPs.
pub fn internal_masquerade(masquerade_all: bool) -> Masquerade {
    if masquerade_all { Masquerade::Always } else { Masquerade::NotPods }
}

fn verdict(policy: TrafficPolicy, backends: &Backends) -> Verdict {
    match policy {
        _ if !backends.any => Verdict::Reject,
        TrafficPolicy::Cluster => Verdict::Deliver(BackendSet::Cluster),
        TrafficPolicy::Local if backends.local.is_empty() => Verdict::Drop,
        TrafficPolicy::Local => Verdict::Deliver(BackendSet::Local),
    }
}

fn plan_external(
    port: &ServicePort,
    backends: &Backends,
    verdict: Verdict,
    around: NodeContext<'_>,
) -> ExternalFrontends {
    // Under policy Cluster the backend may be on another node, and its reply must come back through this one.
    // Under Local it never leaves the node, so the client's address can stay.
    let local = port.external_policy == TrafficPolicy::Local;
    let masquerade = if local { Masquerade::Never } else { Masquerade::Always };
    let to_cluster = |masquerade| FrontendAction { verdict: Verdict::Deliver(BackendSet::Cluster), masquerade };
    let short_circuit = (local && backends.any).then(|| ShortCircuit {
        pods: to_cluster(Masquerade::Never),
        // The node's own source may be the very address it connects to, which no pod could answer.
        node: to_cluster(Masquerade::Always),
    });
    let restricted = !port.source_ranges.is_empty() && !port.load_balancer_ips.is_empty();
    ExternalFrontends {
        node_port: port.node_port,
        external_ips: port.external_ips.clone(),
        load_balancer_ips: port.load_balancer_ips.clone(),
        of_other_machines: port.external_addresses().filter(|ip| around.other_machines.contains(ip)).collect(),
        allowed_sources: restricted.then(|| AllowedSources {
            ranges: port.source_ranges.clone(),
            load_balancer_ips: port.source_ranges.iter().any(|r| around.primary.is_some_and(|ip| r.contains(&ip))),
        }),
        action: FrontendAction { verdict, masquerade },
        short_circuit,
    }
}
