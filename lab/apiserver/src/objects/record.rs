use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Endpoints, Event, Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Serialize;
use serde_json::Value;

use super::kind::ObjectKind;
use super::object::ObjectKey;

/// One version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The object's kind.
    pub kind: ObjectKind,
    /// The namespace is empty for kinds without one.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub created: Time,
    /// Whether the manifest sets `creationTimestamp`.
    pub dated: bool,
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The object as one line of JSON.
    pub json: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordChange {
    /// `None` for a new object.
    pub(crate) before: Option<Arc<Record>>,
    /// The new state; for a deletion the last state, with the version of the deletion.
    pub(crate) record: Arc<Record>,
    pub(crate) deleted: bool,
}

pub(super) trait StoredObject: Serialize + Metadata<Ty = ObjectMeta> {
    const STORED: ObjectKind;
}

impl StoredObject for Node {
    const STORED: ObjectKind = ObjectKind::Node;
}

impl StoredObject for Service {
    const STORED: ObjectKind = ObjectKind::Service;
}

impl StoredObject for Pod {
    const STORED: ObjectKind = ObjectKind::Pod;
}

impl StoredObject for Namespace {
    const STORED: ObjectKind = ObjectKind::Namespace;
}

impl StoredObject for Event {
    const STORED: ObjectKind = ObjectKind::Event;
}

impl StoredObject for EndpointSlice {
    const STORED: ObjectKind = ObjectKind::EndpointSlice;
}

impl StoredObject for ServiceCIDR {
    const STORED: ObjectKind = ObjectKind::ServiceCidr;
}

impl StoredObject for Deployment {
    const STORED: ObjectKind = ObjectKind::Deployment;
}

impl StoredObject for ReplicaSet {
    const STORED: ObjectKind = ObjectKind::ReplicaSet;
}

impl StoredObject for Lease {
    const STORED: ObjectKind = ObjectKind::Lease;
}

impl StoredObject for Endpoints {
    const STORED: ObjectKind = ObjectKind::Endpoints;
}

/// Returns the fields that a field selector may name, as in kube-apiserver.
pub(crate) fn selectable(kind: ObjectKind) -> &'static [&'static str] {
    match kind {
        ObjectKind::Node => &["metadata.name", "spec.unschedulable"],
        ObjectKind::Service => &["metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"],
        ObjectKind::Pod => &[
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ObjectKind::Namespace => &["metadata.name", "status.phase"],
        ObjectKind::Event => &[
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "source",
            "reportingComponent",
            "type",
        ],
        ObjectKind::ServiceCidr => &["metadata.name"],
        ObjectKind::ReplicaSet => &["metadata.name", "metadata.namespace", "status.replicas"],
        ObjectKind::EndpointSlice
        | ObjectKind::Endpoints
        | ObjectKind::Lease
        | ObjectKind::Deployment
        | ObjectKind::NetworkPolicy => &["metadata.name", "metadata.namespace"],
    }
}

impl Record {
    /// Returns the value of a [`selectable`] field; empty if missing.
    pub(crate) fn field(&self, path: &str) -> String {
        match path {
            "metadata.name" => return self.key.name.clone(),
            "metadata.namespace" => return self.key.namespace.clone(),
            _ => {}
        }
        let object = self.value();
        match (path, path.split('.').fold(&object, |value, name| &value[name])) {
            // For an Event without source kube-apiserver compares the reporting component.
            ("source", source) => {
                let texts = [&source["component"], &object["reportingComponent"]];
                texts.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
            }
            (_, Value::String(text)) => text.clone(),
            ("spec.unschedulable" | "spec.hostNetwork", Value::Null) => "false".to_owned(),
            ("status.replicas", Value::Null) => "0".to_owned(),
            (_, Value::Null) => String::new(),
            (_, other) => other.to_string(),
        }
    }
}
