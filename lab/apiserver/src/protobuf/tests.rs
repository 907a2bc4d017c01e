use std::path::PathBuf;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::objects::{Object, ObjectKind, parse_manifests};
use crate::testing::filled_store;

/// Drops zero values, which JSON may state or leave out.
fn normal(value: &Value) -> Value {
    let is_zero = |value: &Value| matches!(value, Value::Null | Value::Bool(false)) || *value == 0 || *value == "";
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), normal(value)));
            let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
            Value::Object(fields.filter(|(_, value)| !is_zero(value) && !is_empty(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(normal).collect()),
        other => other.clone(),
    }
}

/// The bytes say whether a zero value is set, so equal bytes mean that nothing is lost.
fn assert_round_trip(object: &Value) {
    let bytes = encode(object).unwrap();
    let decoded = decode(&bytes).unwrap();
    assert_eq!(normal(&decoded), normal(object));
    assert_eq!(encode(&decoded).unwrap(), bytes, "{object}");
}

/// Field numbers: `generated.proto` of meta/v1 and discovery/v1.
#[test]
fn an_endpoint_slice_has_the_bytes_of_kubernetes() {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "a", "creationTimestamp": "2001-09-09T01:46:40Z", "labels": {"b": "c"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
        "ports": [{"name": "", "port": 80}],
    });
    let metadata = [
        b"\x0a\x01a".as_slice(),                   // name = 1
        b"\x12\0\x1a\0\x22\0\x2a\0\x32\0",         // generateName = 2 … resourceVersion = 6
        b"\x38\0",                                 // generation = 7
        b"\x42\x08\x08\x80\x94\xeb\xdc\x03\x10\0", // creationTimestamp = 8: seconds = 1, nanos = 2
        b"\x5a\x06\x0a\x01b\x12\x01c",             // labels = 11: key = 1, value = 2
    ]
    .concat();
    let raw = [
        &[0x0a, u8::try_from(metadata.len()).unwrap()], // metadata = 1
        metadata.as_slice(),
        b"\x12\x0e\x0a\x0810.0.0.1\x12\x02\x08\x01", // endpoints = 2: addresses = 1, conditions = 2, ready = 1
        b"\x1a\x04\x0a\0\x18\x50",                   // ports = 3: name = 1, port = 3
        b"\x22\x04IPv4",                             // addressType = 4
    ]
    .concat();
    let expected = [
        b"k8s\0".as_slice(),
        b"\x0a\x24\x0a\x13discovery.k8s.io/v1\x12\x0dEndpointSlice", // typeMeta = 1: apiVersion = 1, kind = 2
        &[0x12, u8::try_from(raw.len()).unwrap()],                   // raw = 2
        raw.as_slice(),
        b"\x1a\0\x22\0", // contentEncoding = 3, contentType = 4
    ]
    .concat();
    assert_eq!(encode(&slice).unwrap(), expected);
    assert_eq!(decode(&expected).unwrap(), slice);
}

#[test]
fn a_watch_event_has_its_length_in_front() {
    let status = encode(&json!({"apiVersion": "v1", "kind": "Status", "code": 410})).unwrap();
    let event = [watch_event_head("ERROR", status.len()), status].concat();
    let (length, event) = event.split_first_chunk().unwrap();
    assert_eq!(usize::try_from(u32::from_be_bytes(*length)).unwrap(), event.len());
    let expected = json!({"type": "ERROR", "object": {"apiVersion": "v1", "kind": "Status", "code": 410}});
    assert_eq!(decode_watch_event(event).unwrap(), expected);
}

#[test]
fn every_manifest_of_the_scenarios_round_trips() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut tested = 0;
    let mut open = vec![PathBuf::from(folder)];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let scenario = std::fs::read_to_string(path).unwrap();
        for text in texts(&serde_saphyr::from_str(&scenario).unwrap()) {
            for document in parse_manifests(&text).unwrap_or_default() {
                assert_round_trip(&serde_saphyr::from_str(&document.text).unwrap());
                tested += 1;
            }
        }
    }
    assert!(tested > 500, "{tested} manifests");
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) if text.contains("apiVersion:") => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_list_is_encoded_as_one_object() {
    let store = filled_store();
    for kind in ObjectKind::ALL {
        let items: Vec<Value> = store.records(kind).map(|record| record.value()).collect();
        items.iter().for_each(assert_round_trip);
        let (version, name) = (kind.api_version(), format!("{}List", kind.name()));
        let metadata = json!({"resourceVersion": "7", "remainingItemCount": 0});
        let bytes = encode_list(version, &name, &metadata, items.iter().cloned()).unwrap();
        let list = json!({"apiVersion": version, "kind": name, "metadata": metadata, "items": items});
        assert_eq!(bytes, encode(&list).unwrap(), "{kind}");
    }
}

#[test]
fn the_fields_of_a_message_are_in_order() {
    let mut open: Vec<&FieldType> = KINDS.iter().map(|(_, _, of)| *of).collect();
    while let Some(of) = open.pop() {
        let FieldType::Message(fields) = of else { continue };
        assert!(fields.is_sorted_by(|one, next| one.number < next.number), "{fields:?}");
        open.extend(fields.iter().map(|field| field.of));
    }
}

#[test]
fn broken_bodies_are_errors() {
    let unknown = body("v1", "ConfigMap", b"");
    let expected = ProtobufError::Kind { api_version: "v1".to_owned(), kind: "ConfigMap".to_owned() };
    assert_eq!(decode(&unknown), Err(expected));
    assert_eq!(encode(&json!({"apiVersion": "v1", "kind": "ConfigMap"})), None);
    assert_eq!(decode(b"{}"), Err(ProtobufError::Magic));
    let text = ProtobufError::Value { field: "addressType", expected: "UTF-8" };
    assert_eq!(decode(&body("discovery.k8s.io/v1", "EndpointSlice", b"\x22\x01\xff")), Err(text));
    let wire_type = ProtobufError::WireType { field: 4 };
    assert_eq!(decode(&body("discovery.k8s.io/v1", "EndpointSlice", b"\x20\x01")), Err(wire_type));
    let time = ProtobufError::Value { field: "creationTimestamp", expected: "a time" };
    let far = b"\x0a\x0d\x42\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
    assert_eq!(decode(&body("v1", "Node", &[far.as_slice(), b"\x10"].concat()[..])), Err(ProtobufError::Truncated));
    assert_eq!(decode(&body("v1", "Node", b"\x0a\x0c\x42\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f")), Err(time));
}

fn message(fields: &'static [Field]) -> BoxedStrategy<Map<String, Value>> {
    let option = |field: &'static Field| match (field.form, field.of) {
        // k8s-openapi requires plain times.
        (FieldForm::Plain, FieldType::Time) => field_value(field).prop_map(Some).boxed(),
        _ => prop::option::weighted(0.3, field_value(field)).boxed(),
    };
    let fields: Vec<_> = fields.iter().map(option).collect();
    fields.prop_map(|fields| fields.into_iter().flatten().flatten().collect()).boxed()
}

/// Generates a field, or the fields of an inline message.
fn field_value(field: &'static Field) -> BoxedStrategy<Map<String, Value>> {
    let named = |value: Value| Map::from_iter([(field.name.to_owned(), value)]);
    let one = value(field.of);
    match (field.form, field.of) {
        (FieldForm::Inline, FieldType::Message(fields)) => message(fields),
        (FieldForm::List, _) => vec(one, 0..3).prop_map(move |items| named(items.into())).boxed(),
        (FieldForm::Map, _) => btree_map("[a-z/]{0,3}", one, 0..3)
            .prop_map(move |map| named(Value::Object(map.into_iter().collect())))
            .boxed(),
        _ => one.prop_map(named).boxed(),
    }
}

fn value(of: &'static FieldType) -> BoxedStrategy<Value> {
    let time = |seconds: i64| jiff::Timestamp::from_second(seconds).unwrap();
    let seconds = -10_000_000_000..10_000_000_000_i64;
    match of {
        FieldType::String => "[a-zé]{0,3}".prop_map(Value::from).boxed(),
        FieldType::Bool => any::<bool>().prop_map(Value::from).boxed(),
        FieldType::Int => prop_oneof![Just(0), any::<i32>()].prop_map(Value::from).boxed(),
        FieldType::Time => seconds.prop_map(move |seconds| time(seconds).to_string().into()).boxed(),
        FieldType::MicroTime => seconds.prop_map(move |seconds| format!("{:.6}", time(seconds)).into()).boxed(),
        FieldType::Quantity => "[1-9](m|Gi)?".prop_map(Value::from).boxed(),
        FieldType::IntOrString => {
            prop_oneof![any::<i32>().prop_map(Value::from), "[a-z0-9%]{0,3}".prop_map(Value::from)].boxed()
        }
        FieldType::Raw => Just(json!({"f:spec": {"f:type": {}}})).boxed(),
        FieldType::Message(fields) => message(fields).prop_map(Value::Object).boxed(),
    }
}

fn any_object() -> impl Strategy<Value = Value> {
    let kinds: Vec<_> = KINDS
        .iter()
        .map(|(api_version, kind, of)| {
            value(of)
                .prop_map(move |mut object| {
                    (object["apiVersion"], object["kind"]) = (json!(api_version), json!(kind));
                    object
                })
                .boxed()
        })
        .collect();
    prop::strategy::Union::new(kinds)
}

proptest! {
    #[test]
    fn every_object_round_trips_with_the_names_of_kubernetes(object in any_object()) {
        assert_round_trip(&object);
        let kind = ObjectKind::ALL.into_iter().find(|kind| (kind.api_version(), kind.name()) == type_of(&object));
        if let Some(kind) = kind {
            let (_, unknown) = Object::from_value(kind, &object).unwrap();
            prop_assert_eq!(unknown, Vec::<String>::new());
        }
    }

    #[test]
    fn no_bytes_break_the_decoder(object in any_object(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = encode(&object).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode(&bytes);
        let _ = decode(&bytes[..at]);
    }
}
