use crate::address;
use crate::arrival::ServicePacket;
use crate::rules::{Reasons, Rule};
use crate::service::FrontendKind;
use crate::world::{Objects, World};

/// Whether source ranges, which restrict only load-balancer addresses, allow the packet.
pub(crate) fn allows(objects: &Objects, world: &World, case: &ServicePacket<'_>, reasons: &mut Reasons) -> bool {
    let ServicePacket { port, arrival, .. } = case;
    if case.kind != FrontendKind::LoadBalancerIp {
        return true;
    }
    if port.source_ranges.is_empty() {
        if port.other_family_has_ranges {
            reasons.add(Rule::SourceRangesFamily, format!("{} over {}", port.name, port.family));
        }
        return true;
    }
    let lists = |address| port.source_ranges.iter().any(|range| range.contains(&address));
    if lists(arrival.source) {
        reasons.add(Rule::SourceRanges, format!("{} is listed", arrival.source));
        return true;
    }
    let node = objects
        .primary_address(arrival.node, port.family)
        .or_else(|| world.node(arrival.node).and_then(|node| address::first_of(&node.addresses, port.family)));
    if port.vips.contains(&arrival.source) && node.is_some_and(lists) {
        reasons.add(Rule::SourceRangesOwnNode, format!("{} from {}", arrival.node, arrival.source));
        return true;
    }
    reasons.add(Rule::SourceRanges, format!("{} is not listed", arrival.source));
    false
}
