//! The same object in JSON and in protobuf is the same to the proxy, so a change of encoding changes nothing.

use proptest::prelude::*;
use prost::bytes::Bytes;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::super::super::hostile::{spoil, string, templates};
use super::super::super::object::{Object, ObjectId, ObjectKind};
use super::super::decode::{DecodeOutcome, Envelope, RawObject, decode};
use super::super::prune::TRIGGER_TIME;
use super::super::reflect::Failure;
use super::EncodedObject;

#[path = "../../../../tests/it/support/protobuf.rs"]
#[allow(dead_code, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]
mod encode;

fn kind_of(object: &Value) -> ObjectKind {
    ObjectKind::of(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap()
}

/// Adds what API servers add, most of which is not kept.
fn served(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.insert("uid".to_owned(), json!("u"));
    metadata.insert("resourceVersion".to_owned(), json!("7"));
    metadata.insert("generation".to_owned(), json!(3));
    metadata.insert("creationTimestamp".to_owned(), json!("2026-01-01T00:00:01Z"));
    metadata.insert("annotations".to_owned(), json!({TRIGGER_TIME: "2026-01-01T00:00:02Z", "other": "x"}));
    metadata.insert("managedFields".to_owned(), json!([{"manager": "m", "time": "2026-01-01T00:00:01Z"}]));
    object
}

/// Returns how the proxy sees the object, in JSON and in protobuf.
fn decoded(object: &Value) -> (String, String) {
    let kind = kind_of(object);
    let mut written = object.clone();
    encode::as_written(kind.name(), &mut written);
    let json = to_raw_value(&written).unwrap();
    let encoded = EncodedObject::item(Bytes::from(encode::message(kind.name(), object)));
    let [json, protobuf] = [RawObject::Json(&json), RawObject::Protobuf(encoded)].map(|raw| decode(kind, &raw));
    (format!("{json:#?}"), format!("{protobuf:#?}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn an_encoding_changes_no_object(
        strings in prop::collection::vec(prop::option::weighted(0.15, string()), 30),
        template in prop::sample::select(templates()),
    ) {
        let (json, protobuf) = decoded(&served(spoil(template, &mut strings.into_iter())));
        prop_assert_eq!(json, protobuf);
    }
}

#[test]
fn an_encoding_changes_no_number() {
    let with = |template: usize, pointer: &str, value: Value| {
        let mut object = templates().swap_remove(template);
        *object.pointer_mut(pointer).unwrap() = value;
        let (json, protobuf) = decoded(&served(object));
        assert_eq!(json, protobuf, "{pointer}");
        protobuf
    };
    for number in [0, 1, 65_535, 65_536, -1, i32::MIN, i32::MAX] {
        let port = with(0, "/spec/ports/0/port", json!(number));
        assert_eq!(port.contains("Refused"), !(1..=65_535).contains(&number), "{port}");
        let port = json!([{"name": "http", "port": 80, "nodePort": number, "targetPort": number}]);
        with(0, "/spec/ports", port);
        with(1, "/ports/0/port", json!(number));
        with(
            0,
            "/status/loadBalancer/ingress",
            json!([{"ip": "192.0.2.1", "ports": [{"port": number, "protocol": "TCP"}]}]),
        );
        let mut affinity = templates().swap_remove(0);
        affinity["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": number}});
        affinity["spec"]["healthCheckNodePort"] = json!(number);
        let (json, protobuf) = decoded(&served(affinity));
        assert_eq!(json, protobuf);
    }
    with(1, "/ports", json!([]));
    with(1, "/endpoints/0/hints", json!({}));
    with(
        2,
        "/spec",
        json!({"taints": [{"key": "a", "value": "", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:01Z"}]}),
    );
}

#[test]
fn every_condition_is_decoded() {
    for conditions in
        [json!({}), json!({"ready": true, "serving": false, "terminating": true}), json!({"ready": false})]
    {
        let mut slice = templates().swap_remove(1);
        slice["endpoints"][0]["conditions"] = conditions;
        let (json, protobuf) = decoded(&served(slice));
        assert_eq!(json, protobuf);
    }
}

#[test]
fn a_faulty_object_keeps_its_name() {
    let mut bytes = encode::message(
        "Service",
        &json!({"metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7"}}),
    );
    // A spec that is a number.
    bytes.extend([2 << 3, 1]);
    let object = RawObject::Protobuf(EncodedObject::item(Bytes::from(bytes)));
    let decoded = decode(ObjectKind::Service, &object);
    assert_eq!((&*decoded.key.name, &*decoded.key.namespace, &*decoded.uid, &*decoded.version), ("a", "b", "u", "7"));
    let DecodeOutcome::Refused(complaint) = decoded.outcome else { panic!("{decoded:?}") };
    assert!(complaint.line.contains("Service.spec: invalid wire type"), "{complaint:?}");
}

#[test]
fn an_object_of_another_kind_is_refused() {
    let node = encode::unknown("v1", "Node", &encode::message("Node", &json!({"metadata": {"name": "a"}})));
    let object = RawObject::Protobuf(EncodedObject::of(Bytes::from(node)).unwrap());
    assert!(Envelope::of(&object).is_of(ObjectKind::Node));
    let DecodeOutcome::Refused(complaint) = decode(ObjectKind::Service, &object).outcome else { panic!("a Service") };
    assert_eq!(complaint.line, "kind: \"Node\" of \"v1\" where a Service is expected");
}

#[test]
fn a_time_out_of_range_is_left_out() {
    let mut metadata = encode::message("ObjectMeta", &json!({"name": "kubernetes"}));
    // creationTimestamp, with the largest number of seconds.
    metadata.extend([8 << 3 | 2, 10, 1 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    let mut cidr = Vec::new();
    encode::bytes(&mut cidr, 1, &metadata);
    encode::bytes(&mut cidr, 2, &encode::message("ServiceCIDRSpec", &json!({"cidrs": ["10.96.0.0/16"]})));
    let decoded = decode(ObjectKind::ServiceCidr, &RawObject::Protobuf(EncodedObject::item(Bytes::from(cidr))));
    assert!(matches!(decoded.outcome, DecodeOutcome::Valid(..)), "{decoded:?}");
    assert_eq!(decoded.remarks.fields, "metadata.creationTimestamp");
}

#[test]
fn a_status_keeps_its_causes() {
    let status = json!({"apiVersion": "v1", "kind": "Status", "message": "too large", "reason": "Timeout", "code": 504,
        "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "m"}]}});
    let status = super::status(Bytes::from(encode::answer(&status))).unwrap();
    assert_eq!((status.code, &*status.message, &*status.reason), (504, "too large", "Timeout"));
    assert_eq!(status.details.unwrap().causes[0].reason, "ResourceVersionTooLarge");
}

#[test]
fn events_need_the_magic_number() {
    let event = json!({"type": "ADDED", "object": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}});
    let frame = Bytes::from(encode::frame(&event).split_off(4));
    let (event, object) = super::event(frame.clone()).unwrap();
    assert_eq!((&*event, object.envelope().key().name), ("ADDED", "a".into()));
    let spoilt: Vec<u8> = frame.iter().map(|byte| if *byte == b'k' { b'K' } else { *byte }).collect();
    assert!(matches!(super::event(Bytes::from(spoilt)), Err(Failure::Nonsense(_))));
    assert!(matches!(super::event(frame.slice(..frame.len() - 1)), Err(Failure::Nonsense(_))));
}

/// Returns the object as it is kept, and as it is after the encoding of the state file; `None` if it is not valid.
fn kept(object: &Value) -> Option<(Value, Value, usize)> {
    let kind = kind_of(object);
    let read = |bytes: Vec<u8>| decode(kind, &RawObject::Protobuf(EncodedObject::item(Bytes::from(bytes))));
    let served = read(encode::message(kind.name(), object));
    let DecodeOutcome::Valid(before, _) = served.outcome else { return None };
    let id = ObjectId { kind, key: served.key };
    let (encoded, bytes) = super::encode_change(&before.to_change(&id));
    assert_eq!(encoded, id);
    let bytes = bytes.unwrap();
    let size = bytes.len();
    let before = plain(&before);
    let DecodeOutcome::Valid(after, _) = read(bytes).outcome else {
        // An object of which nothing valid is left is valid once, and no rule misses it.
        assert_eq!((kind, before.get("spec")), (ObjectKind::ServiceCidr, None), "{object}");
        return None;
    };
    Some((before, plain(&after), size))
}

/// Returns the object's fields without empty ones, version and trigger time.
fn plain(object: &Object) -> Value {
    let value = match object {
        Object::Node(node) => serde_json::to_value(&**node),
        Object::Service(service) => serde_json::to_value(&**service),
        Object::EndpointSlice(slice) => serde_json::to_value(&**slice),
        Object::ServiceCidr(cidr) => serde_json::to_value(&**cidr),
    };
    let mut value = value.unwrap();
    let metadata = value["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(TRIGGER_TIME);
    }
    without_empty(value).unwrap_or_default()
}

fn without_empty(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter_map(|(key, value)| Some((key, without_empty(value)?)));
            let fields: serde_json::Map<_, _> = fields.collect();
            (!fields.is_empty()).then(|| fields.into())
        }
        Value::Array(items) => {
            (!items.is_empty()).then(|| items.into_iter().map(|i| without_empty(i).unwrap_or_default()).collect())
        }
        Value::String(text) => (!text.is_empty()).then(|| text.into()),
        Value::Null => None,
        other => Some(other),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_kept_object_is_the_same_after_its_encoding(
        strings in prop::collection::vec(prop::option::weighted(0.15, string()), 30),
        template in prop::sample::select(templates()),
    ) {
        if let Some((before, after, _)) = kept(&served(spoil(template, &mut strings.into_iter()))) {
            prop_assert_eq!(before, after);
        }
    }
}

#[test]
fn every_kept_field_is_encoded() {
    let mut objects = templates();
    objects[0]["spec"]["ports"] =
        json!([{"name": "a", "port": 80, "nodePort": 30080, "targetPort": 8080, "protocol": "UDP"}]);
    objects[0]["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 7}});
    objects[0]["spec"]["healthCheckNodePort"] = json!(30081);
    objects[0]["spec"]["publishNotReadyAddresses"] = json!(true);
    objects[0]["status"]["loadBalancer"]["ingress"] =
        json!([{"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "TCP", "error": "x"}]}]);
    objects[0]["metadata"]["annotations"] = json!({"svcproxy/flow-fate": "drain=7s"});
    objects[0]["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": "other"});
    objects[1]["endpoints"][0]["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
    objects[2]["spec"]["taints"] =
        json!([{"key": "a", "value": "b", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:01Z"}]);
    objects[2]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
    for object in objects {
        let (before, after, size) = kept(&served(object.clone())).unwrap();
        assert_eq!(before, after, "{object}");
        assert!(size < object.to_string().len(), "{size} bytes: {object}");
    }
}
