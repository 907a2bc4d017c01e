use std::fmt;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Endpoints, Event, Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{NetworkPolicy, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::ObjectError;
use super::kind::ObjectKind;
use super::manifest::lost_fields;

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Empty for kinds without namespace.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl ObjectKey {
    /// Replaces an empty or missing namespace by `default`.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).unwrap_or("default");
        ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Returns the key of an object without namespace.
    pub fn unscoped(name: &str) -> Self {
        ObjectKey { namespace: String::new(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// A typed object.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// `v1 Pod`; the lab builds a network namespace for it.
    Pod(Box<Pod>),
    /// `v1 Service`.
    Service(Box<Service>),
    /// `v1 Node`, one of the cluster's nodes.
    Node(Box<Node>),
    /// `discovery.k8s.io/v1 EndpointSlice`.
    EndpointSlice(Box<EndpointSlice>),
    /// `v1 Namespace`.
    Namespace(Box<Namespace>),
    /// `v1 Event`.
    Event(Box<Event>),
    /// `coordination.k8s.io/v1 Lease`.
    Lease(Box<Lease>),
    /// `networking.k8s.io/v1 ServiceCIDR`.
    ServiceCidr(Box<ServiceCIDR>),
    /// `apps/v1 ReplicaSet`.
    ReplicaSet(Box<ReplicaSet>),
    /// `apps/v1 Deployment`.
    Deployment(Box<Deployment>),
    /// `v1 Endpoints`.
    Endpoints(Box<Endpoints>),
    /// `networking.k8s.io/v1 NetworkPolicy`.
    NetworkPolicy(Box<NetworkPolicy>),
}

impl Object {
    /// Decodes an object of `kind`; also returns the paths of unknown fields.
    pub fn from_value(kind: ObjectKind, value: &Value) -> Result<(Self, Vec<String>), WrongType> {
        fn read<T: DeserializeOwned + Serialize>(
            value: &Value,
            wrap: fn(Box<T>) -> Object,
        ) -> Result<(Object, Vec<String>), WrongType> {
            let object: T = serde_path_to_error::deserialize(value)
                .map_err(|error| WrongType { field: error.path().to_string(), expected: error.inner().to_string() })?;
            let kept = serde_json::to_value(&object).unwrap_or_default();
            Ok((wrap(Box::new(object)), lost_fields(value, &kept)))
        }
        match kind {
            ObjectKind::Node => read(value, Object::Node),
            ObjectKind::Service => read(value, Object::Service),
            ObjectKind::EndpointSlice => read(value, Object::EndpointSlice),
            ObjectKind::Pod => read(value, Object::Pod),
            ObjectKind::Namespace => read(value, Object::Namespace),
            ObjectKind::Event => read(value, Object::Event),
            ObjectKind::Lease => read(value, Object::Lease),
            ObjectKind::ServiceCidr => read(value, Object::ServiceCidr),
            ObjectKind::ReplicaSet => read(value, Object::ReplicaSet),
            ObjectKind::Deployment => read(value, Object::Deployment),
            ObjectKind::Endpoints => read(value, Object::Endpoints),
            ObjectKind::NetworkPolicy => read(value, Object::NetworkPolicy),
        }
    }

    /// Returns kind and key; an object without namespace in its manifest is in `default`.
    pub fn kind_and_key(&self) -> (ObjectKind, ObjectKey) {
        let (kind, head) = self.head();
        let name = head.name.as_deref().unwrap_or_default();
        let key =
            if kind.namespaced() { ObjectKey::new(head.namespace.as_deref(), name) } else { ObjectKey::unscoped(name) };
        (kind, key)
    }

    pub(crate) fn head(&self) -> (ObjectKind, &ObjectMeta) {
        match self {
            Object::Node(node) => (ObjectKind::Node, &node.metadata),
            Object::Service(service) => (ObjectKind::Service, &service.metadata),
            Object::EndpointSlice(slice) => (ObjectKind::EndpointSlice, &slice.metadata),
            Object::Pod(pod) => (ObjectKind::Pod, &pod.metadata),
            Object::Namespace(namespace) => (ObjectKind::Namespace, &namespace.metadata),
            Object::Event(event) => (ObjectKind::Event, &event.metadata),
            Object::Lease(lease) => (ObjectKind::Lease, &lease.metadata),
            Object::ServiceCidr(cidr) => (ObjectKind::ServiceCidr, &cidr.metadata),
            Object::ReplicaSet(set) => (ObjectKind::ReplicaSet, &set.metadata),
            Object::Deployment(deployment) => (ObjectKind::Deployment, &deployment.metadata),
            Object::Endpoints(endpoints) => (ObjectKind::Endpoints, &endpoints.metadata),
            Object::NetworkPolicy(policy) => (ObjectKind::NetworkPolicy, &policy.metadata),
        }
    }
}

/// The error that a field has a value of the wrong type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {expected}")]
pub struct WrongType {
    /// Path of the field, as `spec.ports[0].port`; `.` for the object itself.
    pub field: String,
    /// The found and the expected type.
    pub expected: String,
}

pub(super) fn key_of(metadata: &ObjectMeta, kind: &str) -> Result<ObjectKey, ObjectError> {
    match metadata.name.as_deref() {
        Some(name) if !name.is_empty() => Ok(ObjectKey::new(metadata.namespace.as_deref(), name)),
        _ => Err(ObjectError::field(kind, "metadata.name", "every object needs a name")),
    }
}
