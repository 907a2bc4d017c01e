//! The source address that an endpoint sees.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::address::Family;
use crate::arrival::{Arrival, ServicePacket};
use crate::endpoint::Endpoint;
use crate::rules::{Reasons, Rule};
use crate::service::FrontendKind;
use crate::settings::MasqueradeSource;
use crate::world::{Objects, World};

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

/// Whether `noMasqueradeCIDRs` exempts the packet: it goes to one of the ranges, and has an address of the node as its
/// source, loopback excepted.
pub(crate) fn is_exempt(world: &World, case: &ServicePacket<'_>, endpoint: &Endpoint) -> bool {
    let arrival = &case.arrival;
    let is_own = arrival.by_node && world.node(arrival.node).is_some_and(|node| node.has(arrival.source));
    let ranges = if case.semantics.relays { &[] } else { world.proxy.exempt_ranges() };
    is_own && ranges.iter().any(|range| range.contains(&endpoint.address.ip()))
}

/// Returns the sources that masquerade may give.
pub(crate) fn sources(
    objects: &Objects,
    world: &World,
    case: &ServicePacket<'_>,
    reasons: &mut Reasons,
) -> BTreeSet<IpAddr> {
    let (node, family) = (case.arrival.node, Family::of(case.arrival.source));
    let chosen = match world.proxy.chosen_source() {
        _ if case.semantics.relays => None,
        MasqueradeSource::OutgoingInterface => None,
        MasqueradeSource::Primary => objects.primary_address(node, family),
        MasqueradeSource::Addresses(all) => all.iter().copied().find(|address| Family::of(*address) == family),
    };
    match chosen {
        Some(address) => {
            reasons.add(Rule::MasqueradeSource, address.to_string());
            BTreeSet::from([address])
        }
        None => world.node(node).map(|node| node.of_family(family)).unwrap_or_default(),
    }
}
