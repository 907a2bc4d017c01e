//! The generator draws every shape that a table of these tests uses: a field present or absent, a word, an endpoint's
//! conditions, a pair of endpoints with one address, the wiring, a proxy setting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};
use svclab_oracle::{Cni, DetectLocalMode, MasqueradeSource, NodePortAddress, Objects, World, generate};

const SEEDS: u64 = 600;

/// Fields whose text is a word of an enumeration.
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

const NEVER: [&str; 6] = [
    // Proxies ignore a slice without ports, and the controller creates none.
    "slice.ports.port -",
    "slice.ports.port 0",
    // Only proxies with KEP-6032 know `localhost`.
    "nodePortAddresses localhost",
    // All nodes share the settings, and no address is every node's.
    "masqueradeSource 172.18.0.9,fd00:18::9",
    // No recipe has them: the oracle does not know which source the kernel chooses for a node's call at its own second address.
    "masqueradeSource primary",
    "noMasqueradeCIDRs true",
];

/// Fields that every generated object has.
const ALWAYS: [&str; 19] = [
    // Proxies need a pod range and an address.
    "node.podCIDRs",
    "node.status.addresses",
    "node.status.addresses.address",
    "node.status.addresses.type",
    "service.ports",
    "service.ports.port",
    // API servers fill these fields in.
    "service.sessionAffinityConfig.clientIP",
    "service.sessionAffinityConfig.clientIP.timeoutSeconds",
    "service.status.loadBalancer",
    "slice.addressType",
    "slice.endpoints",
    "slice.ports",
    "slice.endpoints.addresses",
    "slice.endpoints.hints.forNodes.name",
    "slice.endpoints.hints.forZones.name",
    "slice.endpoints.targetRef.kind",
    "slice.endpoints.targetRef.name",
    "slice.endpoints.targetRef.namespace",
    "slice.ports.port",
];

/// The fields of generated objects, by path.
static FIELDS: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
    let mut fields = BTreeMap::new();
    for seed in 0..SEEDS / 10 {
        let objects = generate::cluster(seed).objects;
        parts(&objects).for_each(|(at, value)| note_fields(at, &value, &mut fields));
    }
    fields
});

fn note_fields(at: &str, value: &Value, fields: &mut BTreeMap<String, BTreeSet<String>>) {
    match value {
        Value::Object(all) => {
            for (name, value) in all.iter().filter(|(_, value)| !value.is_null()) {
                fields.entry(at.to_owned()).or_default().insert(name.clone());
                note_fields(&format!("{at}.{name}"), value, fields);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| note_fields(at, item, fields)),
        _ => {}
    }
}

fn parts(objects: &Objects) -> impl Iterator<Item = (&'static str, Value)> + '_ {
    let services = objects.services.iter().flat_map(|service| {
        let mut value = serde_json::to_value(service).unwrap();
        [("service", value["spec"].take()), ("service.status", value["status"].take())]
    });
    let slices = objects.slices.iter().map(|slice| {
        let mut value = serde_json::to_value(slice).unwrap();
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|name, _| !["metadata", "apiVersion", "kind"].contains(&name.as_str()));
        }
        ("slice", value)
    });
    let nodes = objects.nodes.iter().flat_map(|node| {
        let mut value = serde_json::to_value(node).unwrap();
        [("node", value["spec"].take()), ("node.status", value["status"].take())]
    });
    services.chain(slices).chain(nodes).filter(|(_, value)| !value.is_null())
}

fn text(field: &str, text: &str) -> String {
    let means = WORDS.contains(&field) && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    if means { text.to_owned() } else { "word".to_owned() }
}

fn walk(at: &str, value: &Value, shapes: &mut BTreeSet<String>) {
    let field = at.rsplit('.').next().unwrap_or_default();
    match value {
        Value::Object(fields) if field == "conditions" => drop(shapes.insert(format!("{at} {}", conditions(fields)))),
        Value::Object(fields) => {
            for name in FIELDS.get(at).into_iter().flatten().filter(|name| fields.get(*name).is_none_or(Value::is_null))
            {
                shapes.insert(format!("{at}.{name} -"));
            }
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

fn conditions(fields: &Map<String, Value>) -> String {
    let one = |name: &&str| {
        let said = fields.get(*name).and_then(Value::as_bool).map_or_else(|| "-".to_owned(), |said| said.to_string());
        format!("{name}={said}")
    };
    ["ready", "serving", "terminating"].iter().map(one).collect::<Vec<_>>().join(" ")
}

fn shapes(objects: &Objects, world: &World) -> BTreeSet<String> {
    let mut shapes = BTreeSet::new();
    for (at, value) in parts(objects) {
        walk(at, &value, &mut shapes);
        for endpoint in value["endpoints"].as_array().into_iter().flatten() {
            if endpoint.get("conditions").is_none() {
                shapes.insert("slice.endpoints.conditions ready=- serving=- terminating=-".to_owned());
            }
        }
    }
    shapes.extend(pairs(objects));
    shapes.extend(wiring_and_settings(world));
    shapes
}

/// Lists settings without mode and scheduler, which tests set.
fn wiring_and_settings(world: &World) -> Vec<String> {
    let proxy = &world.proxy;
    let cni = match world.cni {
        Cni::Bridge => "bridge",
        Cni::PointToPoint => "point-to-point",
        Cni::Ptp => "ptp",
    };
    let local = match proxy.detect_local {
        DetectLocalMode::Off => "off",
        DetectLocalMode::ClusterCidr(_) => "cluster range",
        DetectLocalMode::NodeCidr => "node range",
        DetectLocalMode::BridgeInterface(_) => "bridge",
        DetectLocalMode::InterfaceNamePrefix(_) => "prefix",
    };
    let mut said = vec![
        format!("pods are wired by {cni}"),
        format!("pods are told by {local}"),
        format!("masqueradeAll {}", proxy.masquerade_all),
        format!("localhostNodePorts {}", proxy.localhost_node_ports),
        format!("masqueradeSource {}", proxy.masquerade_source),
        format!("noMasqueradeCIDRs {}", !proxy.no_masquerade.is_empty()),
    ];
    if proxy.node_port_addresses.is_empty() {
        said.push("nodePortAddresses -".to_owned());
    }
    said.extend(proxy.node_port_addresses.iter().map(|entry| match entry {
        NodePortAddress::Range(range) if range.addr().is_loopback() => "nodePortAddresses loopback range".to_owned(),
        NodePortAddress::Range(_) => "nodePortAddresses range".to_owned(),
        NodePortAddress::Primary => "nodePortAddresses primary".to_owned(),
        NodePortAddress::Localhost => "nodePortAddresses localhost".to_owned(),
        NodePortAddress::All => "nodePortAddresses all".to_owned(),
    }));
    said.extend(world.pods.iter().map(|pod| format!("hostNetwork {}", pod.host_network)));
    said
}

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

pub fn can_be_drawn(objects: &Objects, world: &World) {
    let mut missing = shapes(objects, world);
    missing.retain(|shape| !NEVER.contains(&shape.as_str()));
    remove_drawn(&mut missing);
    assert!(missing.is_empty(), "no generated cluster has this: {missing:#?}");
}

fn remove_drawn(missing: &mut BTreeSet<String>) {
    for seed in 0..SEEDS {
        if missing.is_empty() {
            return;
        }
        let cluster = generate::cluster(seed);
        for drawn in shapes(&cluster.objects, &cluster.world) {
            missing.remove(&drawn);
        }
    }
}

#[test]
fn every_wiring_and_setting_is_drawn() {
    let loopback = |text: &str| NodePortAddress::Range(text.parse().unwrap());
    let mut missing = BTreeSet::new();
    for cni in [Cni::Bridge, Cni::PointToPoint, Cni::Ptp] {
        missing.extend(wiring_and_settings(&World { cni, ..World::default() }));
    }
    for detect_local in [
        DetectLocalMode::Off,
        DetectLocalMode::ClusterCidr(Vec::new()),
        DetectLocalMode::NodeCidr,
        DetectLocalMode::BridgeInterface(String::new()),
        DetectLocalMode::InterfaceNamePrefix(String::new()),
    ] {
        let mut world = World::default();
        world.proxy.detect_local = detect_local;
        missing.extend(wiring_and_settings(&world));
    }
    for on in [false, true] {
        let mut world = World::default();
        (world.proxy.masquerade_all, world.proxy.localhost_node_ports) = (on, on);
        if on {
            world.proxy.masquerade_source = MasqueradeSource::Primary;
            world.proxy.no_masquerade = vec!["10.244.0.0/16".parse().unwrap()];
        }
        world.proxy.node_port_addresses = vec![
            loopback("127.0.0.0/8"),
            loopback("172.18.0.0/24"),
            NodePortAddress::Primary,
            NodePortAddress::Localhost,
            NodePortAddress::All,
        ];
        missing.extend(wiring_and_settings(&world));
    }
    missing.retain(|shape| !NEVER.contains(&shape.as_str()));
    remove_drawn(&mut missing);
    assert_eq!(missing, BTreeSet::new());
}

/// All other fields are sometimes omitted, so that tests cover absent fields.
#[test]
fn fields_that_are_never_left_out() {
    let (mut objects, mut fields) = (BTreeMap::new(), BTreeMap::new());
    for seed in 0..SEEDS / 2 {
        for (at, value) in parts(&generate::cluster(seed).objects) {
            if value["type"] == "ExternalName" || value["clusterIP"] == "None" {
                continue;
            }
            count(at, &value, &mut objects, &mut fields);
        }
    }
    let always = fields.iter().filter(|((at, _), count)| objects.get(at) == Some(count));
    let always: Vec<String> = always.map(|((at, field), _)| format!("{at}.{field}")).collect();
    assert_eq!(always, ALWAYS);
}

fn count(at: &str, value: &Value, objects: &mut BTreeMap<String, u64>, fields: &mut BTreeMap<(String, String), u64>) {
    match value {
        Value::Object(all) => {
            *objects.entry(at.to_owned()).or_default() += 1;
            for (name, value) in all.iter().filter(|(_, value)| !value.is_null()) {
                *fields.entry((at.to_owned(), name.clone())).or_default() += 1;
                count(&format!("{at}.{name}"), value, objects, fields);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| count(at, item, objects, fields)),
        _ => {}
    }
}
