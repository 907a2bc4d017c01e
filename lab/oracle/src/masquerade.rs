//! The source address that an endpoint sees.

use crate::arrival::{Arrival, ServicePacket};
use crate::endpoint::Endpoint;
use crate::rules::Rule;
use crate::service::FrontendKind;

/// Whether masquerade applies towards every endpoint.
///
/// | address       | policy  | from a pod | from the node itself | from elsewhere | no way to tell pods |
/// |---------------|---------|------------|----------------------|----------------|---------------------|
/// | cluster IP    | any     | kept       | replaced             | replaced       | kept                |
/// | external ones | Cluster | replaced   | replaced             | replaced       | replaced            |
/// | external ones | Local   | kept       | replaced             | kept           | no difference       |
///
/// `masqueradeAll` replaces every source to a cluster IP.
pub(crate) fn for_all_endpoints(case: &ServicePacket<'_>, masquerade_all: bool) -> (bool, Rule) {
    let ServicePacket { port, arrival, semantics, .. } = case;
    if semantics.relays {
        return (true, Rule::Relayed);
    }
    if arrival.by_node && semantics.masquerades_own_node {
        return (true, Rule::OwnNode);
    }
    match case.kind {
        FrontendKind::ClusterIp if masquerade_all => (true, Rule::MasqueradeAll),
        FrontendKind::ClusterIp if arrival.pod == Some(false) => (true, Rule::OffCluster),
        FrontendKind::ClusterIp => (false, Rule::Kept),
        _ if !port.external_local => (true, Rule::ExternalMasquerade),
        _ if arrival.pod == Some(true) => (false, Rule::Kept),
        _ if arrival.by_node => (true, Rule::OwnNode),
        _ => (false, Rule::Kept),
    }
}

/// Whether the endpoint, without masquerade, would answer itself.
pub(crate) fn is_hairpin(endpoint: &Endpoint, arrival: &Arrival<'_>) -> bool {
    endpoint.address.ip() == arrival.source
}
