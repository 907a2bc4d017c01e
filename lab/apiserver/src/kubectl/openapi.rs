//! The part of OpenAPI v3 that tells `kubectl` which types support `fieldValidation`, without schemas. OpenAPI v2 is an
//! empty document: with it `kubectl` goes on, and says that the API lacks a kind.

use serde_json::{Map, Value, json};

use crate::resources::{RESOURCES, Resource, groups};

fn document_path(group: &str) -> String {
    if group.is_empty() { "api/v1".to_owned() } else { format!("apis/{group}/v1") }
}

pub(crate) fn index() -> Value {
    let entry = |group: &str| {
        let path = document_path(group);
        let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
        (path, url)
    };
    let paths: Map<String, Value> = std::iter::once("").chain(groups()).map(entry).collect();
    json!({ "paths": paths })
}

pub(crate) fn document(group: &str) -> Value {
    let paths: Map<String, Value> = RESOURCES
        .iter()
        .filter(|resource| resource.group == group)
        .map(|resource| operations(resource, group))
        .collect();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "svclab", "version": "v1"},
        "paths": paths,
    })
}

fn operations(resource: &Resource, group: &str) -> (String, Value) {
    let namespace = if resource.kind.namespaced() { "/namespaces/{namespace}" } else { "" };
    let path = format!("/{}{namespace}/{}/{{name}}", document_path(group), resource.plural);
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let parameters = ["dryRun", "fieldValidation"].map(parameter);
    let operation = |action: &str| {
        json!({
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": group, "kind": resource.kind.name(), "version": "v1"},
        })
    };
    (path, json!({"patch": operation("patch"), "put": operation("put")}))
}
