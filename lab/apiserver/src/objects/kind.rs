use std::fmt;

/// A kind of Kubernetes object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
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
    /// `v1 Event`, also served as `events.k8s.io/v1`.
    Event,
    /// `coordination.k8s.io/v1 Lease`.
    Lease,
    /// `networking.k8s.io/v1 ServiceCIDR`.
    ServiceCidr,
    /// `apps/v1 ReplicaSet`.
    ReplicaSet,
    /// `apps/v1 Deployment`.
    Deployment,
    /// `v1 Endpoints`, which the store makes from a Service's EndpointSlices.
    Endpoints,
    /// `networking.k8s.io/v1 NetworkPolicy`: the store has none.
    NetworkPolicy,
}

impl ObjectKind {
    /// Every kind.
    pub const ALL: [ObjectKind; 12] = [
        ObjectKind::Node,
        ObjectKind::Service,
        ObjectKind::EndpointSlice,
        ObjectKind::Pod,
        ObjectKind::Namespace,
        ObjectKind::Event,
        ObjectKind::Lease,
        ObjectKind::ServiceCidr,
        ObjectKind::ReplicaSet,
        ObjectKind::Deployment,
        ObjectKind::Endpoints,
        ObjectKind::NetworkPolicy,
    ];

    /// `kind` as in manifests.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Node => "Node",
            ObjectKind::Service => "Service",
            ObjectKind::EndpointSlice => "EndpointSlice",
            ObjectKind::Pod => "Pod",
            ObjectKind::Namespace => "Namespace",
            ObjectKind::Event => "Event",
            ObjectKind::Lease => "Lease",
            ObjectKind::ServiceCidr => "ServiceCIDR",
            ObjectKind::ReplicaSet => "ReplicaSet",
            ObjectKind::Deployment => "Deployment",
            ObjectKind::Endpoints => "Endpoints",
            ObjectKind::NetworkPolicy => "NetworkPolicy",
        }
    }

    /// `apiVersion` of the stored objects.
    pub fn api_version(self) -> &'static str {
        match self {
            ObjectKind::EndpointSlice => "discovery.k8s.io/v1",
            ObjectKind::Lease => "coordination.k8s.io/v1",
            ObjectKind::ServiceCidr | ObjectKind::NetworkPolicy => "networking.k8s.io/v1",
            ObjectKind::ReplicaSet | ObjectKind::Deployment => "apps/v1",
            _ => "v1",
        }
    }

    /// Whether the objects have a namespace.
    pub fn namespaced(self) -> bool {
        !matches!(self, ObjectKind::Node | ObjectKind::Namespace | ObjectKind::ServiceCidr)
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_lowercase())
    }
}
