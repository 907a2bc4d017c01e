//! Encodes Events.

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use prost::Message;
use prost::bytes::Bytes;

use super::{MAGIC, messages, meta};

/// Returns the body of a request that creates `event`. Fields that this proxy never sets are left out.
pub(in super::super) fn encoded(event: &Event) -> Vec<u8> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let metadata = meta::ObjectMeta {
        name: text(&event.metadata.name),
        namespace: text(&event.metadata.namespace),
        ..meta::ObjectMeta::default()
    };
    let message = messages::Event {
        metadata,
        event_time: event
            .event_time
            .as_ref()
            .map(|time| messages::MicroTime { seconds: time.0.as_second(), nanoseconds: time.0.subsec_nanosecond() }),
        reporting_controller: text(&event.reporting_controller),
        reporting_instance: text(&event.reporting_instance),
        action: text(&event.action),
        reason: text(&event.reason),
        regarding: event.regarding.as_ref().map(reference),
        note: text(&event.note),
        r#type: text(&event.type_),
    };
    let type_meta = meta::TypeMeta { api_version: Event::API_VERSION.to_owned(), kind: Event::KIND.to_owned() };
    let unknown = meta::Unknown { type_meta, raw: Bytes::from(message.encode_to_vec()) };
    [MAGIC, &unknown.encode_to_vec()].concat()
}

fn reference(to: &ObjectReference) -> messages::ObjectReference {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    messages::ObjectReference {
        kind: text(&to.kind),
        namespace: text(&to.namespace),
        name: text(&to.name),
        uid: text(&to.uid),
        api_version: text(&to.api_version),
    }
}
