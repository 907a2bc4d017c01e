//! Which sources may use external frontends.

use super::AllowedSources;
use super::service_port::PlanContext;
use crate::config::Config;
use crate::model::ServiceAnnotation;
use crate::state::State;
use crate::state::service::ServicePort;

/// Returns the sources that `loadBalancerSourceRanges` allows for load-balancer IPs. As in kube-proxy, a list without a
/// range of this family allows all.
pub(super) fn of_load_balancer_ips(port: &ServicePort, context: PlanContext<'_>) -> Option<Box<AllowedSources>> {
    let restricted = !port.source_ranges.is_empty() && !port.load_balancer_ips.is_empty();
    restricted.then(|| allowed(&port.source_ranges, context))
}

/// Returns the sources that the annotation allows for node ports and external IPs. A list without a range of this family
/// allows none.
pub(super) fn annotated(port: &ServicePort, context: PlanContext<'_>) -> Option<Box<AllowedSources>> {
    let has_frontends = port.node_port.is_some() || !port.external_ips.is_empty();
    let ranges = port.annotated_ranges.as_ref().filter(|_| context.source_ranges && has_frontends)?;
    Some(allowed(ranges, context))
}

fn allowed(ranges: &[ipnet::IpNet], context: PlanContext<'_>) -> Box<AllowedSources> {
    let own_addresses = ranges.iter().any(|range| context.primary.is_some_and(|ip| range.contains(&ip)));
    Box::new(AllowedSources { ranges: ranges.to_vec(), own_addresses })
}

/// Whether a service port may have limited the sources of its node port.
pub fn limits_node_ports(config: &Config, state: &State) -> bool {
    state.node_port_ranges_asked() && config.annotations.contains(&ServiceAnnotation::SourceRanges)
}
