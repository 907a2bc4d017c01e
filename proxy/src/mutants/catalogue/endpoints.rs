//! Which endpoints get traffic: conditions, slices.

use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};

use super::addresses::nothing;
use crate::model::Change;
use crate::mutants::{Hook, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "endpoints-not-ready-used",
        "uses endpoints that are not ready",
        "not-ready",
        Hook::Endpoints(|_, _, endpoints| endpoints.iter_mut().for_each(|endpoint| endpoint.ready = true)),
    ),
    Mutant::new(
        "endpoints-terminating-used",
        "uses terminating endpoints beside ready ones",
        "terminating",
        Hook::Endpoints(|_, _, endpoints| {
            endpoints.iter_mut().for_each(|endpoint| endpoint.ready |= endpoint.terminating && endpoint.serving);
        }),
    ),
    Mutant::new(
        "endpoints-no-terminating-fallback",
        "never uses terminating endpoints",
        "terminating",
        Hook::Endpoints(|_, _, endpoints| endpoints.retain(|endpoint| !endpoint.terminating)),
    ),
    Mutant::new(
        "endpoints-fallback-ignores-serving",
        "uses terminating endpoints that no longer serve if there is no ready one",
        "terminating",
        Hook::Endpoints(|_, _, endpoints| {
            endpoints.iter_mut().for_each(|endpoint| endpoint.serving |= endpoint.terminating);
        }),
    ),
    Mutant::new(
        "endpoints-missing-condition-is-false",
        "takes a missing condition for false",
        "left-out-conditions",
        Hook::Change(|change| {
            conditions(change, |conditions| {
                conditions.ready = conditions.ready.or(Some(false));
                conditions.serving = conditions.serving.or(Some(false));
            });
        }),
    ),
    Mutant::new(
        "endpoints-missing-serving-is-ready",
        "takes a missing condition serving for the condition ready",
        "left-out-conditions",
        Hook::Change(|change| {
            conditions(change, |conditions| conditions.serving = conditions.serving.or(conditions.ready));
        }),
    ),
    Mutant::new(
        "endpoints-missing-terminating-is-true",
        "takes a missing condition terminating for true",
        "left-out-conditions",
        Hook::Change(|change| {
            conditions(change, |conditions| {
                let is_unready = conditions.ready == Some(false);
                conditions.terminating = conditions.terminating.or(Some(is_unready));
            });
        }),
    ),
    Mutant::new(
        "endpoints-duplicates-count-twice",
        "lets an endpoint that is in two slices count twice",
        "endpoint-slices",
        Hook::Endpoints(|state, port, endpoints| {
            // The merged list has each endpoint once: the second slice's part is the last third.
            if state.endpoints(&port.name).len() > 2
                && let Some(last) = endpoints.last().cloned()
            {
                endpoints.push(last);
            }
        }),
    ),
    Mutant::new(
        "endpoints-removed-slices-stay",
        "never forgets a deleted EndpointSlice",
        "endpoint-slices",
        Hook::Change(|change| {
            if let Change::EndpointSlice(_, None) = change {
                *change = nothing();
            }
        }),
    ),
    Mutant::new(
        "endpoints-emptied-slices-stay",
        "ignores an EndpointSlice that has lost all of its endpoints",
        "endpoint-slices",
        Hook::Change(|change| {
            if let Change::EndpointSlice(_, Some(slice)) = change
                && slice.endpoints.iter().flatten().count() == 0
            {
                *change = nothing();
            }
        }),
    ),
    Mutant::new(
        "endpoints-first-in-slice-only",
        "uses only the first endpoint of each slice",
        "clusterip",
        Hook::Change(|change| {
            slice(change, |slice| {
                if let Some(endpoints) = &mut slice.endpoints {
                    endpoints.truncate(1);
                }
            });
        }),
    ),
    Mutant::new(
        "endpoints-of-this-node-only",
        "forwards to this node's endpoints only, if it has any",
        "clusterip",
        Hook::Plan(|input, plan| {
            let is_local = |address: &std::net::SocketAddr| {
                input.endpoints.iter().any(|endpoint| endpoint.local && endpoint.address == *address)
            };
            if plan.cluster_backends.iter().any(is_local) {
                plan.cluster_backends.retain(is_local);
            }
        }),
    ),
    Mutant::new(
        "endpoints-hostnetwork-left-out",
        "ignores endpoints whose address is the node's own",
        "nodeport",
        Hook::Plan(|input, plan| {
            let own = &input.state.node().addresses;
            plan.cluster_backends.retain(|address| !own.contains(&address.ip()));
        }),
    ),
];

fn slice(change: &mut Change, turn: impl FnOnce(&mut EndpointSlice)) {
    if let Change::EndpointSlice(_, Some(slice)) = change {
        turn(Arc::make_mut(slice));
    }
}

fn conditions(change: &mut Change, turn: fn(&mut EndpointConditions)) {
    slice(change, |slice| {
        for endpoint in slice.endpoints.iter_mut().flatten() {
            turn(endpoint.conditions.get_or_insert_default());
        }
    });
}
