use crate::endpoint::Endpoint;
use crate::rules::{Reasons, Rule};

#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeLocation<'a> {
    pub(crate) node: &'a str,
    pub(crate) zone: Option<&'a str>,
}

/// Filters by hints only if every ready endpoint has some and one names this node or zone: otherwise slices are
/// changing, and a filter could leave no endpoint.
pub(crate) fn filter<'a>(ready: Vec<&'a Endpoint>, here: NodeLocation<'_>, reasons: &mut Reasons) -> Vec<&'a Endpoint> {
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
