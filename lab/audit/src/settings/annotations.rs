//! The annotations of Services that the proxy respects: svcproxy's own (docs/svcproxy.md, Annotations).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use svclab_oracle::Mode;
use svclab_sim::cluster::NodeState;

use crate::owner::ProxyTables;

const PREFIX: &str = "svcproxy/";
/// A map of svcproxy's table, which kube-proxy's lacks.
const ENDPOINTS: &str = "service-endpoints";

/// Which of svcproxy's annotations the proxy respects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RespectedAnnotations {
    /// By default every one.
    #[default]
    All,
    /// Names without the prefix, from `serviceAnnotations`.
    Named(BTreeSet<String>),
}

impl RespectedAnnotations {
    /// kube-proxy respects none. Only its nftables table shows that it wrote the rules. Another project's proxy respects
    /// what its configuration lists.
    pub(super) fn of(
        state: &NodeState,
        mode: Mode,
        listed: Option<&[String]>,
        own: &ProxyTables,
    ) -> RespectedAnnotations {
        let names = listed.unwrap_or_default().iter().map(|name| name.trim().to_owned()).collect::<BTreeSet<_>>();
        if is_kube_proxys(state, own) || mode == Mode::Other && listed.is_none() {
            RespectedAnnotations::Named(BTreeSet::new())
        } else if listed.is_none() || names.contains("all") {
            RespectedAnnotations::All
        } else {
            RespectedAnnotations::Named(names)
        }
    }

    /// Removes the annotations that have no effect.
    pub(crate) fn keep(&self, service: &mut Service) {
        let RespectedAnnotations::Named(names) = self else { return };
        let annotations = service.metadata.annotations.iter_mut();
        annotations
            .for_each(|all| all.retain(|key, _| key.strip_prefix(PREFIX).is_none_or(|name| names.contains(name))));
    }
}

fn is_kube_proxys(state: &NodeState, own: &ProxyTables) -> bool {
    let mut tables = state.nft.tables.iter().filter(|table| own.has(table)).peekable();
    tables.peek().is_some() && tables.flat_map(|table| &table.sets).all(|set| set.name != ENDPOINTS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn annotations_count_where_the_field_and_the_table_say_so() {
        let (own, upstreams) = ("map service-endpoints", "map service-ips");
        let listed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (map, names, kept) in [
            (own, None, true),
            (own, Some(listed(&["all"])), true),
            (own, Some(listed(&["flow-fate", " load-balancing"])), true),
            (own, Some(listed(&["flow-fate"])), false),
            (own, Some(listed(&[])), false),
            (upstreams, None, false),
            (upstreams, Some(listed(&["all"])), false),
            ("", None, true),
        ] {
            let mut state = NodeState::default();
            if !map.is_empty() {
                let table = format!("table ip kube-proxy {{ {map} {{ type ipv4_addr : verdict; }} }}");
                state.read_nft("tables", &table).unwrap();
            }
            let mut service = Service::default();
            let all = [("svcproxy/load-balancing", "maglev"), ("svcproxy.io/load-balancing", "x")];
            let all: BTreeMap<String, String> = all.map(|(key, value)| (key.into(), value.into())).into();
            service.metadata.annotations = Some(all);
            RespectedAnnotations::of(&state, Mode::Nftables, names.as_deref(), &ProxyTables::default())
                .keep(&mut service);
            assert_eq!(service.metadata.annotations.unwrap().len(), 1 + usize::from(kept), "{map} {names:?}");
        }
    }
}
