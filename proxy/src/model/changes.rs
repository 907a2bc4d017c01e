use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use super::ObjectKey;

#[derive(Debug, Clone)]
pub enum Change {
    Service(ObjectKey, Option<Arc<Service>>),
    EndpointSlice(ObjectKey, Option<Arc<EndpointSlice>>),
    /// The Node of this name; `None` if deleted.
    Node(String, Option<Arc<Node>>),
    /// The ServiceCIDR of this name; `None` if deleted.
    ServiceCidr(String, Option<Arc<ServiceCIDR>>),
}

#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub changes: Vec<Change>,
    /// The newest version in the manifests.
    pub resource_version: Option<String>,
    /// Bookmarks advance the versions, too: a batch may have no changes.
    pub resource_versions: ResourceVersions,
    /// Whether the first lists are still incomplete: nothing may be programmed yet.
    pub partial: bool,
    /// The objects are those of a state file, as of this time. The next batch replaces them by those of the API.
    pub recalled: Option<SystemTime>,
}

/// Resource versions by kind: those of different kinds are not comparable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceVersions {
    pub services: Option<String>,
    pub endpoint_slices: Option<String>,
    /// The version of this node's Node object.
    pub nodes: Option<String>,
    /// `None` if the mode does not watch ServiceCIDRs.
    pub service_cidrs: Option<String>,
}

impl ResourceVersions {
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
