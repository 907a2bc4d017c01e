//! One event, two forms: `v1 Event`, which is stored, and `events.k8s.io/v1 Event`, which components write today.

use serde_json::{Map, Value, json};

/// (name in `v1`, name in `events.k8s.io/v1`); all other fields have one name in both.
const RENAMED: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];
/// One more, which upstream renames the other way round.
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

/// From `events.k8s.io/v1` to the stored form.
pub(super) fn to_stored(event: &mut Value) {
    renamed(event, "v1", |(core, events)| ((*events).to_owned(), (*core).to_owned()));
    if let Value::Object(fields) = event {
        // Required in the stored type, optional in the other.
        fields.entry("involvedObject").or_insert_with(|| json!({}));
    }
}

/// From the stored form to `events.k8s.io/v1`.
pub(super) fn from_stored(event: &mut Value) {
    renamed(event, "events.k8s.io/v1", |(core, events)| ((*core).to_owned(), (*events).to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_the_way_there_and_back() {
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
