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
