use crate::address;
use crate::arrival::ServicePacket;
use crate::rules::{Reasons, Rule};
use crate::service::FrontendKind;
use crate::world::{Objects, World};

/// Whether source ranges allow the packet: `loadBalancerSourceRanges` restrict load-balancer addresses, the annotation
/// node ports and external IPs.
pub(crate) fn allows(objects: &Objects, world: &World, case: &ServicePacket<'_>, reasons: &mut Reasons) -> bool {
    let ServicePacket { port, arrival, kind, .. } = case;
    let (rule, ranges, restricted) = match (kind, &port.annotated_ranges) {
        (FrontendKind::LoadBalancerIp, _) if port.source_ranges.is_empty() => {
            if port.other_family_has_ranges {
                reasons.add(Rule::SourceRangesFamily, format!("{} over {}", port.name, port.family));
            }
            return true;
        }
        (FrontendKind::LoadBalancerIp, _) => (Rule::SourceRanges, &port.source_ranges, &port.vips[..]),
        (FrontendKind::ExternalIp, Some(ranges)) => (Rule::AnnotatedSourceRanges, ranges, &port.external_ips[..]),
        (FrontendKind::NodePort, Some(ranges)) => (Rule::AnnotatedSourceRanges, ranges, &[][..]),
        (FrontendKind::ClusterIp, _) | (FrontendKind::ExternalIp | FrontendKind::NodePort, None) => return true,
    };
    let lists = |address| ranges.iter().any(|range| range.contains(&address));
    if lists(arrival.source) {
        reasons.add(rule, format!("{} is listed", arrival.source));
        return true;
    }
    let node = objects
        .primary_address(arrival.node, port.family)
        .or_else(|| world.node(arrival.node).and_then(|node| address::first_of(&node.addresses, port.family)));
    if restricted.contains(&arrival.source) && node.is_some_and(lists) {
        reasons.add(Rule::SourceRangesOwnNode, format!("{} from {}", arrival.node, arrival.source));
        return true;
    }
    reasons.add(rule, format!("{} is not listed", arrival.source));
    false
}
