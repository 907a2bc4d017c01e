//! An object as the API shows it: serialised once, with what selectors ask about beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Serialize;

use super::kind::ObjectKind;
use super::object::ObjectKey;

/// One version of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name; the namespace is empty for kinds that have none.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub created: Time,
    /// The manifest says when; no clock does.
    pub dated: bool,
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The values of the fields that a field selector may name.
    pub fields: BTreeMap<&'static str, String>,
    /// The object as JSON, on one line.
    pub json: Bytes,
}

/// One step in the life of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChange {
    /// What was there before; `None` for a new object.
    pub before: Option<Arc<Record>>,
    /// What is there now; for a deletion the last state, under the deletion's version.
    pub record: Arc<Record>,
    /// Whether the object is gone.
    pub deleted: bool,
}

/// A type whose objects the store keeps.
pub(super) trait StoredObject: Serialize + Metadata<Ty = ObjectMeta> {
    /// Its kind.
    const STORED: ObjectKind;

    /// Values of the selectable fields beside `metadata.name` and `metadata.namespace`: the ones that upstream's API
    /// server knows for this kind.
    fn fields(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The selectable fields of `kind`.
pub fn selectable(kind: ObjectKind) -> &'static [&'static str] {
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
        ObjectKind::EndpointSlice | ObjectKind::Lease | ObjectKind::Deployment => {
            &["metadata.name", "metadata.namespace"]
        }
    }
}

fn or_empty(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

impl StoredObject for Node {
    const STORED: ObjectKind = ObjectKind::Node;

    fn fields(&self) -> Vec<(&'static str, String)> {
        let unschedulable = self.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        vec![("spec.unschedulable", unschedulable.to_string())]
    }
}

impl StoredObject for Service {
    const STORED: ObjectKind = ObjectKind::Service;

    fn fields(&self) -> Vec<(&'static str, String)> {
        let Some(spec) = &self.spec else { return Vec::new() };
        vec![("spec.clusterIP", or_empty(spec.cluster_ip.as_ref())), ("spec.type", or_empty(spec.type_.as_ref()))]
    }
}

impl StoredObject for Pod {
    const STORED: ObjectKind = ObjectKind::Pod;

    fn fields(&self) -> Vec<(&'static str, String)> {
        let (spec, status) = (self.spec.as_ref(), self.status.as_ref());
        vec![
            ("spec.nodeName", or_empty(spec.and_then(|spec| spec.node_name.as_ref()))),
            ("spec.restartPolicy", or_empty(spec.and_then(|spec| spec.restart_policy.as_ref()))),
            ("spec.schedulerName", or_empty(spec.and_then(|spec| spec.scheduler_name.as_ref()))),
            ("spec.serviceAccountName", or_empty(spec.and_then(|spec| spec.service_account_name.as_ref()))),
            ("spec.hostNetwork", spec.and_then(|spec| spec.host_network).unwrap_or(false).to_string()),
            ("status.phase", or_empty(status.and_then(|status| status.phase.as_ref()))),
            ("status.podIP", or_empty(status.and_then(|status| status.pod_ip.as_ref()))),
            ("status.nominatedNodeName", or_empty(status.and_then(|status| status.nominated_node_name.as_ref()))),
        ]
    }
}

impl StoredObject for Namespace {
    const STORED: ObjectKind = ObjectKind::Namespace;

    fn fields(&self) -> Vec<(&'static str, String)> {
        let phase = self.status.as_ref().and_then(|status| status.phase.clone());
        vec![("status.phase", phase.unwrap_or_default())]
    }
}

impl StoredObject for Event {
    const STORED: ObjectKind = ObjectKind::Event;

    fn fields(&self) -> Vec<(&'static str, String)> {
        let about = &self.involved_object;
        let source = self.source.as_ref().and_then(|source| source.component.clone());
        vec![
            ("involvedObject.kind", or_empty(about.kind.as_ref())),
            ("involvedObject.namespace", or_empty(about.namespace.as_ref())),
            ("involvedObject.name", or_empty(about.name.as_ref())),
            ("involvedObject.uid", or_empty(about.uid.as_ref())),
            ("reason", or_empty(self.reason.as_ref())),
            ("source", source.or_else(|| self.reporting_component.clone()).unwrap_or_default()),
            ("reportingComponent", or_empty(self.reporting_component.as_ref())),
            ("type", or_empty(self.type_.as_ref())),
        ]
    }
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

    fn fields(&self) -> Vec<(&'static str, String)> {
        vec![("status.replicas", self.status.as_ref().map_or(0, |status| status.replicas).to_string())]
    }
}

impl StoredObject for Lease {
    const STORED: ObjectKind = ObjectKind::Lease;
}
