//! Kubernetes' protobuf: objects between JSON and `application/vnd.kubernetes.protobuf`.
//!
//! One table per message ([`messages`]) serves both directions. A body is the magic number and a `runtime.Unknown`, which
//! names the type and holds the object's bytes.

mod decode;
mod encode;
mod messages;
mod schema;
#[cfg(test)]
mod tests;
mod wire;

use std::borrow::Cow;

use serde_json::{Value, json};

use schema::{Field, FieldForm, FieldType};
use wire::{WireFields, WireValue, put_bytes, put_length};

/// The first bytes of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Why bytes are not an object in protobuf.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body has another beginning.
    #[error("the body does not begin with the magic number of Kubernetes' protobuf")]
    Magic,
    /// The type has no table.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Kind {
        /// `apiVersion` of the body.
        api_version: String,
        /// `kind` of the body.
        kind: String,
    },
    /// A value is longer than the bytes that follow.
    #[error("the message breaks off")]
    Truncated,
    /// A number has more than ten bytes.
    #[error("a number is too long")]
    Varint,
    /// A field has the encoding of another type.
    #[error("field {field} has the wrong wire type")]
    WireType {
        /// The field's number.
        field: u64,
    },
    /// A field has bytes that are no value of its type.
    #[error("{field}: expected {expected}")]
    Value {
        /// The field's name in JSON.
        field: &'static str,
        /// What the bytes must be.
        expected: &'static str,
    },
}

/// The kinds that the server sends or accepts, besides lists. `DeleteOptions` have the version of any group.
static KINDS: [(&str, &str, &FieldType); 18] = [
    ("", "DeleteOptions", &messages::DeleteOptions),
    ("v1", "Endpoints", &messages::Endpoints),
    ("v1", "Event", &messages::Event),
    ("v1", "Namespace", &messages::Namespace),
    ("v1", "Node", &messages::Node),
    ("v1", "Pod", &messages::Pod),
    ("v1", "Service", &messages::Service),
    ("v1", "Status", &messages::Status),
    ("apps/v1", "Deployment", &messages::Deployment),
    ("apps/v1", "ReplicaSet", &messages::ReplicaSet),
    ("autoscaling/v1", "Scale", &messages::Scale),
    ("coordination.k8s.io/v1", "Lease", &messages::Lease),
    ("discovery.k8s.io/v1", "EndpointSlice", &messages::EndpointSlice),
    ("events.k8s.io/v1", "Event", &messages::EventsEvent),
    ("meta.k8s.io/v1", "PartialObjectMetadata", &messages::PartialObjectMetadata),
    // The API has no object of this kind.
    ("networking.k8s.io/v1", "NetworkPolicy", &messages::NetworkPolicy),
    ("networking.k8s.io/v1", "ServiceCIDR", &messages::ServiceCIDR),
    ("policy/v1", "Eviction", &messages::Eviction),
];

fn kind_type(api_version: &str, kind: &str) -> Option<&'static FieldType> {
    let found =
        KINDS.iter().find(|(version, name, _)| *name == kind && (version.is_empty() || *version == api_version));
    found.map(|(_, _, of)| *of)
}

/// Returns the fields of an object, or of a list, whose table is made from that of its items.
fn kind_fields(api_version: &str, kind: &str) -> Option<Cow<'static, [Field]>> {
    if let Some(FieldType::Message(fields)) = kind_type(api_version, kind) {
        return Some(Cow::Borrowed(fields));
    }
    let items = kind_type(api_version, kind.strip_suffix("List")?)?;
    Some(Cow::Owned(vec![
        Field { number: 1, name: "metadata", form: FieldForm::Plain, of: &messages::ListMeta },
        Field { number: 2, name: "items", form: FieldForm::List, of: items },
    ]))
}

fn type_of(object: &Value) -> (&str, &str) {
    (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default())
}

/// Encodes an object or a list as a body; `None` if its kind has no table.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = type_of(object);
    let mut raw = Vec::new();
    encode::put_message(&mut raw, &kind_fields(api_version, kind)?, object);
    Some(body(api_version, kind, &raw))
}

/// Encodes a list as [`encode()`] does, one item at a time; `None` if an item's kind has no table.
pub(crate) fn encode_list(
    api_version: &str,
    kind: &str,
    metadata: &Value,
    items: impl Iterator<Item = Value>,
) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    let head = json!({ "metadata": metadata });
    encode::put_message(&mut raw, &kind_fields(api_version, kind)?, &head);
    for item in items {
        let (mut object, (api_version, kind)) = (Vec::new(), type_of(&item));
        encode::put_message(&mut object, &kind_fields(api_version, kind)?, &item);
        put_bytes(&mut raw, 2, &object);
    }
    Some(body(api_version, kind, &raw))
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    put_bytes(&mut type_meta, 1, api_version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    put_bytes(&mut out, 1, &type_meta);
    put_bytes(&mut out, 2, raw);
    // contentEncoding and contentType.
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    out
}

/// Decodes a body into the object or the list.
///
/// # Errors
/// Bytes that are no such body, and kinds without a table.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let unknown = body.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
    let (type_meta, raw) = (bytes_field(unknown, 1)?, bytes_field(unknown, 2)?);
    let text = |field| bytes_field(type_meta, field).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let (api_version, kind) = (text(1)?, text(2)?);
    let Some(fields) = kind_fields(&api_version, &kind) else { return Err(ProtobufError::Kind { api_version, kind }) };
    let mut object = decode::message(&fields, raw)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(object.into())
}

/// Returns the bytes of a message's field; empty if the field is missing.
fn bytes_field(message: &[u8], number: u64) -> Result<&[u8], ProtobufError> {
    let mut bytes: &[u8] = &[];
    for field in WireFields(message) {
        match field? {
            (found, WireValue::Bytes(value)) if found == number => bytes = value,
            _ => {}
        }
    }
    Ok(bytes)
}

/// Returns what precedes the `length` bytes of an event's object in a watch: the event's length as four bytes, and the
/// beginning of a `meta.v1.WatchEvent`.
pub(crate) fn watch_event_head(event_type: &str, length: usize) -> Vec<u8> {
    let (mut head, mut object_head) = (Vec::new(), Vec::new());
    put_bytes(&mut head, 1, event_type.as_bytes());
    put_length(&mut object_head, 1, length);
    put_length(&mut head, 2, object_head.len() + length);
    head.extend(object_head);
    // A body has at most four gibibytes.
    let event_length = u32::try_from(head.len() + length).unwrap_or(u32::MAX);
    [&event_length.to_be_bytes()[..], &head].concat()
}

/// Decodes an event of a watch without its length into `{"type": …, "object": …}`.
///
/// # Errors
/// Bytes that are no event, and objects that [`decode()`] refuses.
pub fn decode_watch_event(event: &[u8]) -> Result<Value, ProtobufError> {
    let event_type = String::from_utf8_lossy(bytes_field(event, 1)?);
    let object = decode(bytes_field(bytes_field(event, 2)?, 1)?)?;
    Ok(json!({ "type": event_type, "object": object }))
}
