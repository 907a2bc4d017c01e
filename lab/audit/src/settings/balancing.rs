//! svcproxy's `loadBalancing` and `serviceAnnotations`.

use svclab_oracle::LoadBalancing;
use svclab_sim::cluster::NodeState;

use super::{PROXY, wrong};
use crate::error::NodeError;

/// A map of svcproxy's table, which kube-proxy's lacks.
const ENDPOINTS: &str = "service-endpoints";

const ANNOTATION: &str = "load-balancing";

/// Parses the field; empty: the default.
pub(super) fn of_node(name: &str) -> Result<LoadBalancing, NodeError> {
    match name {
        "" => Ok(LoadBalancing::Random),
        name => LoadBalancing::named(name).ok_or_else(|| wrong(&format!("loadBalancing {name:?} is not known"))),
    }
}

/// Whether the table is svcproxy's: kube-proxy ignores annotations.
pub(super) fn is_svcproxys(state: &NodeState) -> bool {
    let own = state.nft.tables.iter().filter(|table| table.name == PROXY);
    own.flat_map(|table| &table.sets).any(|set| set.name == ENDPOINTS)
}

/// Whether the field allows the annotation; by default every annotation is allowed.
pub(super) fn is_allowed(annotations: Option<&[String]>) -> bool {
    annotations.is_none_or(|names| names.iter().any(|name| [ANNOTATION, "all"].contains(&name.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_load_balancing_are_read() {
        assert_eq!(of_node("").unwrap(), LoadBalancing::Random);
        assert_eq!(of_node("maglev-port").unwrap(), LoadBalancing::MaglevPort);
        assert!(of_node("mh").is_err());
        let listed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (names, allowed) in
            [(&["flow-fate"][..], false), (&[], false), (&["flow-fate", "load-balancing"], true), (&["all"], true)]
        {
            assert_eq!(is_allowed(Some(&listed(names))), allowed, "{names:?}");
        }
        assert!(is_allowed(None));
    }

    #[test]
    fn svcproxys_table_has_a_map_of_endpoints() {
        let state = |map: &str| {
            let mut state = NodeState::default();
            let map = format!("map {map} {{ type ipv4_addr : verdict; }}");
            state.read_nft("tables", &format!("table ip kube-proxy {{ {map} }}")).unwrap();
            state
        };
        assert!(is_svcproxys(&state("service-endpoints")));
        assert!(!is_svcproxys(&state("service-ips")));
    }
}
