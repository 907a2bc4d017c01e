//! Encodes Events.

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use prost::Message;
use prost::bytes::Bytes;

use super::encode::text;
use super::{MAGIC, messages, meta};

/// Returns the body of a request that creates `event`. Fields that this proxy never sets are left out.
pub(in super::super) fn encoded(event: &Event) -> Vec<u8> {
    let metadata = meta::ObjectMeta {
        name: text(event.metadata.name.as_ref()),
        namespace: text(event.metadata.namespace.as_ref()),
        ..meta::ObjectMeta::default()
    };
    let message = messages::Event {
        metadata,
        event_time: event
            .event_time
            .as_ref()
            .map(|time| messages::MicroTime { seconds: time.0.as_second(), nanoseconds: time.0.subsec_nanosecond() }),
        reporting_controller: text(event.reporting_controller.as_ref()),
        reporting_instance: text(event.reporting_instance.as_ref()),
        action: text(event.action.as_ref()),
        reason: text(event.reason.as_ref()),
        regarding: event.regarding.as_ref().map(reference),
        note: text(event.note.as_ref()),
        r#type: text(event.type_.as_ref()),
    };
    let type_meta = meta::TypeMeta { api_version: Event::API_VERSION.to_owned(), kind: Event::KIND.to_owned() };
    let unknown = meta::Unknown { type_meta, raw: Bytes::from(message.encode_to_vec()) };
    [MAGIC, &unknown.encode_to_vec()].concat()
}

fn reference(to: &ObjectReference) -> messages::ObjectReference {
    messages::ObjectReference {
        kind: text(to.kind.as_ref()),
        namespace: text(to.namespace.as_ref()),
        name: text(to.name.as_ref()),
        uid: text(to.uid.as_ref()),
        api_version: text(to.api_version.as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The bytes that kube-apiserver 1.36.2 stores as the same Event as its JSON. Field numbers: `generated.proto` of
    /// k8s.io/api/events/v1, k8s.io/api/core/v1 and k8s.io/apimachinery. A key is `number << 3 | type`, with type 0 for
    /// numbers and 2 for what has its length in front.
    const GOLDEN: &[&[u8]] = &[
        b"k8s\0",
        // Unknown: 1 typeMeta { 1 apiVersion, 2 kind }, 2 raw.
        b"\x0a\x19\x0a\x10events.k8s.io/v1\x12\x05Event",
        b"\x12\x81\x01",
        // 1 metadata { 1 name, 3 namespace }
        b"\x0a\x14\x0a\x09node-a.1f\x1a\x07default",
        // 2 eventTime { 1 seconds, 2 nanos }
        b"\x12\x0b\x08\x80\xf2\xd6\xca\x06\x10\xf0\xfc\xb0\x11",
        // 4 reportingController, 5 reportingInstance, 6 action, 7 reason
        b"\x22\x08svcproxy\x2a\x0fsvcproxy-node-a\x32\x0eStartKubeProxy\x3a\x08Starting",
        // 8 regarding { 1 kind, 3 name, 4 uid, 5 apiVersion }
        b"\x42\x1a\x0a\x04Node\x1a\x06node-a\x22\x06node-a\x2a\x02v1",
        // 10 note, 11 type
        b"\x52\x03run\x5a\x06Normal",
    ];

    #[test]
    fn an_event_has_the_bytes_of_kubernetes() {
        let event = serde_json::from_value(json!({
            "metadata": {"name": "node-a.1f", "namespace": "default"},
            "eventTime": "2026-01-01T00:00:00.036454Z",
            "reportingController": "svcproxy", "reportingInstance": "svcproxy-node-a", "action": "StartKubeProxy",
            "reason": "Starting", "regarding": {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "node-a"},
            "note": "run", "type": "Normal",
        }));
        assert_eq!(encoded(&event.unwrap()), GOLDEN.concat());
    }
}
