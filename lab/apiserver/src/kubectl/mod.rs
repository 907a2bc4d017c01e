//! What `kubectl` and client libraries ask for besides objects: discovery, OpenAPI documents, tables, strategic merge patches.
//! The feature `kubectl` of this crate; without it `without_kubectl.rs` stands here.

mod discovery;
mod openapi;
mod strategic;
mod table;

use serde_json::Value;

pub(crate) use strategic::apply;
pub(crate) use table::{cells, columns};

use crate::resources::ApiRoute;

/// Whether objects are served as tables.
pub(crate) const TABLES: bool = true;
/// Whether strategic merge patches are taken.
pub(crate) const STRATEGIC: bool = true;

/// What is served at a route that is about the API itself.
pub(crate) fn about(route: &ApiRoute<'_>) -> Option<Value> {
    match route {
        ApiRoute::Version => Some(discovery::version()),
        ApiRoute::Root => Some(discovery::root()),
        ApiRoute::CoreVersions => Some(discovery::core_versions()),
        ApiRoute::Groups => Some(discovery::group_list()),
        ApiRoute::Group(group) => Some(discovery::group(group)),
        ApiRoute::Resources(group) => Some(discovery::resource_list(group)),
        ApiRoute::OpenApi => Some(openapi::index()),
        ApiRoute::OpenApiGroup(group) => Some(openapi::document(group)),
        ApiRoute::Health | ApiRoute::Objects(_) | ApiRoute::Scale(_) | ApiRoute::Kubelet { .. } => None,
    }
}
