//! Generates up to three slices per family of a service.

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::ObjectName;
use super::build::{node_name, zone_name};
use super::recipe::{
    DuplicateEndpoint, EndpointCondition, EndpointRecipe, HintsRecipe, Recipe, ServiceKind, ServiceRecipe,
};
use super::services::{name, numbered, stack};
use crate::address::{self, Family};
use crate::endpoints::SERVICE_LABEL;
use crate::question::Protocol;
use crate::service::PROXY_NAME_LABEL;
use crate::world::{PodMachine, World};

/// Slices per family.
const SLICES: u8 = 3;

pub(super) fn build(recipe: &Recipe, index: usize, world: &World) -> Vec<EndpointSlice> {
    let Some(service) = recipe.services.get(index).filter(|service| service.kind != ServiceKind::ExternalName) else {
        return Vec::new();
    };
    let mut slices = Vec::new();
    if service.newer & 4 != 0 {
        slices.extend(of_names(service, index));
    }
    for family in stack(recipe, service) {
        for number in 0..SLICES {
            slices.extend(slice(recipe, service, index, family, number, world));
        }
    }
    slices
}

fn of_names(service: &ServiceRecipe, index: usize) -> Option<EndpointSlice> {
    let ObjectName { namespace, name } = name(index);
    serde_json::from_value(json!({
        "metadata": {"namespace": namespace, "labels": { SERVICE_LABEL: name }, "name": format!("{name}-fqdn")},
        "addressType": "FQDN",
        "ports": ports(service, index, 0),
        "endpoints": [{"addresses": ["example.org"]}],
    }))
    .ok()
}

fn slice(
    recipe: &Recipe,
    service: &ServiceRecipe,
    index: usize,
    family: Family,
    number: u8,
    world: &World,
) -> Option<EndpointSlice> {
    let mut endpoints: Vec<(IpAddr, Value)> = Vec::new();
    for endpoint in &service.endpoints {
        let Some(pod) = world.pods.get(usize::from(endpoint.pod) % world.pods.len().max(1)) else { continue };
        let Some(address) = address::first_of(&pod.addresses, family) else { continue };
        // A pod has the same state in all slices: that of its first endpoint.
        let first = service.endpoints.iter().find(|other| same_pod(other, endpoint, world)).unwrap_or(endpoint);
        // Copies are one endpoint only if all slices have the same ports.
        let alike = !(service.other_targets || service.other_names || service.disjoint);
        let own = endpoint.slice % SLICES;
        let next = (own + 1) % SLICES;
        let is_there = endpoints.iter().any(|(taken, _)| *taken == address);
        let stands = own == number || (endpoint.copy == DuplicateEndpoint::Same && next == number);
        let node = |leaves: EndpointCondition, stays: EndpointCondition| match alike
            && leaves.terminates()
            && !stays.terminates()
        {
            true => elsewhere(&pod.node, world),
            false => pod.node.clone(),
        };
        let other = match first.copy {
            DuplicateEndpoint::Other(condition) => condition,
            DuplicateEndpoint::None | DuplicateEndpoint::Same => first.condition,
        };
        if stands && !is_there {
            let node = node(first.condition, other);
            endpoints.push((address, entry(recipe, service, first, (pod, &node), address)));
        }
        let in_front = !alike || endpoint.hinted & (1 << 6) != 0;
        if std::ptr::eq(first, endpoint)
            && matches!(first.copy, DuplicateEndpoint::Other(_))
            && number == if in_front { own } else { next }
        {
            // An endpoint's copy with another state omits no condition.
            let state = EndpointRecipe { condition: other, left_out: 0, ..*first };
            let both_stay = !other.terminates() && !first.condition.terminates();
            let moved = alike && both_stay;
            let node = if moved { elsewhere(&pod.node, world) } else { node(other, first.condition) };
            let at = if in_front { 0 } else { endpoints.len() };
            endpoints.insert(at, (address, entry(recipe, service, &state, (pod, &node), address)));
        }
    }
    // Like the endpoint slice controller, keeps the first slice even if it is empty.
    if endpoints.is_empty() && number > 0 {
        return None;
    }
    let ObjectName { namespace, name } = name(index);
    let mut labels = json!({ SERVICE_LABEL: name });
    if service.kind == ServiceKind::OtherProxy {
        labels[PROXY_NAME_LABEL] = json!("somebody-else");
    }
    serde_json::from_value(json!({
        "metadata": {
            "namespace": namespace, "labels": labels,
            "name": format!("{name}-{}-{number}", family.name().to_lowercase()),
        },
        "addressType": family.name(),
        "ports": ports(service, index, number),
        "endpoints": endpoints.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>(),
    }))
    .ok()
}

fn elsewhere(node: &str, world: &World) -> String {
    let other = world.nodes.iter().map(|place| &place.name).find(|name| *name != node);
    other.map_or_else(|| node.to_owned(), String::clone)
}

fn same_pod(one: &EndpointRecipe, other: &EndpointRecipe, world: &World) -> bool {
    let pods = world.pods.len().max(1);
    usize::from(one.pod) % pods == usize::from(other.pod) % pods
}

fn ports(service: &ServiceRecipe, index: usize, number: u8) -> Vec<Value> {
    let shift = if service.other_targets && number == 1 { 100 } else { 0 };
    let all = numbered(service, index).into_iter().enumerate();
    let here = all.filter(|(position, _)| !service.disjoint || position % usize::from(SLICES) == usize::from(number));
    here.map(|(position, (name, protocol, _))| {
        let name = if service.other_names && number == 2 { format!("other-{position}") } else { name };
        let mut port = json!({"port": 8080 + position + shift});
        if !(name.is_empty() && service.leaves_out("slice.ports.name")) {
            port["name"] = json!(name);
        }
        if !(protocol == Protocol::Tcp && service.leaves_out("slice.ports.protocol")) {
            port["protocol"] = json!(protocol.name());
        }
        port
    })
    .collect()
}

fn entry(
    recipe: &Recipe,
    service: &ServiceRecipe,
    endpoint: &EndpointRecipe,
    (pod, node): (&PodMachine, &str),
    address: IpAddr,
) -> Value {
    let leaves_out = |field: &str| {
        let bit = EndpointRecipe::LEFT_OUT.iter().position(|known| *known == field);
        bit.is_some_and(|bit| endpoint.left_out & (1 << bit) != 0)
    };
    let mut value = json!({ "addresses": [address] });
    if !leaves_out("conditions") {
        let mut conditions = conditions(endpoint.condition);
        if let Some(conditions) = conditions.as_object_mut() {
            conditions.retain(|condition, _| !leaves_out(condition));
        }
        value["conditions"] = conditions;
    }
    if !leaves_out("targetRef") {
        value["targetRef"] = json!({"kind": "Pod", "namespace": pod.name.namespace, "name": pod.name.name});
    }
    if !endpoint.without_node {
        value["nodeName"] = json!(node);
    }
    if let Some(hints) = hints(recipe, service, endpoint, node) {
        value["hints"] = hints;
    }
    value
}

impl EndpointCondition {
    fn terminates(self) -> bool {
        matches!(
            self,
            EndpointCondition::TerminatingServing
                | EndpointCondition::Terminating
                | EndpointCondition::PublishedTerminating
        )
    }
}

fn conditions(condition: EndpointCondition) -> Value {
    match condition {
        EndpointCondition::Ready => json!({"ready": true, "serving": true, "terminating": false}),
        EndpointCondition::Unspecified => json!({}),
        EndpointCondition::Unready => json!({"ready": false, "serving": false, "terminating": false}),
        EndpointCondition::ServingOnly => json!({"ready": false, "serving": true, "terminating": false}),
        EndpointCondition::TerminatingServing => json!({"ready": false, "serving": true, "terminating": true}),
        EndpointCondition::Terminating => json!({"ready": false, "serving": false, "terminating": true}),
        EndpointCondition::PublishedTerminating => json!({"ready": true, "serving": false, "terminating": true}),
    }
}

fn hints(recipe: &Recipe, service: &ServiceRecipe, endpoint: &EndpointRecipe, node: &str) -> Option<Value> {
    let named = |names: Vec<String>| -> Vec<Value> { names.into_iter().map(|name| json!({ "name": name })).collect() };
    let index = (0..recipe.nodes.len()).find(|index| node_name(*index) == node);
    let own_zone = index.and_then(|index| recipe.nodes.get(index)?.zone).map(zone_name);
    match service.hints {
        HintsRecipe::None => None,
        HintsRecipe::OwnZone => own_zone.map(|zone| json!({ "forZones": named(vec![zone]) })),
        HintsRecipe::OwnNode => {
            let mut hints = json!({ "forNodes": named(vec![node.to_owned()]) });
            if let Some(zone) = own_zone {
                hints["forZones"] = json!(named(vec![zone]));
            }
            Some(hints)
        }
        HintsRecipe::Odd => {
            let bit = |number: u8| endpoint.hinted & (1 << number) != 0;
            let zones = (0..3u8).filter(|zone| bit(*zone)).map(zone_name).collect();
            let nodes = (0..3u8).filter(|node| bit(node + 3)).map(|node| node_name(usize::from(node))).collect();
            Some(json!({"forZones": named(zones), "forNodes": named(nodes)}))
        }
    }
}
