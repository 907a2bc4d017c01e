//! The encodings of objects in bodies.

use bytes::Bytes;
use serde_json::Value;

use super::protobuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    pub(super) const ALL: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];

    pub(super) fn media(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// As kube-apiserver names the media type of a watch.
    pub(super) fn watch_media(self) -> &'static str {
        match self {
            Encoding::Json => self.media(),
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// Encodes an object of a kind that the server sends, each of which has a table.
    pub(super) fn encode(self, object: &Value) -> Bytes {
        match self {
            Encoding::Json => object.to_string().into(),
            Encoding::Protobuf => protobuf::encode(object).unwrap_or_default().into(),
        }
    }

    /// Fails with a sentence about the body.
    pub(super) fn decode(self, body: &[u8]) -> Result<Value, String> {
        match self {
            Encoding::Json => {
                serde_json::from_slice(body).map_err(|error| format!("the body is no JSON object: {error}"))
            }
            Encoding::Protobuf => protobuf::decode(body).map_err(|error| format!("the body: {error}")),
        }
    }

    /// Frames an encoded object as an event of a watch.
    pub(super) fn watch_event(self, event_type: &str, object: Bytes) -> [Bytes; 3] {
        match self {
            Encoding::Json => {
                [format!("{{\"type\":\"{event_type}\",\"object\":").into(), object, Bytes::from_static(b"}\n")]
            }
            Encoding::Protobuf => [protobuf::watch_event_head(event_type, object.len()).into(), object, Bytes::new()],
        }
    }
}

pub(super) fn media_types(encodings: &[Encoding]) -> String {
    encodings.iter().map(|encoding| encoding.media()).collect::<Vec<_>>().join(", ")
}
