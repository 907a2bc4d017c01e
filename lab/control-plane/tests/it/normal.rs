//! Removes what differs between any two servers: times, UIDs, versions and allocated values.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

const OWN: [&str; 6] = ["uid", "resourceVersion", "managedFields", "selfLink", "continue", "observedGeneration"];
/// The annotation with the time of the change that updated a slice.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

pub struct Normalizer {
    /// All request bodies so far: an address or port outside of them was allocated.
    request_bodies: String,
}

impl Normalizer {
    pub fn new() -> Self {
        Normalizer { request_bodies: String::new() }
    }

    pub fn add_request(&mut self, body: &Value) {
        self.request_bodies.push_str(&body.to_string());
    }

    /// Keeps code, reason and fields of a `Status`, but not its message.
    pub fn answer(&self, code: u16, body: &Value) -> Value {
        if body["kind"] == "Status" {
            let causes = body["details"]["causes"].as_array().into_iter().flatten();
            let causes: BTreeSet<String> =
                causes.map(|cause| format!("{} {}", text(&cause["field"]), text(&cause["reason"]))).collect();
            let details = &body["details"];
            return json!({
                "code": code, "reason": body["reason"], "causes": causes,
                "about": [text(&details["name"]), text(&details["kind"]), text(&details["group"])],
            });
        }
        json!({ "code": code, "body": self.object(body) })
    }

    pub fn object(&self, object: &Value) -> Value {
        let mut value = Normalizer::without_item_types(self.value("", object));
        // `items` must not become part of the field names.
        if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
            items.sort_by_key(|item| {
                let metadata = &item["metadata"];
                (
                    text(&metadata["namespace"]),
                    text(&metadata["name"]),
                    item["addressType"].to_string(),
                    item.to_string(),
                )
            });
        }
        value
    }

    /// Removes kind and version of list items, which a real server omits.
    pub fn without_item_types(mut list: Value) -> Value {
        let items = list.get_mut("items").and_then(Value::as_array_mut);
        for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
            item.remove("kind");
            item.remove("apiVersion");
        }
        list
    }

    fn value(&self, field: &str, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let mut kept = Map::new();
                for (name, value) in fields {
                    let is_time = name.ends_with("Timestamp") || name.ends_with("Time") || name == TRIGGER;
                    let value = if name == "deletionTimestamp" { json!("(a time)") } else { self.value(name, value) };
                    let is_nothing = match &value {
                        Value::Null => true,
                        Value::Object(fields) => fields.is_empty(),
                        Value::Array(list) => list.is_empty(),
                        _ => false,
                    };
                    if !is_nothing && !OWN.contains(&name.as_str()) && (!is_time || name == "deletionTimestamp") {
                        kept.insert(name.clone(), value);
                    }
                }
                if let (Some(prefix), true) = (kept.get("generateName").cloned(), kept.contains_key("name")) {
                    kept.insert("name".to_owned(), json!(format!("{}(drawn)", text(&prefix))));
                    // The number of a controller's steps may differ.
                    kept.remove("generation");
                }
                Value::Object(kept)
            }
            Value::Array(list) => {
                let mut list: Vec<Value> = list.iter().map(|value| self.value(field, value)).collect();
                if field == "endpoints" || field == "conditions" {
                    list.sort_by_key(ToString::to_string);
                }
                Value::Array(list)
            }
            Value::String(address) if matches!(field, "clusterIP" | "clusterIPs") => match address.as_str() {
                "None" | "" => value.clone(),
                _ if self.request_bodies.contains(&format!("\"{address}\"")) => value.clone(),
                address => json!(if address.contains(':') { "(an IPv6 address)" } else { "(an IPv4 address)" }),
            },
            Value::Number(port) if matches!(field, "nodePort" | "healthCheckNodePort") => {
                if self.request_bodies.contains(&port.to_string()) { value.clone() } else { json!("(a port)") }
            }
            other => other.clone(),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the differing fields with both values; compares items of equally long lists one by one.
pub fn differences(lab: &Value, real: &Value) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    gather("", lab, real, &mut found);
    found
}

fn gather(path: &str, lab: &Value, real: &Value, found: &mut Vec<(String, String, String)>) {
    match (lab, real) {
        (Value::Object(lab), Value::Object(real)) => {
            let names: BTreeSet<&String> = lab.keys().chain(real.keys()).collect();
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let of = |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
                gather(&path, &of(lab), &of(real), found);
            }
        }
        (Value::Array(lab), Value::Array(real)) if lab.len() == real.len() => {
            for (lab, real) in lab.iter().zip(real) {
                gather(&format!("{path}[]"), lab, real, found);
            }
        }
        _ if lab != real => found.push((path.to_owned(), lab.to_string(), real.to_string())),
        _ => {}
    }
}
