//! The envelopes and metadata of `k8s.io/apimachinery`, as `messages` has the kinds.

use std::collections::BTreeMap;

use prost::Message;
use prost::bytes::Bytes;

/// `runtime.Unknown`: every answer and every object of an event is within one.
#[derive(Clone, PartialEq, Message)]
pub struct Unknown {
    #[prost(message, required, tag = "1")]
    pub type_meta: TypeMeta,
    #[prost(bytes = "bytes", tag = "2")]
    pub raw: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct TypeMeta {
    #[prost(string, tag = "1")]
    pub api_version: String,
    #[prost(string, tag = "2")]
    pub kind: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchEvent {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(message, required, tag = "2")]
    pub object: RawExtension,
}

#[derive(Clone, PartialEq, Message)]
pub struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    pub raw: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListMeta {
    #[prost(string, tag = "2")]
    pub resource_version: String,
    #[prost(string, tag = "3")]
    pub continue_token: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(string, tag = "3")]
    pub message: String,
    #[prost(string, tag = "4")]
    pub reason: String,
    #[prost(message, optional, tag = "5")]
    pub details: Option<StatusDetails>,
    #[prost(int32, tag = "6")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusDetails {
    #[prost(message, repeated, tag = "4")]
    pub causes: Vec<StatusCause>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusCause {
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(string, tag = "3")]
    pub field: String,
}

/// Any object.
#[derive(Clone, PartialEq, Message)]
pub struct Identified {
    #[prost(message, required, tag = "1")]
    pub metadata: Identity,
}

#[derive(Clone, PartialEq, Message)]
pub struct Identity {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(string, tag = "5")]
    pub uid: String,
    #[prost(string, tag = "6")]
    pub resource_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(string, tag = "5")]
    pub uid: String,
    #[prost(string, tag = "6")]
    pub resource_version: String,
    #[prost(message, optional, tag = "8")]
    pub creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    pub deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "12")]
    pub annotations: Vec<Annotation>,
}

/// Refers to the answer's bytes: annotations may be large, and the proxy keeps few.
#[derive(Clone, PartialEq, Message)]
pub struct Annotation {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// Kubernetes' JSON has whole seconds, so the nanoseconds are skipped, as its own clients do.
#[derive(Clone, PartialEq, Message)]
pub struct Time {
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
}
