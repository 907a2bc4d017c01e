//! The JSON Schema of scenario files. Types with a hand-written `Deserialize` have their schema here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use svclab_audit::audit::FindingKind;

use super::file::{
    ClientFile, ExpectedServers, FindingFile, Ip, KillFile, KillMap, Manifests, Net, NodeFile, Nodes, PortRange,
    ScenarioFile, StartFile, StartMap,
};
use super::values::{
    ApiFault, InvalidObject, NodeChoice, ObjectRef, OneOrMany, PlaceRef, PlainText, PodRef, ProbeTarget, Sensitivity,
    Share, SourceAddress, TimeBound, TimeSpan,
};
use crate::expect::counters::PacketCount;

#[must_use]
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(ScenarioFile);
    schema.insert("title".to_owned(), "A scenario of svclab".into());
    schema.to_value()
}

macro_rules! written {
    ($($type:ty, $kinds:tt, $words:literal;)+) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": $kinds, "description": $words })
            }
        }
    )+};
}

written! {
    ApiFault, "string", "What the Kubernetes API does wrong, such as `break watches`, `compact`, `hold services` or `accept`";
    TimeBound, "string", "A bound on a time, such as `>=100ms` or `<=2s`";
    PlaceRef, "string", "pod/NAME, pod/NAMESPACE/NAME, node/NAME, client/NAME or load-balancer";
    ProbeTarget, "string", "service/NAME[:PORT], nodePort/NAME[:PORT]@NODE, loadBalancer/NAME[:PORT], externalIP/NAME[:PORT], pod/NAME:PORT, node/NAME:PORT or IP:PORT";
    ObjectRef, "string", "pod/NAME, service/NAME, endpointslice/NAME or servicecidr/NAME";
    InvalidObject, "string", "node/NAME, service/NAME, …, or `all`";
    PodRef, "string", "A pod: NAME, NAMESPACE/NAME or pod/NAME";
    Sensitivity, ["string", "number"], "The skew of a share that is to be seen, such as 20%";
    Share, ["string", "number"], "A share, such as 1/3, 0.25 or 25%";
    TimeSpan, "string", "A time, such as 300ms, 10s, 3m or 3h";
    SourceAddress, "string", "client, not-client, node, node/NAME, pod/NAME, load-balancer or an IP address";
    NodeChoice, "string", "A node's name, or `all`";
    PlainText, ["string", "number", "boolean"], "A text";
    Net, "string", "A range of addresses, such as 10.244.0.0/16";
    Ip, "string", "An IP address";
    PortRange, ["string", "integer"], "A port, or A-B";
    PacketCount, ["string", "integer"], "A number, >=N, <=N or `answers of POD`";
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (one, many) = (generator.subschema_for::<T>(), generator.subschema_for::<Vec<T>>());
        json_schema!({ "anyOf": [one, many] })
    }
}

impl JsonSchema for Manifests {
    fn schema_name() -> Cow<'static, str> {
        "Manifests".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Kubernetes manifests as a block of text, or a list of files beside the scenario",
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
        })
    }
}

impl JsonSchema for Nodes {
    fn schema_name() -> Cow<'static, str> {
        "Nodes".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let listed = generator.subschema_for::<Vec<NodeFile>>();
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 26 }, listed] })
    }
}

impl JsonSchema for ClientFile {
    fn schema_name() -> Cow<'static, str> {
        "Client".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let address = generator.subschema_for::<OneOrMany<Ip>>();
        let full = json_schema!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "The client's name." },
                "address": described(address, "The client's address on `nodeNetwork`, or a list of one per family; default: `.100`, `.101`, …."),
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        json_schema!({ "anyOf": [{ "type": "string" }, full] })
    }
}

impl JsonSchema for ExpectedServers {
    fn schema_name() -> Cow<'static, str> {
        "Answered".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let by = [generator.subschema_for::<PodRef>(), generator.subschema_for::<Vec<PodRef>>()];
        let shares = generator.subschema_for::<BTreeMap<String, Share>>();
        json_schema!({ "anyOf": [by[0], by[1], shares] })
    }
}

impl JsonSchema for FindingFile {
    fn schema_name() -> Cow<'static, str> {
        "Finding".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kinds: Vec<&str> = FindingKind::all().map(FindingKind::id).collect();
        let cause = generator.subschema_for::<OneOrMany<PlainText>>();
        let kind = json_schema!({ "type": "string", "enum": kinds, "description": "The kind of finding." });
        let service = "The Service, as `[NAMESPACE/]NAME[:PORT]`; default: any.";
        let cause = described(cause, "A text, or a list of texts, that the cause contains; default: any cause.");
        let full = json_schema!({
            "type": "object",
            "properties": { "kind": kind, "service": { "type": "string", "description": service }, "cause": cause },
            "required": ["kind"],
            "additionalProperties": false,
        });
        json_schema!({ "anyOf": [kind, full] })
    }
}

fn nodes_or<M: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let (nodes, map) = (generator.subschema_for::<OneOrMany<NodeChoice>>(), M::json_schema(generator));
    json_schema!({ "anyOf": [nodes, map] })
}

impl JsonSchema for KillFile {
    fn schema_name() -> Cow<'static, str> {
        "Kill".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        nodes_or::<KillMap>(generator)
    }
}

impl JsonSchema for StartFile {
    fn schema_name() -> Cow<'static, str> {
        "Start".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        nodes_or::<StartMap>(generator)
    }
}

fn described(mut schema: Schema, description: &str) -> Schema {
    schema.insert("description".to_owned(), description.into());
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the paths of all properties, and of those without a description.
    fn properties(at: &str, schema: &Value, all: &mut Vec<String>, lacking: &mut Vec<String>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{at}.{key}");
            if property["description"].as_str().is_none_or(str::is_empty) {
                lacking.push(path.clone());
            }
            all.push(path);
        }
        match schema {
            Value::Object(inner) => {
                inner.iter().for_each(|(key, one)| properties(&format!("{at}/{key}"), one, all, lacking))
            }
            Value::Array(items) => items.iter().for_each(|one| properties(at, one, all, lacking)),
            _ => {}
        }
    }

    #[test]
    fn each_property_has_a_description() {
        let (mut all, mut lacking) = (Vec::new(), Vec::new());
        properties("", &schema(), &mut all, &mut lacking);
        assert!(all.len() > 200, "{}", all.len());
        assert_eq!(lacking, Vec::<String>::new());
    }
}
