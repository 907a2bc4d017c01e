//! What `kubectl` and client libraries ask for besides objects: discovery, OpenAPI documents, tables, strategic merge patches.
//! The feature `kubectl` of this crate; without it `without_kubectl.rs` stands here.

mod discovery;
mod openapi;
mod strategic;
mod table;

use serde_json::Value;

pub(crate) use strategic::apply;
pub(crate) use table::{cells, columns};

use crate::resources::Route;

/// Whether objects are served as tables.
pub(crate) const TABLES: bool = true;
/// Whether strategic merge patches are taken.
pub(crate) const STRATEGIC: bool = true;

/// What is served at a route that is about the API itself.
pub(crate) fn about(route: &Route<'_>) -> Option<Value> {
    match route {
        Route::Version => Some(discovery::version()),
        Route::Root => Some(discovery::root()),
        Route::CoreVersions => Some(discovery::core_versions()),
        Route::Groups => Some(discovery::group_list()),
        Route::Group(group) => Some(discovery::group(group)),
        Route::Resources(group) => Some(discovery::resource_list(group)),
        Route::OpenApi => Some(openapi::index()),
        Route::OpenApiGroup(group) => Some(openapi::document(group)),
        Route::Health | Route::Objects(_) | Route::Scale(_) | Route::Kubelet { .. } => None,
    }
}
