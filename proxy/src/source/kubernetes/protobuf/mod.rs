//! Kubernetes' protobuf encoding (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`): a magic number, then a `runtime.Unknown`
//! with the type and the bytes of an object.

mod convert;
mod encode;
mod event;
mod list;
mod messages;
mod meta;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;

use k8s_openapi::Resource;
use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails};
use prost::bytes::Bytes;
use prost::{DecodeError, Message};

use super::super::problem::{one_line, quote};
use super::super::validate::Finding;
use super::decode::{Envelope, Metadata};
use super::reflect::Failure;

pub(super) use convert::FromProtobuf;
pub(super) use encode::change as encode_change;
pub(super) use event::encoded as encoded_event;
pub(super) use list::ListReader;

const MAGIC: &[u8] = b"k8s\0";

/// An object, which shares the bytes of the answer.
#[derive(Debug)]
pub(super) struct EncodedObject {
    /// `None` for the items of a list.
    type_meta: Option<meta::TypeMeta>,
    bytes: Bytes,
}

impl EncodedObject {
    pub(super) fn item(bytes: Bytes) -> EncodedObject {
        EncodedObject { type_meta: None, bytes }
    }

    pub(super) fn of(answer: Bytes) -> Result<EncodedObject, Failure> {
        let rest =
            answer.strip_prefix(MAGIC).ok_or_else(|| Failure::Nonsense("it lacks the magic number".to_owned()))?;
        let unknown = meta::Unknown::decode(answer.slice_ref(rest)).map_err(nonsense)?;
        Ok(EncodedObject { type_meta: Some(unknown.type_meta), bytes: unknown.raw })
    }

    /// Reads the metadata of invalid objects, too.
    pub(super) fn envelope(&self) -> Envelope {
        let meta::Identified { metadata } = meta::Identified::decode(self.bytes.clone()).unwrap_or_default();
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let type_meta = self.type_meta.clone().unwrap_or_default();
        Envelope {
            api_version: text(type_meta.api_version),
            kind: text(type_meta.kind),
            metadata: Metadata {
                name: text(metadata.name),
                namespace: text(metadata.namespace),
                resource_version: text(metadata.resource_version),
                uid: text(metadata.uid),
            },
        }
    }

    /// Decodes an object, and returns the values that were omitted. An error has the field and the cause.
    pub(super) fn read<T: FromProtobuf + Resource>(&self) -> Result<(T, Vec<Finding>), (String, String)> {
        if let Some(is) = &self.type_meta
            && (&*is.api_version, &*is.kind) != (T::API_VERSION, T::KIND)
        {
            let message = format!("{} of {} where a {} is expected", quote(&is.kind), quote(&is.api_version), T::KIND);
            return Err(("kind".to_owned(), message));
        }
        let encoded = T::Encoded::decode(self.bytes.clone());
        let encoded = encoded.map_err(|error| (String::new(), one_line(&error.to_string())))?;
        let mut taken = Vec::new();
        let object = T::converted(encoded, &mut taken);
        Ok((object, taken))
    }

    pub(super) fn status(&self) -> Option<Status> {
        let status = meta::Status::decode(self.bytes.clone()).ok()?;
        let cause =
            |cause: meta::StatusCause| StatusCause { reason: cause.reason, message: cause.message, field: cause.field };
        let details = status.details.map(|details| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: details.causes.into_iter().map(cause).collect(),
            retry_after_seconds: 0,
        });
        let code = u16::try_from(status.code).unwrap_or_default();
        Some(Status { details, ..Status::failure(&status.message, &status.reason).with_code(code) })
    }
}

/// Decodes a watch event into its type and object.
pub(super) fn event(frame: Bytes) -> Result<(String, EncodedObject), Failure> {
    let event = meta::WatchEvent::decode(frame).map_err(nonsense)?;
    Ok((event.r#type, EncodedObject::of(event.object.raw)?))
}

pub(super) fn status(answer: Bytes) -> Option<Status> {
    EncodedObject::of(answer).ok()?.status()
}

fn nonsense(error: DecodeError) -> Failure {
    Failure::Nonsense(one_line(&error.to_string()))
}
