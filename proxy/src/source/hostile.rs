//! No manifest makes the parser panic or yields a string that is dangerous in a rule.

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::documents::{self, FileContents};
use super::object::Object;
use super::{split, text};

pub(super) fn string() -> impl Strategy<Value = String> {
    let plausible = prop::sample::select(vec![
        "web",
        "default",
        "http",
        "10.96.0.1",
        "fd00::1",
        "10.0.0.0/8",
        "None",
        "TCP",
        "UDP",
        "Local",
        "Cluster",
        "ClientIP",
        "LoadBalancer",
        "NodePort",
        "ClusterIP",
        "IPv4",
        "IPv6",
        "VIP",
        "n1",
        "zone-a",
        "",
    ]);
    let hostile = prop::sample::select(vec![
        "\"",
        "'",
        "\n",
        "\0",
        " -j ACCEPT",
        " ",
        "\\",
        "$(id)",
        "`",
        ";",
        "#",
        "!",
        "\u{202e}",
        "ä",
        "--",
        ",",
        "\t",
    ]);
    prop_oneof![
        6 => plausible.clone().prop_map(str::to_owned),
        2 => (plausible.clone(), hostile, plausible).prop_map(|(a, b, c)| format!("{a}{b}{c}")),
        1 => "[ -~]{0,12}",
        1 => any::<String>(),
    ]
}

pub(super) fn spoil(template: Value, strings: &mut dyn Iterator<Item = Option<String>>) -> Value {
    match template {
        Value::String(old) => Value::String(strings.next().flatten().unwrap_or(old)),
        Value::Array(items) => items.into_iter().map(|item| spoil(item, strings)).collect(),
        Value::Object(fields) => {
            let spoilt = fields.into_iter().map(|(key, value)| match key.as_str() {
                "apiVersion" | "kind" => (key, value),
                _ => (key, spoil(value, strings)),
            });
            Value::Object(spoilt.collect::<Map<_, _>>())
        }
        other => other,
    }
}

pub(super) fn templates() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop", "labels": {"a": "b"}}, "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.1", "externalIPs": ["192.0.2.1"], "loadBalancerIP": "192.0.2.3",
            "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose",
            "loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP", "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web", "appProtocol": "h2c"}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9", "ipMode": "VIP"}, {"hostname": "a.example"}]}}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.0.1.2"], "nodeName": "n1", "zone": "a", "hostname": "h",
                "hints": {"forZones": [{"name": "a"}], "forNodes": [{"name": "n1"}]}}]}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}},
            "spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "172.18.0.2"}, {"type": "Hostname", "address": "n1"}]}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": ["10.96.0.0/16", "fd00::/112"]}}),
    ]
}

/// Returns the strings that can reach a rule, a chain name or a comment.
fn reaching(object: &Object) -> Vec<String> {
    let value = match object {
        Object::Service(service) => serde_json::to_value::<&Service>(service),
        Object::EndpointSlice(slice) => serde_json::to_value::<&EndpointSlice>(slice),
        Object::Node(node) => serde_json::to_value::<&Node>(node),
        Object::ServiceCidr(cidr) => serde_json::to_value::<&ServiceCIDR>(cidr),
    };
    let mut strings = Vec::new();
    gather(&value.expect("JSON"), &mut strings);
    strings
}

fn gather(value: &Value, strings: &mut Vec<String>) {
    match value {
        Value::String(text) => strings.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| gather(item, strings)),
        Value::Object(fields) => {
            for (key, value) in fields {
                // A node address's type is only compared, never written to the kernel.
                if key != "type" || value.as_str().is_some_and(|t| ["LoadBalancer", "InternalIP"].contains(&t)) {
                    strings.push(key.clone());
                    gather(value, strings);
                }
            }
        }
        _ => {}
    }
}

fn harmless(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._:/".contains(&b);
    text.bytes().all(allowed) && !text.starts_with('-') && text.len() <= 320
}

fn told_on_one_line(read: &FileContents) -> bool {
    let problems = read.problems.iter().chain(&read.remarks).map(ToString::to_string);
    problems.chain(read.skipped.iter().cloned()).all(|line| !line.chars().any(char::is_control))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn strings_are_refused_or_harmless(
        strings in prop::collection::vec(prop::option::weighted(0.15, string()), 30),
        template in prop::sample::select(templates()),
    ) {
        let spoilt = spoil(template, &mut strings.into_iter());
        let read = documents::read("x.json", spoilt.to_string().as_bytes());
        prop_assert!(told_on_one_line(&read));
        prop_assert!(read.objects.len() + read.skipped.len() == 1 || !read.problems.is_empty());
        for (id, object, _) in &read.objects {
            prop_assert!(harmless(&id.key.name) && harmless(&id.key.namespace), "{id}");
            for text in reaching(object) {
                prop_assert!(harmless(&text), "{text:?} of {spoilt}");
            }
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for name in ["x.yaml", "x.json"] {
            let read = documents::read(name, &bytes);
            prop_assert!(told_on_one_line(&read));
        }
    }

    #[test]
    fn no_yaml_like_text_makes_the_reader_panic(
        lines in prop::collection::vec("(---|\\.\\.\\.| {0,4}(- )?[a-d&*!|>\\[{}\\],:\"'%#]{0,6}|kind: Service|apiVersion: v1|metadata: \\{name: a\\}|spec:)", 0..30),
    ) {
        let read = documents::read("x.yaml", lines.join("\n").as_bytes());
        prop_assert!(told_on_one_line(&read));
    }

    #[test]
    fn split_documents_equal_those_of_the_parser(
        values in prop::collection::vec(prop_oneof!["[a-z]{1,5}", Just("|\n  ---\n  x".to_owned()), Just("\"a\n  --- b\"".to_owned())], 1..6),
    ) {
        let stream: String = values.iter().map(|value| format!("---\nkey: {value}\n")).collect();
        let parsed: Vec<Value> = serde_saphyr::from_multiple(&stream).expect("valid YAML");
        let mut split: Vec<Value> = Vec::new();
        text::documents("x.yaml", &stream, &mut |t| split.push(t.value.expect("valid YAML")));
        prop_assert_eq!(split, parsed);
        prop_assert_eq!(split::documents(&stream, usize::MAX).len(), values.len());
    }
}
