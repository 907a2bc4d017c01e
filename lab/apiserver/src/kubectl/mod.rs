//! The feature `kubectl`: discovery, OpenAPI, tables and strategic merge patches. `without_kubectl.rs` replaces this
//! module.

mod discovery;
mod openapi;
mod strategic;
mod table;

use serde_json::Value;

pub(crate) use strategic::apply;
pub(crate) use table::{cells, columns};

use crate::resources::ApiRoute;

pub(crate) const TABLES: bool = true;
pub(crate) const STRATEGIC: bool = true;

pub(crate) fn api_document(route: &ApiRoute<'_>) -> Option<Value> {
    match route {
        ApiRoute::Version => Some(discovery::version()),
        ApiRoute::Root => Some(discovery::root()),
        ApiRoute::CoreVersions => Some(discovery::core_versions()),
        ApiRoute::Groups => Some(discovery::group_list()),
        ApiRoute::Group(group) => Some(discovery::group(group)),
        ApiRoute::Resources(group) => Some(discovery::resource_list(group)),
        ApiRoute::OpenApi => Some(openapi::index()),
        ApiRoute::OpenApiGroup(group) => Some(openapi::document(group)),
        ApiRoute::Health
        | ApiRoute::OpenApiV2
        | ApiRoute::Objects(_)
        | ApiRoute::Scale(_)
        | ApiRoute::Eviction(_)
        | ApiRoute::Kubelet { .. } => None,
    }
}
