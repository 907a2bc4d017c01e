//! EndpointSlice objects of a recipe: up to three for each family of a service.

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::build::{node_name, zone_name};
use super::recipe::{Condition, EndpointRecipe, Hints, Kind, Recipe, ServiceRecipe};
use super::services::{name, numbered, stack};
use crate::address::{self, Family};
use crate::endpoints::SERVICE_LABEL;
use crate::service::PROXY_NAME_LABEL;
use crate::world::{PodPlace, World};

/// Slices per family.
const SLICES: u8 = 3;

/// The slices of service number `index`.
pub(super) fn build(recipe: &Recipe, index: usize, world: &World) -> Vec<EndpointSlice> {
    let Some(service) = recipe.services.get(index).filter(|service| service.kind != Kind::ExternalName) else {
        return Vec::new();
    };
    let mut slices = Vec::new();
    for family in stack(recipe, service) {
        for number in 0..SLICES {
            slices.extend(slice(recipe, service, index, family, number, world));
        }
    }
    slices
}

fn slice(
    recipe: &Recipe,
    service: &ServiceRecipe,
    index: usize,
    family: Family,
    number: u8,
    world: &World,
) -> Option<EndpointSlice> {
    let stands = |endpoint: &&EndpointRecipe| {
        let own = endpoint.slice % SLICES;
        own == number || (endpoint.copied && (own + 1) % SLICES == number)
    };
    let mut endpoints: Vec<(IpAddr, Value)> = Vec::new();
    for endpoint in service.endpoints.iter().filter(stands) {
        let Some(pod) = world.pods.get(usize::from(endpoint.pod) % world.pods.len().max(1)) else { continue };
        let Some(address) = address::first_of(&pod.addresses, family) else { continue };
        // Within a slice, and among slices, one pod has one state: the first endpoint that has it counts.
        let first = service.endpoints.iter().find(|other| same_pod(other, endpoint, world)).unwrap_or(endpoint);
        if !endpoints.iter().any(|(taken, _)| *taken == address) {
            endpoints.push((address, entry(recipe, service, first, pod, address)));
        }
    }
    // The first slice stands even if it is empty, as the controller leaves it.
    if endpoints.is_empty() && number > 0 {
        return None;
    }
    let mut labels = json!({ SERVICE_LABEL: name(index) });
    if service.kind == Kind::OtherProxy {
        labels[PROXY_NAME_LABEL] = json!("somebody-else");
    }
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "default", "labels": labels,
            "name": format!("{}-{}-{number}", name(index), family.name().to_lowercase()),
        },
        "addressType": family.name(),
        "ports": ports(service, index, number),
        "endpoints": endpoints.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>(),
    }))
    .ok()
}

fn same_pod(one: &EndpointRecipe, other: &EndpointRecipe, world: &World) -> bool {
    let pods = world.pods.len().max(1);
    usize::from(one.pod) % pods == usize::from(other.pod) % pods
}

fn ports(service: &ServiceRecipe, index: usize, number: u8) -> Vec<Value> {
    let shift = if service.other_targets && number == 1 { 100 } else { 0 };
    let all = numbered(service, index).into_iter().enumerate();
    all.map(|(position, (name, protocol, _))| {
        let name = if service.other_names && number == 2 { format!("other-{position}") } else { name };
        json!({"name": name, "protocol": protocol.name(), "port": 8080 + position + shift})
    })
    .collect()
}

fn entry(
    recipe: &Recipe,
    service: &ServiceRecipe,
    endpoint: &EndpointRecipe,
    pod: &PodPlace,
    address: IpAddr,
) -> Value {
    let mut value = json!({
        "addresses": [address],
        "conditions": conditions(endpoint.condition),
        "targetRef": {"kind": "Pod", "namespace": pod.name.namespace, "name": pod.name.name},
    });
    if !endpoint.homeless {
        value["nodeName"] = json!(pod.node);
    }
    if let Some(hints) = hints(recipe, service, endpoint, &pod.node) {
        value["hints"] = hints;
    }
    value
}

fn conditions(condition: Condition) -> Value {
    match condition {
        Condition::Ready => json!({"ready": true, "serving": true, "terminating": false}),
        Condition::Unspecified => json!({}),
        Condition::Unready => json!({"ready": false, "serving": false, "terminating": false}),
        Condition::ServingOnly => json!({"ready": false, "serving": true, "terminating": false}),
        Condition::TerminatingServing => json!({"ready": false, "serving": true, "terminating": true}),
        Condition::Terminating => json!({"ready": false, "serving": false, "terminating": true}),
        Condition::PublishedTerminating => json!({"ready": true, "serving": false, "terminating": true}),
    }
}

fn hints(recipe: &Recipe, service: &ServiceRecipe, endpoint: &EndpointRecipe, node: &str) -> Option<Value> {
    let named = |names: Vec<String>| -> Vec<Value> { names.into_iter().map(|name| json!({ "name": name })).collect() };
    let index = (0..recipe.nodes.len()).find(|index| node_name(*index) == node);
    let own_zone = index.and_then(|index| recipe.nodes.get(index)?.zone).map(zone_name);
    match service.hints {
        Hints::None => None,
        Hints::OwnZone => own_zone.map(|zone| json!({ "forZones": named(vec![zone]) })),
        Hints::OwnNode => {
            let zones = named(own_zone.into_iter().collect());
            Some(json!({"forNodes": named(vec![node.to_owned()]), "forZones": zones}))
        }
        Hints::Odd => {
            let bit = |number: u8| endpoint.hinted & (1 << number) != 0;
            let zones = (0..3u8).filter(|zone| bit(*zone)).map(zone_name).collect();
            let nodes = (0..3u8).filter(|node| bit(node + 3)).map(|node| node_name(usize::from(node))).collect();
            Some(json!({"forZones": named(zones), "forNodes": named(nodes)}))
        }
    }
}
