use crate::arrival::ServicePacket;
use crate::endpoint::Endpoint;
use crate::rules::{Reasons, Rule};
use crate::service::{FrontendKind, ServicePort};
use crate::topology::{self, NodeLocation};

/// Which endpoints a packet may reach.
///
/// | address       | policy  | from a pod or the node itself         | from elsewhere |
/// |---------------|---------|---------------------------------------|----------------|
/// | cluster IP    | Cluster | all                                   | all            |
/// | cluster IP    | Local   | the node's                            | the node's     |
/// | external ones | Cluster | all                                   | all            |
/// | external ones | Local   | all (IPVS: the node's, if it has any) | the node's     |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    All,
    Local,
    LocalIfAny,
}

pub(crate) fn reach(case: &ServicePacket<'_>, reasons: &mut Reasons) -> Reach {
    let ServicePacket { port, arrival, .. } = case;
    let (rule, reach) = match case.kind {
        FrontendKind::ClusterIp if port.internal_local => (Rule::InternalLocal, Reach::Local),
        FrontendKind::ClusterIp => (Rule::ClusterPolicy, Reach::All),
        _ if !port.external_local => (Rule::ClusterPolicy, Reach::All),
        _ if !arrival.is_internal() => (Rule::ExternalLocal, Reach::Local),
        _ if case.semantics.one_backend_list => (Rule::OneListPerServer, Reach::LocalIfAny),
        _ => (Rule::ShortCircuit, Reach::All),
    };
    reasons.add(rule, format!("{} from {}", port.name, arrival.source));
    reach
}

/// Returns the service port as if under external policy Cluster, if the Service asks for it where the node has no
/// endpoint.
pub(crate) fn fallen_back(
    case: &ServicePacket<'_>,
    endpoints: &[Endpoint],
    reasons: &mut Reasons,
) -> Option<ServicePort> {
    let ServicePacket { port, arrival, .. } = case;
    let mut mine = endpoints.iter().filter(|endpoint| endpoint.is_local(arrival.node));
    let falls_back = port.external_local
        && port.local_fallback
        && case.kind != FrontendKind::ClusterIp
        && !mine.any(|endpoint| endpoint.ready || endpoint.fallback);
    falls_back.then(|| {
        reasons.add(Rule::LocalFallback, format!("{} on {}", port.name, arrival.node));
        ServicePort { external_local: false, ..(*port).clone() }
    })
}

/// Returns no endpoint if the reach is local and only other nodes have some.
pub(crate) fn select<'a>(
    endpoints: &'a [Endpoint],
    reach: Reach,
    here: NodeLocation<'_>,
    reasons: &mut Reasons,
) -> Vec<&'a Endpoint> {
    let local = |reasons: &mut Reasons| {
        explain_local(endpoints, reasons);
        let mine = endpoints.iter().filter(|endpoint| endpoint.is_local(here.node)).collect();
        usable(mine, reasons)
    };
    let all = |reasons: &mut Reasons| {
        let usable = usable(endpoints.iter().collect(), reasons);
        // Topology hints do not apply to terminating endpoints.
        if usable.iter().any(|endpoint| endpoint.ready) { topology::filter(usable, here, reasons) } else { usable }
    };
    match reach {
        Reach::All => all(reasons),
        Reach::Local => local(reasons),
        Reach::LocalIfAny => {
            let mine = local(reasons);
            if mine.is_empty() { all(reasons) } else { mine }
        }
    }
}

/// Adds the rules by which policy Local passes over something that the endpoints say, or do not say.
fn explain_local(endpoints: &[Endpoint], reasons: &mut Reasons) {
    let with_hints = |endpoint: &&Endpoint| !endpoint.for_nodes.is_empty() || !endpoint.for_zones.is_empty();
    if let Some(endpoint) = endpoints.iter().filter(|endpoint| endpoint.ready).find(with_hints) {
        reasons.add(Rule::LocalBeforeHints, endpoint.address.to_string());
    }
    if let Some(endpoint) = endpoints.iter().find(|endpoint| endpoint.node.is_none()) {
        reasons.add(Rule::WithoutNode, endpoint.address.to_string());
    }
}

pub(crate) fn any_usable(endpoints: &[Endpoint]) -> bool {
    endpoints.iter().any(|endpoint| endpoint.ready || endpoint.fallback)
}

fn usable<'a>(endpoints: Vec<&'a Endpoint>, reasons: &mut Reasons) -> Vec<&'a Endpoint> {
    let ready: Vec<&Endpoint> = endpoints.iter().copied().filter(|endpoint| endpoint.ready).collect();
    if !ready.is_empty() {
        if ready.len() < endpoints.len() {
            reasons.add(Rule::Ready, format!("{} of {}", ready.len(), endpoints.len()));
        }
        return ready;
    }
    let fallback: Vec<&Endpoint> = endpoints.into_iter().filter(|endpoint| endpoint.fallback).collect();
    if !fallback.is_empty() {
        reasons.add(Rule::Terminating, format!("{} endpoints that terminate", fallback.len()));
    }
    fallback
}
