//! Changes of API objects, from any source.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use super::ObjectKey;

/// An object was added or updated (`Some`) or removed (`None`).
#[derive(Debug, Clone)]
pub enum Change {
    Service(ObjectKey, Option<Arc<Service>>),
    EndpointSlice(ObjectKey, Option<Arc<EndpointSlice>>),
    /// By name.
    Node(String, Option<Arc<Node>>),
    /// By name.
    ServiceCidr(String, Option<Arc<ServiceCIDR>>),
}

/// Changes that became visible together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub changes: Vec<Change>,
    /// The newest resource version in the manifests, if they have one.
    pub resource_version: Option<String>,
    /// The newest resource versions received from the API server. Bookmarks advance them, too: a batch may have no
    /// changes.
    pub resource_versions: ResourceVersions,
    /// The first lists are not complete: nothing may be programmed yet.
    pub partial: bool,
}

/// The newest version received of each kind. Versions of different kinds are not comparable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceVersions {
    pub services: Option<String>,
    pub endpoint_slices: Option<String>,
    /// Of this node's Node object.
    pub nodes: Option<String>,
    /// If a mode watches them.
    pub service_cidrs: Option<String>,
}

impl ResourceVersions {
    /// Takes over the versions of a later batch.
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
