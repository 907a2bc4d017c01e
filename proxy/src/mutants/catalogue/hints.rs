//! When hints of endpoints apply.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::memory::Memory;
use crate::model::{Change, LABEL_SERVICE_NAME, ObjectKey};
use crate::mutants::{Hook, Mutant};
use crate::state::endpoints::Endpoint;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "hints-ignored",
        "ignores hints",
        "topology",
        Hook::Endpoints(|_, _, endpoints| endpoints.iter_mut().for_each(clear_hints)),
    ),
    Mutant::new(
        "hints-of-nodes-ignored",
        "ignores hints for nodes",
        "topology",
        Hook::Endpoints(|_, _, endpoints| endpoints.iter_mut().for_each(|e| e.node_hints.clear())),
    ),
    Mutant::new(
        "hints-of-nodes-without-zones",
        "uses every endpoint where no hint names the node, although hints name its zone",
        "topology",
        Hook::Endpoints(|_, _, endpoints| {
            endpoints.iter_mut().filter(|e| !e.node_hints.is_empty()).for_each(|e| e.zone_hints.clear());
        }),
    ),
    Mutant::new(
        "hints-without-safeguard",
        "uses hints although a ready endpoint has none",
        "hints",
        Hook::Endpoints(|_, _, endpoints| {
            if endpoints.iter().any(|e| e.ready && !e.zone_hints.is_empty()) {
                let without = endpoints.iter_mut().filter(|e| e.ready && e.zone_hints.is_empty());
                without.for_each(|e| e.zone_hints = BTreeSet::from(["".to_owned()]));
            }
        }),
    ),
    Mutant::new(
        "hints-of-nodes-without-safeguard",
        "uses hints for nodes although a ready endpoint has none",
        "hints",
        Hook::Endpoints(|state, _, endpoints| {
            if endpoints.iter().any(|e| e.ready && e.node_hints.contains(state.node_name())) {
                endpoints.retain(|e| e.node_hints.contains(state.node_name()));
            }
        }),
    ),
    Mutant::new(
        "hints-of-unready-required",
        "ignores hints while an endpoint that is not ready has none",
        "hints",
        Hook::Endpoints(|_, _, endpoints| {
            if endpoints.iter().any(|e| e.zone_hints.is_empty()) {
                endpoints.iter_mut().for_each(clear_hints);
            }
        }),
    ),
    Mutant::new(
        "hints-of-unready-count",
        "uses no endpoint of another zone while one that is not ready has a hint for its zone",
        "hints",
        Hook::Endpoints(|state, _, endpoints| {
            if let Some(zone) = &state.node().zone
                && endpoints.iter().any(|e| !e.ready && !e.terminating && e.zone_hints.contains(zone))
            {
                endpoints.retain(|e| e.zone_hints.contains(zone));
            }
        }),
    ),
    Mutant::new(
        "hints-of-another-zone-only",
        "uses no endpoint where all hints are for other zones",
        "hints",
        Hook::Endpoints(|state, _, endpoints| {
            if let Some(zone) = &state.node().zone
                && endpoints.iter().all(|e| !e.zone_hints.is_empty())
            {
                endpoints.retain(|e| e.zone_hints.contains(zone));
            }
        }),
    ),
    Mutant::new(
        "hints-without-zone",
        "takes a node without a zone for one of the first hint's zone",
        "hints",
        Hook::Endpoints(|state, _, endpoints| {
            let first = endpoints.iter().flat_map(|e| &e.zone_hints).next().cloned();
            if let (None, Some(zone)) = (&state.node().zone, first)
                && endpoints.iter().all(|e| e.node_hints.is_empty())
            {
                endpoints.retain(|e| e.zone_hints.contains(&zone));
            }
        }),
    ),
    Mutant::new(
        "hints-by-own-zone",
        "prefers endpoints in its zone, whatever zone their hints name",
        "hints",
        Hook::Change(|change| {
            if let Change::EndpointSlice(_, Some(slice)) = change {
                for endpoint in Arc::make_mut(slice).endpoints.iter_mut().flatten() {
                    let own = endpoint.zone.clone();
                    let zones = endpoint.hints.iter_mut().flat_map(|hints| hints.for_zones.iter_mut().flatten());
                    zones.for_each(|zone| zone.name = own.clone().unwrap_or_default());
                }
            }
        }),
    ),
    Mutant::new(
        "hints-one-zone-each",
        "reads one zone of an endpoint's hints only",
        "hints",
        Hook::Endpoints(|_, _, endpoints| {
            for endpoint in endpoints.iter_mut() {
                endpoint.zone_hints = endpoint.zone_hints.last().cloned().into_iter().collect();
            }
        }),
    ),
    Mutant::new(
        "hints-under-local",
        "applies hints under policy Local",
        "hints",
        Hook::Endpoints(|state, _, endpoints| {
            if let Some(zone) = &state.node().zone {
                let elsewhere = |e: &&mut Endpoint| !e.zone_hints.is_empty() && !e.zone_hints.contains(zone);
                endpoints.iter_mut().filter(elsewhere).for_each(|e| e.local = false);
            }
        }),
    ),
    Mutant::new(
        "hints-while-terminating",
        "applies hints to terminating endpoints",
        "hints",
        Hook::Endpoints(|state, _, endpoints| {
            if let Some(zone) = &state.node().zone
                && endpoints.iter().all(|e| !e.ready && e.zone_hints.len() == 1)
            {
                endpoints.retain(|e| e.zone_hints.contains(zone));
            }
        }),
    ),
    Mutant::new(
        "hints-of-prefer-close-ignored",
        "ignores hints of a Service with trafficDistribution PreferClose",
        "topology",
        Hook::Change(ignore_prefer_close),
    ),
];

fn clear_hints(endpoint: &mut Endpoint) {
    endpoint.zone_hints.clear();
    endpoint.node_hints.clear();
}

fn ignore_prefer_close(change: &mut Change) {
    static CLOSE: Memory<ObjectKey, ()> = Memory::new();
    match change {
        Change::Service(key, Some(service)) => {
            let distribution = service.spec.as_ref().and_then(|spec| spec.traffic_distribution.as_deref());
            if distribution == Some("PreferClose") {
                CLOSE.first(key.clone(), ());
            }
        }
        Change::EndpointSlice(key, Some(slice)) => {
            let labels = slice.metadata.labels.as_ref();
            let service = labels.and_then(|labels| labels.get(LABEL_SERVICE_NAME)).cloned();
            let service = ObjectKey { name: service.unwrap_or_default().into(), ..key.clone() };
            if CLOSE.get(&service).is_some() {
                Arc::make_mut(slice).endpoints.iter_mut().flatten().for_each(|e| e.hints = None);
            }
        }
        _ => {}
    }
}
