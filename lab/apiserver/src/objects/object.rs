//! Names of objects, and the objects themselves as they are handed to the store.

use std::fmt;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::ObjectError;
use super::kind::ObjectKind;
use super::manifest::lost_fields;

/// `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
}

impl ObjectKey {
    /// A key; an empty or missing namespace is `default`.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).unwrap_or("default");
        ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The key of an object that lives in no namespace.
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

/// An object that authors may write.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// A pod, which the lab builds.
    Pod(Box<Pod>),
    /// A service.
    Service(Box<Service>),
    /// Labels and taints for one of the cluster's nodes.
    Node(Box<Node>),
    /// A slice for a service without selector.
    EndpointSlice(Box<EndpointSlice>),
    /// A namespace.
    Namespace(Box<Namespace>),
    /// What a component reports.
    Event(Box<Event>),
    /// A component's sign of life.
    Lease(Box<Lease>),
    /// Where cluster IPs come from.
    ServiceCidr(Box<ServiceCIDR>),
    /// So many pods alike.
    ReplicaSet(Box<ReplicaSet>),
    /// The same, with an orderly change to others.
    Deployment(Box<Deployment>),
}

impl Object {
    /// Reads an object of `kind`. The second value names the fields that Kubernetes does not know.
    ///
    /// # Errors
    /// A value of the wrong type.
    pub fn from_value(kind: ObjectKind, value: &Value) -> Result<(Self, Vec<String>), WrongType> {
        fn read<T: DeserializeOwned + Serialize>(value: &Value) -> Result<(Box<T>, Vec<String>), WrongType> {
            let object: T = serde_path_to_error::deserialize(value)
                .map_err(|error| WrongType { field: error.path().to_string(), expected: error.inner().to_string() })?;
            let kept = serde_json::to_value(&object).unwrap_or_default();
            Ok((Box::new(object), lost_fields(value, &kept)))
        }
        Ok(match kind {
            ObjectKind::Node => read(value).map(|(object, lost)| (Object::Node(object), lost))?,
            ObjectKind::Service => read(value).map(|(object, lost)| (Object::Service(object), lost))?,
            ObjectKind::EndpointSlice => read(value).map(|(object, lost)| (Object::EndpointSlice(object), lost))?,
            ObjectKind::Pod => read(value).map(|(object, lost)| (Object::Pod(object), lost))?,
            ObjectKind::Namespace => read(value).map(|(object, lost)| (Object::Namespace(object), lost))?,
            ObjectKind::Event => read(value).map(|(object, lost)| (Object::Event(object), lost))?,
            ObjectKind::Lease => read(value).map(|(object, lost)| (Object::Lease(object), lost))?,
            ObjectKind::ServiceCidr => read(value).map(|(object, lost)| (Object::ServiceCidr(object), lost))?,
            ObjectKind::ReplicaSet => read(value).map(|(object, lost)| (Object::ReplicaSet(object), lost))?,
            ObjectKind::Deployment => read(value).map(|(object, lost)| (Object::Deployment(object), lost))?,
        })
    }
}

/// A field whose value has the wrong type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {expected}")]
pub struct WrongType {
    /// The field's path, as in `spec.ports[0].port`; `.` for the object itself.
    pub field: String,
    /// The type that was found and the one that was expected.
    pub expected: String,
}

/// The key of an object that lives in a namespace.
pub(super) fn key_of(metadata: &ObjectMeta, kind: &str) -> Result<ObjectKey, ObjectError> {
    match metadata.name.as_deref() {
        Some(name) if !name.is_empty() => Ok(ObjectKey::new(metadata.namespace.as_deref(), name)),
        _ => Err(ObjectError::field(kind, "metadata.name", "every object needs a name")),
    }
}
