//! Whose address an endpoint sees.

use crate::arrival::{Arrival, Case};
use crate::endpoint::Endpoint;
use crate::rules::Rule;
use crate::service::FrontendKind;

/// Whether the source address is replaced by the node's for everybody, and by which rule.
///
/// | address       | policy  | from a pod | from the node itself | from elsewhere | no way to tell pods |
/// |---------------|---------|------------|----------------------|----------------|---------------------|
/// | cluster IP    | any     | kept       | replaced             | replaced       | kept                |
/// | external ones | Cluster | replaced   | replaced             | replaced       | replaced            |
/// | external ones | Local   | kept       | replaced             | kept           | (as who it is)      |
///
/// `masqueradeAll` replaces whatever goes to a cluster IP.
pub(crate) fn for_all(case: &Case<'_>, masquerade_all: bool) -> (bool, Rule) {
    let Case { port, arrival, semantics, .. } = case;
    if semantics.relays {
        return (true, Rule::Relayed);
    }
    if arrival.own && semantics.masquerades_own_node {
        return (true, Rule::OwnNode);
    }
    match case.kind {
        FrontendKind::ClusterIp if masquerade_all => (true, Rule::MasqueradeAll),
        FrontendKind::ClusterIp if arrival.pod == Some(false) => (true, Rule::OffCluster),
        FrontendKind::ClusterIp => (false, Rule::Kept),
        _ if !port.external_local => (true, Rule::ExternalMasquerade),
        _ if arrival.pod == Some(true) => (false, Rule::Kept),
        _ if arrival.own => (true, Rule::OwnNode),
        _ => (false, Rule::Kept),
    }
}

/// Whether it is replaced towards this endpoint because it would meet itself.
pub(crate) fn is_hairpin(endpoint: &Endpoint, arrival: &Arrival<'_>) -> bool {
    endpoint.address.ip() == arrival.source
}
