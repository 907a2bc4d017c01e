//! Converts Events between `v1` (stored) and `events.k8s.io/v1`.

use serde_json::{Map, Value, json};

/// Renamed fields: (field in `v1`, field in `events.k8s.io/v1`).
const RENAMED: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];
const CONTROLLER: (&str, &str) = ("reportingComponent", "reportingController");

fn renamed(event: &mut Value, version: &str, name: impl Fn(&(&str, &str)) -> (String, String)) {
    let Value::Object(fields) = event else { return };
    let mut result = Map::new();
    let table: Vec<(String, String)> = RENAMED.iter().chain([&CONTROLLER]).map(name).collect();
    for (field, value) in std::mem::take(fields) {
        let new = table.iter().find(|(old, _)| *old == field).map_or(field, |(_, new)| new.clone());
        result.insert(new, value);
    }
    result.insert("apiVersion".to_owned(), json!(version));
    *fields = result;
}

pub(super) fn to_stored(event: &mut Value) {
    renamed(event, "v1", |(core, events)| ((*events).to_owned(), (*core).to_owned()));
    if let Value::Object(fields) = event {
        // `v1` requires this field.
        fields.entry("involvedObject").or_insert_with(|| json!({}));
    }
}

pub(super) fn from_stored(event: &mut Value) {
    renamed(event, "events.k8s.io/v1", |(core, events)| ((*core).to_owned(), (*events).to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_both_conversions() {
        let written = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}, "note": "it broke",
            "regarding": {"kind": "Node", "name": "node-a"}, "reportingController": "kube-proxy", "reason": "Broken",
            "deprecatedCount": 2,
        });
        let mut event = written.clone();
        to_stored(&mut event);
        assert_eq!(event["message"], "it broke");
        assert_eq!(event["involvedObject"]["name"], "node-a");
        assert_eq!(event["reportingComponent"], "kube-proxy");
        assert_eq!(event["apiVersion"], "v1");
        from_stored(&mut event);
        assert_eq!(event, written);
    }
}
