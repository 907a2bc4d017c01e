//! The kinds of object that a cluster of the lab holds.

use std::fmt;

/// A kind of Kubernetes object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `v1 Node`.
    Node,
    /// `v1 Service`.
    Service,
    /// `discovery.k8s.io/v1 EndpointSlice`.
    EndpointSlice,
    /// `v1 Pod`.
    Pod,
    /// `v1 Namespace`.
    Namespace,
    /// `v1 Event`, which `events.k8s.io/v1` shows in another form.
    Event,
    /// `coordination.k8s.io/v1 Lease`.
    Lease,
    /// `networking.k8s.io/v1 ServiceCIDR`.
    ServiceCidr,
    /// `apps/v1 ReplicaSet`.
    ReplicaSet,
    /// `apps/v1 Deployment`.
    Deployment,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 10] = [
        Kind::Node,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Pod,
        Kind::Namespace,
        Kind::Event,
        Kind::Lease,
        Kind::ServiceCidr,
        Kind::ReplicaSet,
        Kind::Deployment,
    ];

    /// `kind` of its objects.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Node => "Node",
            Kind::Service => "Service",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::Pod => "Pod",
            Kind::Namespace => "Namespace",
            Kind::Event => "Event",
            Kind::Lease => "Lease",
            Kind::ServiceCidr => "ServiceCIDR",
            Kind::ReplicaSet => "ReplicaSet",
            Kind::Deployment => "Deployment",
        }
    }

    /// `apiVersion` of its objects as they are stored.
    pub fn api_version(self) -> &'static str {
        match self {
            Kind::EndpointSlice => "discovery.k8s.io/v1",
            Kind::Lease => "coordination.k8s.io/v1",
            Kind::ServiceCidr => "networking.k8s.io/v1",
            Kind::ReplicaSet | Kind::Deployment => "apps/v1",
            _ => "v1",
        }
    }

    /// Whether its objects live in a namespace.
    pub fn namespaced(self) -> bool {
        !matches!(self, Kind::Node | Kind::Namespace | Kind::ServiceCidr)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_lowercase())
    }
}
