//! Names of objects, and the objects themselves as they are handed to the store.

use std::fmt;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::error::ObjectError;

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
}

/// The key of an object that lives in a namespace.
pub(super) fn key_of(metadata: &ObjectMeta, kind: &str) -> Result<ObjectKey, ObjectError> {
    match metadata.name.as_deref() {
        Some(name) if !name.is_empty() => Ok(ObjectKey::new(metadata.namespace.as_deref(), name)),
        _ => Err(ObjectError::field(kind, "metadata.name", "every object needs a name")),
    }
}
