//! Resource types and request paths.

use crate::objects::{ObjectKey, ObjectKind};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) kind: ObjectKind,
    /// The API group; empty for the core group. The version is always `v1`.
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    pub(super) short: &'static [&'static str],
    pub(super) status: bool,
    pub(super) in_all: bool,
    /// Why clients cannot write the objects.
    pub(super) read_only: Option<&'static str>,
}

const fn resource(
    kind: ObjectKind,
    group: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
) -> Resource {
    Resource { kind, group, plural, short, status: false, in_all: false, read_only: None }
}

const ENDPOINTS: &str = "the lab makes Endpoints itself, of Services with a selector: write an EndpointSlice instead";
const POLICIES: &str = "the lab enforces no NetworkPolicies, and so stores none";

/// The resources, sorted by group and plural.
pub(super) static RESOURCES: [Resource; 13] = [
    Resource { read_only: Some(ENDPOINTS), ..resource(ObjectKind::Endpoints, "", "endpoints", &["ep"]) },
    resource(ObjectKind::Event, "", "events", &["ev"]),
    Resource { status: true, ..resource(ObjectKind::Namespace, "", "namespaces", &["ns"]) },
    Resource { status: true, ..resource(ObjectKind::Node, "", "nodes", &["no"]) },
    Resource { status: true, in_all: true, ..resource(ObjectKind::Pod, "", "pods", &["po"]) },
    Resource { status: true, in_all: true, ..resource(ObjectKind::Service, "", "services", &["svc"]) },
    Resource { status: true, in_all: true, ..resource(ObjectKind::Deployment, "apps", "deployments", &["deploy"]) },
    Resource { status: true, in_all: true, ..resource(ObjectKind::ReplicaSet, "apps", "replicasets", &["rs"]) },
    resource(ObjectKind::Lease, "coordination.k8s.io", "leases", &[]),
    resource(ObjectKind::EndpointSlice, "discovery.k8s.io", "endpointslices", &[]),
    resource(ObjectKind::Event, "events.k8s.io", "events", &[]),
    Resource {
        read_only: Some(POLICIES),
        ..resource(ObjectKind::NetworkPolicy, "networking.k8s.io", "networkpolicies", &["netpol"])
    },
    resource(ObjectKind::ServiceCidr, "networking.k8s.io", "servicecidrs", &[]),
];

impl Resource {
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group) }
    }

    pub(super) fn scales(&self) -> bool {
        matches!(self.kind, ObjectKind::Deployment | ObjectKind::ReplicaSet)
    }

    pub(super) fn evicts(&self) -> bool {
        self.kind == ObjectKind::Pod
    }

    /// Returns `services` or `endpointslices.discovery.k8s.io`, for example.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Whether objects are stored in another API version.
    pub(super) fn converted(&self) -> bool {
        self.group == "events.k8s.io"
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApiRoute<'a> {
    /// `/healthz`, `/livez`, `/readyz` and paths below them.
    Health,
    Version,
    Root,
    CoreVersions,
    Groups,
    Group(&'a str),
    /// `/api/v1`, `/apis/GROUP/v1`.
    Resources(&'a str),
    /// `/openapi/v2`, of which `kubectl` asks for a kind that the API lacks.
    OpenApiV2,
    OpenApi,
    /// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/v1`.
    OpenApiGroup(&'a str),
    Objects(ObjectPath),
    Scale(ObjectPath),
    Eviction(ObjectPath),
    /// A pod's sub-resource that only a kubelet could serve, such as `log` or `exec`.
    Kubelet {
        pod: String,
        asked: &'a str,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ObjectPath {
    pub(super) resource: &'static Resource,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) status: bool,
}

impl ObjectPath {
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone().unwrap_or_default(), name: self.name().to_owned() }
    }
}

pub(super) fn route(path: &str) -> Option<ApiRoute<'_>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => Some(ApiRoute::Root),
        ["healthz" | "livez" | "readyz", ..] => Some(ApiRoute::Health),
        ["version"] => Some(ApiRoute::Version),
        ["api"] => Some(ApiRoute::CoreVersions),
        ["api", "v1"] => Some(ApiRoute::Resources("")),
        [
            "api",
            "v1",
            "namespaces",
            namespace,
            "pods",
            name,
            asked @ ("log" | "exec" | "attach" | "portforward" | "proxy"),
            ..,
        ] => Some(ApiRoute::Kubelet { pod: format!("{namespace}/{name}"), asked }),
        ["api", "v1", rest @ .., "eviction"] => {
            objects("", rest).filter(|path| path.name.is_some() && path.resource.evicts()).map(ApiRoute::Eviction)
        }
        ["api", "v1", rest @ ..] => objects("", rest).map(ApiRoute::Objects),
        ["apis"] => Some(ApiRoute::Groups),
        ["apis", group] => known(group).then_some(ApiRoute::Group(group)),
        ["apis", group, "v1"] => known(group).then_some(ApiRoute::Resources(group)),
        ["apis", group, "v1", rest @ .., "scale"] => {
            objects(group, rest).filter(|path| path.name.is_some() && path.resource.scales()).map(ApiRoute::Scale)
        }
        ["apis", group, "v1", rest @ ..] => objects(group, rest).map(ApiRoute::Objects),
        ["openapi", "v2"] => Some(ApiRoute::OpenApiV2),
        ["openapi", "v3"] => Some(ApiRoute::OpenApi),
        ["openapi", "v3", "api", "v1"] => Some(ApiRoute::OpenApiGroup("")),
        ["openapi", "v3", "apis", group, "v1"] => known(group).then_some(ApiRoute::OpenApiGroup(group)),
        _ => None,
    }
}

pub(super) fn groups() -> impl Iterator<Item = &'static str> {
    let mut groups: Vec<&str> =
        RESOURCES.iter().map(|resource| resource.group).filter(|group| !group.is_empty()).collect();
    groups.dedup();
    groups.into_iter()
}

fn known(group: &str) -> bool {
    groups().any(|known| known == group)
}

fn objects(group: &str, parts: &[&str]) -> Option<ObjectPath> {
    let (namespace, parts) = match parts {
        ["namespaces", _, "status"] => (None, parts),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
        _ => (None, parts),
    };
    let (plural, name, status) = match parts {
        [plural] => (plural, None, false),
        [plural, name] => (plural, Some((*name).to_owned()), false),
        [plural, name, "status"] => (plural, Some((*name).to_owned()), true),
        _ => return None,
    };
    let resource = RESOURCES.iter().find(|resource| resource.group == group && resource.plural == *plural)?;
    let needs_namespace = resource.kind.namespaced() && name.is_some();
    let misplaced = namespace.is_some() && !resource.kind.namespaced();
    if misplaced || (needs_namespace && namespace.is_none()) || (status && !resource.status) {
        return None;
    }
    Some(ObjectPath { resource, namespace, name, status })
}
