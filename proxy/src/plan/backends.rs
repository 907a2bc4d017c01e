//! Which endpoints may be chosen: conditions, traffic policy, topology hints.

use std::net::{IpAddr, SocketAddr};

use crate::state::NodeInfo;
use crate::state::endpoints::Endpoint;
use crate::state::service::ServicePort;

/// The chosen backends of a service port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backends {
    /// For policy Cluster, and for what short-circuits under Local.
    pub cluster: Vec<SocketAddr>,
    /// For policy Local.
    pub local: Vec<SocketAddr>,
    /// There are endpoints, here or elsewhere: the difference between drop and reject.
    pub any: bool,
    /// Endpoints have topology hints, and none narrows the choice on this node.
    pub hints_ignored: Option<HintsIgnored>,
}

/// Why topology hints are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HintsIgnored {
    /// Some ready endpoint has none.
    EndpointWithoutHint,
    /// They name zones, and this node's is not known.
    NodeWithoutZone,
    /// They name zones, and no endpoint is for this node's.
    NoEndpointForZone,
    /// They name nodes alone, and no endpoint is for this one.
    NoEndpointForNode,
}

impl HintsIgnored {
    /// All reasons.
    pub const ALL: [HintsIgnored; 4] = [
        HintsIgnored::EndpointWithoutHint,
        HintsIgnored::NodeWithoutZone,
        HintsIgnored::NoEndpointForZone,
        HintsIgnored::NoEndpointForNode,
    ];

    /// The reason as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            HintsIgnored::EndpointWithoutHint => "endpoint_without_hint",
            HintsIgnored::NodeWithoutZone => "node_without_zone",
            HintsIgnored::NoEndpointForZone => "no_endpoint_for_zone",
            HintsIgnored::NoEndpointForNode => "no_endpoint_for_node",
        }
    }
}

/// Chooses. Ready endpoints first; where there is none, those that still serve while they terminate (KEP-1669),
/// for each policy on its own. Hints narrow the cluster-wide choice only.
pub fn choose(port: &ServicePort, endpoints: &[Endpoint], node_name: &str, node: &NodeInfo) -> Backends {
    let usable = |e: &&Endpoint| e.ready || (e.serving && e.terminating);
    let mut chosen = Backends { any: endpoints.iter().any(|e| usable(&e)), ..Backends::default() };
    if port.uses_cluster_endpoints() {
        let hinted = Hints::of(endpoints, node_name, node);
        chosen.cluster = ready_or_terminating(endpoints, |e| hinted.admits(e));
        chosen.hints_ignored = hinted.ignored();
    }
    if port.uses_local_endpoints() {
        let local: Vec<Endpoint> = endpoints.iter().filter(|e| e.local).cloned().collect();
        chosen.local = ready_or_terminating(&local, |_| true);
    }
    chosen
}

/// Addresses of ready endpoints on this node, as the health check of policy Local counts them: terminating ones do not count,
/// so that the load balancer stops sending while they still answer. Endpoints are sorted by address.
pub fn ready_local(endpoints: &[Endpoint]) -> Vec<IpAddr> {
    let mut ready: Vec<IpAddr> = endpoints.iter().filter(|e| e.local && e.ready).map(|e| e.address.ip()).collect();
    ready.dedup();
    ready
}

fn ready_or_terminating(endpoints: &[Endpoint], admitted: impl Fn(&Endpoint) -> bool) -> Vec<SocketAddr> {
    let ready: Vec<SocketAddr> = endpoints.iter().filter(|e| e.ready && admitted(e)).map(|e| e.address).collect();
    if !ready.is_empty() {
        return ready;
    }
    endpoints.iter().filter(|e| e.serving && e.terminating).map(|e| e.address).collect()
}

/// Hints are used only if every ready endpoint has one and one of them names this node or zone: a half-hinted
/// Service would overload some endpoints (<https://kubernetes.io/docs/concepts/services-networking/topology-aware-routing/#safeguards>).
/// Node hints go before zone hints (KEP-3015).
enum Hints<'a> {
    Node(&'a str),
    Zone(&'a str),
    Ignored(HintsIgnored),
    None,
}

impl<'a> Hints<'a> {
    fn of(endpoints: &[Endpoint], node_name: &'a str, node: &'a NodeInfo) -> Hints<'a> {
        let ready = || endpoints.iter().filter(|e| e.ready);
        if ready().all(|e| e.node_hints.is_empty() && e.zone_hints.is_empty()) {
            return Hints::None;
        }
        let all_name_nodes = ready().all(|e| !e.node_hints.is_empty());
        let all_name_zones = ready().all(|e| !e.zone_hints.is_empty());
        if all_name_nodes && ready().any(|e| e.node_hints.contains(node_name)) {
            return Hints::Node(node_name);
        }
        Hints::Ignored(match &node.zone {
            Some(zone) if all_name_zones && ready().any(|e| e.zone_hints.contains(zone)) => return Hints::Zone(zone),
            Some(_) if all_name_zones => HintsIgnored::NoEndpointForZone,
            None if all_name_zones => HintsIgnored::NodeWithoutZone,
            _ if all_name_nodes => HintsIgnored::NoEndpointForNode,
            _ => HintsIgnored::EndpointWithoutHint,
        })
    }

    fn admits(&self, endpoint: &Endpoint) -> bool {
        match self {
            Hints::Node(name) => endpoint.node_hints.contains(*name),
            Hints::Zone(zone) => endpoint.zone_hints.contains(*zone),
            Hints::Ignored(_) | Hints::None => true,
        }
    }

    fn ignored(&self) -> Option<HintsIgnored> {
        match self {
            Hints::Ignored(reason) => Some(*reason),
            Hints::Node(_) | Hints::Zone(_) | Hints::None => None,
        }
    }
}
