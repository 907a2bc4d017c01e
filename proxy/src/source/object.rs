use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use crate::model::{Change, ObjectKey, ResourceVersions};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ObjectKind {
    Node,
    Service,
    EndpointSlice,
    ServiceCidr,
}

impl ObjectKind {
    pub(super) const ALL: [ObjectKind; 4] =
        [ObjectKind::Node, ObjectKind::Service, ObjectKind::EndpointSlice, ObjectKind::ServiceCidr];

    /// `None` if the proxy does not read the kind.
    pub(super) fn of(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("v1", "Node") => Some(Self::Node),
            ("v1", "Service") => Some(Self::Service),
            ("discovery.k8s.io/v1", "EndpointSlice") => Some(Self::EndpointSlice),
            ("networking.k8s.io/v1", "ServiceCIDR") => Some(Self::ServiceCidr),
            _ => None,
        }
    }

    pub(super) fn list_type(self) -> (&'static str, &'static str) {
        match self {
            Self::Node => ("v1", "NodeList"),
            Self::Service => ("v1", "ServiceList"),
            Self::EndpointSlice => ("discovery.k8s.io/v1", "EndpointSliceList"),
            Self::ServiceCidr => ("networking.k8s.io/v1", "ServiceCIDRList"),
        }
    }

    pub(super) fn version_of(self, versions: &mut ResourceVersions) -> &mut Option<String> {
        match self {
            Self::Service => &mut versions.services,
            Self::EndpointSlice => &mut versions.endpoint_slices,
            Self::Node => &mut versions.nodes,
            Self::ServiceCidr => &mut versions.service_cidrs,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::ServiceCidr => "ServiceCIDR",
        }
    }

    /// Whether rules may only be programmed after the first list of this kind.
    pub(super) fn is_needed(self) -> bool {
        self != Self::ServiceCidr
    }

    pub(super) fn is_namespaced(self) -> bool {
        matches!(self, Self::Service | Self::EndpointSlice)
    }
}

/// The namespace is empty for cluster-scoped kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectId {
    pub kind: ObjectKind,
    pub key: ObjectKey,
}

impl ObjectId {
    pub(super) fn into_deletion(self) -> Change {
        match self.kind {
            ObjectKind::Node => Change::Node(self.key.name.into(), None),
            ObjectKind::Service => Change::Service(self.key, None),
            ObjectKind::EndpointSlice => Change::EndpointSlice(self.key, None),
            ObjectKind::ServiceCidr => Change::ServiceCidr(self.key.name.into(), None),
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.name();
        if self.kind.is_namespaced() { write!(f, "{kind} {}", self.key) } else { write!(f, "{kind} {}", self.key.name) }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Object {
    Node(Arc<Node>),
    Service(Arc<Service>),
    EndpointSlice(Arc<EndpointSlice>),
    ServiceCidr(Arc<ServiceCIDR>),
}

impl Object {
    pub(super) fn to_change(&self, id: &ObjectId) -> Change {
        match self {
            Self::Node(node) => Change::Node(id.key.name.to_string(), Some(Arc::clone(node))),
            Self::Service(service) => Change::Service(id.key.clone(), Some(Arc::clone(service))),
            Self::EndpointSlice(slice) => Change::EndpointSlice(id.key.clone(), Some(Arc::clone(slice))),
            Self::ServiceCidr(cidr) => Change::ServiceCidr(id.key.name.to_string(), Some(Arc::clone(cidr))),
        }
    }

    /// Returns the resource version if it is a number.
    pub(super) fn version(&self) -> Option<u64> {
        let metadata = match self {
            Self::Node(node) => &node.metadata,
            Self::Service(service) => &service.metadata,
            Self::EndpointSlice(slice) => &slice.metadata,
            Self::ServiceCidr(cidr) => &cidr.metadata,
        };
        metadata.resource_version.as_deref()?.parse().ok()
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        // The pointers are usually equal: unchanged files keep their objects.
        match (self, other) {
            (Self::Node(a), Self::Node(b)) => Arc::ptr_eq(a, b) || a == b,
            (Self::Service(a), Self::Service(b)) => Arc::ptr_eq(a, b) || a == b,
            (Self::EndpointSlice(a), Self::EndpointSlice(b)) => Arc::ptr_eq(a, b) || a == b,
            (Self::ServiceCidr(a), Self::ServiceCidr(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}
