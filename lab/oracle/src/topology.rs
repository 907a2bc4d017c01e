//! Topology hints: which of the ready endpoints are meant for this node.

use crate::endpoint::Endpoint;
use crate::rules::{Reasons, Rule};

/// Where a proxy is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) node: &'a str,
    pub(crate) zone: Option<&'a str>,
}

/// Which hints apply on a node. They do only if every ready endpoint has one and at least one of them names this place:
/// with anything else a change is under way, and filtering would be dangerous.
pub(crate) fn filter<'a>(ready: Vec<&'a Endpoint>, here: Here<'_>, reasons: &mut Reasons) -> Vec<&'a Endpoint> {
    if apply(&ready, here.node, |endpoint| &endpoint.for_nodes) {
        reasons.add(Rule::NodeHints, format!("node {}", here.node));
        return ready.into_iter().filter(|endpoint| names(&endpoint.for_nodes, here.node)).collect();
    }
    match here.zone.filter(|zone| apply(&ready, zone, |endpoint| &endpoint.for_zones)) {
        Some(zone) => {
            reasons.add(Rule::ZoneHints, format!("zone {zone}"));
            ready.into_iter().filter(|endpoint| names(&endpoint.for_zones, zone)).collect()
        }
        None => {
            if ready.iter().any(|endpoint| !endpoint.for_nodes.is_empty() || !endpoint.for_zones.is_empty()) {
                reasons.add(Rule::NoHints, format!("node {}, zone {}", here.node, here.zone.unwrap_or("unknown")));
            }
            ready
        }
    }
}

fn apply(ready: &[&Endpoint], place: &str, hints: fn(&Endpoint) -> &[String]) -> bool {
    ready.iter().all(|endpoint| !hints(endpoint).is_empty())
        && ready.iter().any(|endpoint| names(hints(endpoint), place))
}

fn names(hints: &[String], place: &str) -> bool {
    hints.iter().any(|hint| hint == place)
}
