//! Changes of the cluster's objects, whichever source they come from.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use super::ObjectKey;

/// One object appeared, changed (`Some`) or went (`None`).
#[derive(Debug, Clone)]
pub enum Change {
    /// A Service.
    Service(ObjectKey, Option<Arc<Service>>),
    /// An EndpointSlice.
    EndpointSlice(ObjectKey, Option<Arc<EndpointSlice>>),
    /// A Node, by name.
    Node(String, Option<Arc<Node>>),
    /// A ServiceCIDR, by name.
    ServiceCidr(String, Option<Arc<ServiceCIDR>>),
}

/// Changes that became visible together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// What changed since the batch before.
    pub changes: Vec<Change>,
    /// The newest resource version that the manifests are at, where they say one.
    pub resource_version: Option<String>,
    /// The newest resource version that the API server was seen at, where it is the source. Bookmarks move it too: a
    /// batch may hold nothing else.
    pub resource_versions: ResourceVersions,
    /// The first lists are still coming in: there is more to come before anything may be programmed.
    pub partial: bool,
}

/// How far each kind of object was seen. Versions of different kinds are not to be compared: to Kubernetes' clients
/// they are opaque, and each kind has a watch of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceVersions {
    /// Of Services.
    pub services: Option<String>,
    /// Of EndpointSlices.
    pub endpoint_slices: Option<String>,
    /// Of this node's Node.
    pub nodes: Option<String>,
    /// Of ServiceCIDRs, where they are watched.
    pub service_cidrs: Option<String>,
}

impl ResourceVersions {
    /// Takes over what a later batch says.
    pub fn advance(&mut self, later: &ResourceVersions) {
        let newer = |mine: &mut Option<String>, theirs: &Option<String>| {
            if theirs.is_some() {
                mine.clone_from(theirs);
            }
        };
        newer(&mut self.services, &later.services);
        newer(&mut self.endpoint_slices, &later.endpoint_slices);
        newer(&mut self.nodes, &later.nodes);
        newer(&mut self.service_cidrs, &later.service_cidrs);
    }
}
