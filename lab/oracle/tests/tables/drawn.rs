//! What the tables are about the generator of clusters draws, too: a shape that only people think of is judged in no other test.
//!
//! A shape is what one object says in one place: that a field is left out, or which of an enumeration's words it has; all
//! conditions of an endpoint together; two endpoints of a service with one address. Of names, numbers and addresses only that
//! they are there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use svclab_oracle::{Objects, generate};

/// So many clusters are drawn at most to see what there is.
const SEEDS: u64 = 600;

/// Fields whose texts are words with a meaning.
const WORDS: [&str; 12] = [
    "type",
    "addressType",
    "protocol",
    "internalTrafficPolicy",
    "externalTrafficPolicy",
    "sessionAffinity",
    "ipMode",
    "ipFamilies",
    "ipFamilyPolicy",
    "trafficDistribution",
    "kind",
    "clusterIP",
];

/// What no API server admits: the generator need not draw it, though tables have rows about it.
const NEVER: [&str; 14] = [
    // A slice port without a number, or without any port, leads nowhere; the controller makes none.
    "slice.ports -",
    "slice.ports.port -",
    "slice.ports.port 0",
    // Set by hand in a table; the generator has other ways to leave an object alone.
    "slice.labels service.kubernetes.io/headless",
    "slice.labels service.kubernetes.io/service-proxy-name",
    "service.labels service.kubernetes.io/headless",
    "slice.endpoints.addresses 2",
    "slice.endpoints.addresses beyond",
    // Services that are no proxy's business have fields of their own.
    "service.ports -",
    "service.externalName word",
    "service.status.loadBalancer.ingress.hostname word",
    "service.status.loadBalancer.ingress.ip -",
    "service.healthCheckNodePort -",
    "service.clusterIP -",
];

/// A text: one of the words, or only that there is one.
fn text(field: &str, text: &str) -> String {
    let means = WORDS.contains(&field) && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    if means { text.to_owned() } else { "word".to_owned() }
}

/// The shapes of `value`, whose place is `at`.
fn walk(at: &str, value: &Value, shapes: &mut BTreeSet<String>) {
    let field = at.rsplit('.').next().unwrap_or_default();
    match value {
        Value::Object(fields) if field == "conditions" => drop(shapes.insert(format!("{at} {}", conditions(fields)))),
        Value::Object(fields) => {
            for (name, value) in fields {
                walk(&format!("{at}.{name}"), value, shapes);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(at, item, shapes)),
        Value::String(said) => drop(shapes.insert(format!("{at} {}", text(field, said)))),
        Value::Number(number) if number.as_i64() == Some(0) => drop(shapes.insert(format!("{at} 0"))),
        Value::Null => {}
        other => drop(shapes.insert(format!("{at} {}", if other.is_boolean() { "bool" } else { "number" }))),
    }
}

/// `ready=true serving=- terminating=false`.
fn conditions(fields: &Map<String, Value>) -> String {
    let one = |name: &&str| {
        let said = fields.get(*name).and_then(Value::as_bool).map_or_else(|| "-".to_owned(), |said| said.to_string());
        format!("{name}={said}")
    };
    ["ready", "serving", "terminating"].iter().map(one).collect::<Vec<_>>().join(" ")
}

/// The shapes of a cluster's objects. Fields that are left out are those that `known` has in that place.
pub fn shapes(objects: &Objects) -> BTreeSet<String> {
    let mut shapes = BTreeSet::new();
    for service in &objects.services {
        let value = serde_json::to_value(service).unwrap();
        walk("service", &value["spec"], &mut shapes);
        walk("service.status", &value["status"], &mut shapes);
    }
    for slice in &objects.slices {
        let value = serde_json::to_value(slice).unwrap();
        for part in ["addressType", "ports", "endpoints"] {
            walk(&format!("slice.{part}"), &value[part], &mut shapes);
        }
        for endpoint in value["endpoints"].as_array().into_iter().flatten() {
            if endpoint.get("conditions").is_none() {
                shapes.insert("slice.endpoints.conditions ready=- serving=- terminating=-".to_owned());
            }
        }
    }
    for node in &objects.nodes {
        walk("node", &serde_json::to_value(&node.status).unwrap(), &mut shapes);
    }
    shapes.extend(pairs(objects));
    shapes
}

/// Endpoints of one service with one address: what of the one the other says otherwise.
fn pairs(objects: &Objects) -> BTreeSet<String> {
    let mut by_address: BTreeMap<(String, String, String), Vec<Value>> = BTreeMap::new();
    for slice in &objects.slices {
        let labels = slice.metadata.labels.as_ref();
        let service = labels.and_then(|labels| labels.get("kubernetes.io/service-name")).cloned().unwrap_or_default();
        let namespace = slice.metadata.namespace.clone().unwrap_or_default();
        for endpoint in slice.endpoints.iter().flatten() {
            let address = endpoint.addresses.first().cloned().unwrap_or_default();
            let known = by_address.entry((namespace.clone(), service.clone(), address)).or_default();
            known.push(serde_json::to_value(endpoint).unwrap());
        }
    }
    let mut shapes = BTreeSet::new();
    for copies in by_address.values() {
        for (number, one) in copies.iter().enumerate() {
            for other in &copies[number + 1..] {
                let terminates = |of: &Value| of["conditions"]["terminating"] == Value::Bool(true);
                let differ: Vec<&str> =
                    ["conditions", "nodeName"].into_iter().filter(|field| one[*field] != other[*field]).collect();
                let terminate = [one, other].map(terminates);
                shapes.insert(format!("pair {terminate:?} differs in {differ:?}"));
            }
        }
    }
    shapes
}

/// Panics where a table has a shape that the generator never draws. Most are in the first few clusters.
pub fn can_be_drawn(objects: &Objects) {
    let mut missing = shapes(objects);
    missing.retain(|shape| !NEVER.contains(&shape.as_str()));
    for seed in 0..SEEDS {
        if missing.is_empty() {
            return;
        }
        for drawn in shapes(&generate::cluster(seed).objects) {
            missing.remove(&drawn);
        }
    }
    assert!(missing.is_empty(), "no generated cluster has this: {missing:#?}");
}

/// Which fields every object of its kind has in every generated cluster. A list that grows hides what proxies make of a default.
#[test]
fn fields_that_are_never_left_out() {
    let mut seen: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let mut note = |at: &str, value: &Value| {
        let objects = seen.entry(at.to_owned()).or_default();
        objects[0] += 1;
        let typed = |field: &str| matches!(field, "apiVersion" | "kind");
        for field in value.as_object().into_iter().flatten().filter(|(name, value)| !value.is_null() && !typed(name)) {
            seen.entry(format!("{at}.{}", field.0)).or_default()[1] += 1;
        }
    };
    for seed in 0..SEEDS / 2 {
        let objects = generate::cluster(seed).objects;
        for service in objects.services.iter().map(|service| serde_json::to_value(service).unwrap()) {
            // Those that are no proxy's business are another kind of object.
            if service["spec"]["type"] == "ExternalName" || service["spec"]["clusterIP"] == "None" {
                continue;
            }
            note("service", &service["spec"]);
            service["spec"]["ports"].as_array().into_iter().flatten().for_each(|port| note("service.ports", port));
            let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
            ingress.into_iter().flatten().for_each(|entry| note("ingress", entry));
        }
        for slice in objects.slices.iter().map(|slice| serde_json::to_value(slice).unwrap()) {
            note("slice", &slice);
            slice["ports"].as_array().into_iter().flatten().for_each(|port| note("slice.ports", port));
            for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                note("endpoint", endpoint);
                if endpoint["conditions"].is_object() {
                    note("endpoint.conditions", &endpoint["conditions"]);
                }
            }
        }
    }
    let kinds: BTreeMap<String, u64> =
        seen.iter().filter(|(_, count)| count[0] > 0).map(|(at, count)| (at.clone(), count[0])).collect();
    let always = |(at, count): (&String, &[u64; 2])| {
        let (kind, _) = at.rsplit_once('.')?;
        (kinds.get(kind) == Some(&count[1])).then(|| at.clone())
    };
    let always: Vec<String> = seen.iter().filter_map(always).collect();
    let expected = [
        "endpoint.addresses",
        "ingress.ip",
        "service.ports",
        "service.ports.port",
        "slice.addressType",
        "slice.endpoints",
        "slice.metadata",
        "slice.ports",
        "slice.ports.port",
    ];
    assert_eq!(always, expected);
}
