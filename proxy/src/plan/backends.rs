use std::net::{IpAddr, SocketAddr};

use crate::state::NodeInfo;
use crate::state::endpoints::Endpoint;
use crate::state::service::ServicePort;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChosenBackends {
    /// Backends under policy Cluster, and for short circuits under policy Local.
    pub cluster: Vec<SocketAddr>,
    pub local: Vec<SocketAddr>,
    /// Whether any endpoint is usable: decides between drop and reject.
    pub any: bool,
    pub hints_ignored: Option<HintsIgnored>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HintsIgnored {
    EndpointWithoutHint,
    NodeWithoutZone,
    NoEndpointForZone,
    /// Endpoints have only node hints, but none for this node.
    NoEndpointForNode,
}

impl HintsIgnored {
    pub const ALL: [HintsIgnored; 4] = [
        HintsIgnored::EndpointWithoutHint,
        HintsIgnored::NodeWithoutZone,
        HintsIgnored::NoEndpointForZone,
        HintsIgnored::NoEndpointForNode,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            HintsIgnored::EndpointWithoutHint => "endpoint_without_hint",
            HintsIgnored::NodeWithoutZone => "node_without_zone",
            HintsIgnored::NoEndpointForZone => "no_endpoint_for_zone",
            HintsIgnored::NoEndpointForNode => "no_endpoint_for_node",
        }
    }
}

/// Chooses ready endpoints, else those that serve while they terminate (KEP-1669). Hints apply to policy Cluster only.
pub fn choose(port: &ServicePort, endpoints: &[Endpoint], node_name: &str, node: &NodeInfo) -> ChosenBackends {
    let usable = |e: &&Endpoint| e.ready || (e.serving && e.terminating);
    let mut chosen = ChosenBackends { any: endpoints.iter().any(|e| usable(&e)), ..ChosenBackends::default() };
    if port.uses_cluster_endpoints() {
        let hinted = HintChoice::of(endpoints, node_name, node);
        chosen.cluster = ready_or_terminating(endpoints, |e| hinted.admits(e));
        chosen.hints_ignored = hinted.ignored();
    }
    if port.uses_local_endpoints() {
        let local: Vec<Endpoint> = endpoints.iter().filter(|e| e.local).cloned().collect();
        chosen.local = ready_or_terminating(&local, |_| true);
    }
    chosen
}

/// Returns endpoints for policy Local's health check, without terminating ones: the load balancer must stop sending
/// while they still answer. `endpoints` is sorted by address.
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

/// Hints apply only if every ready endpoint has one and one of them names this node or zone: otherwise some endpoints
/// would be overloaded (<https://kubernetes.io/docs/concepts/services-networking/topology-aware-routing/#safeguards>).
/// Node hints take precedence (KEP-3015).
enum HintChoice<'a> {
    Node(&'a str),
    Zone(&'a str),
    Ignored(HintsIgnored),
    None,
}

impl<'a> HintChoice<'a> {
    fn of(endpoints: &[Endpoint], node_name: &'a str, node: &'a NodeInfo) -> HintChoice<'a> {
        let ready = || endpoints.iter().filter(|e| e.ready);
        if ready().all(|e| e.node_hints.is_empty() && e.zone_hints.is_empty()) {
            return HintChoice::None;
        }
        let all_name_nodes = ready().all(|e| !e.node_hints.is_empty());
        let all_name_zones = ready().all(|e| !e.zone_hints.is_empty());
        if all_name_nodes && ready().any(|e| e.node_hints.contains(node_name)) {
            return HintChoice::Node(node_name);
        }
        HintChoice::Ignored(match &node.zone {
            Some(zone) if all_name_zones && ready().any(|e| e.zone_hints.contains(zone)) => {
                return HintChoice::Zone(zone);
            }
            Some(_) if all_name_zones => HintsIgnored::NoEndpointForZone,
            None if all_name_zones => HintsIgnored::NodeWithoutZone,
            _ if all_name_nodes => HintsIgnored::NoEndpointForNode,
            _ => HintsIgnored::EndpointWithoutHint,
        })
    }

    fn admits(&self, endpoint: &Endpoint) -> bool {
        match self {
            HintChoice::Node(name) => endpoint.node_hints.contains(*name),
            HintChoice::Zone(zone) => endpoint.zone_hints.contains(*zone),
            HintChoice::Ignored(_) | HintChoice::None => true,
        }
    }

    fn ignored(&self) -> Option<HintsIgnored> {
        match self {
            HintChoice::Ignored(reason) => Some(*reason),
            HintChoice::Node(_) | HintChoice::Zone(_) | HintChoice::None => None,
        }
    }
}
