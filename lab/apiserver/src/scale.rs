//! `/scale` of Deployments and ReplicaSets, as `autoscaling/v1 Scale`.

use serde_json::{Value, json};

use super::error::ApiError;
use super::patch::ObjectPatch;
use super::query::Query;
use super::resources::ObjectPath;
use super::shared::ServerState;
use super::write;
use crate::objects::Record;

pub(super) fn of(state: &ServerState, path: &ObjectPath, name: &str) -> Result<Value, ApiError> {
    write::existing_object(state, path, name).map(|record| shown(&record))
}

pub(super) fn update(
    state: &mut ServerState,
    path: &ObjectPath,
    query: &Query,
    name: &str,
    value: &Value,
) -> Result<Value, ApiError> {
    let before = write::existing_object(state, path, name)?;
    let replicas = value["spec"]["replicas"].as_i64().unwrap_or(0);
    if i32::try_from(replicas).is_err() || replicas < 0 {
        return Err(ApiError::bad_request(format!("spec.replicas: {replicas}: expected a number of pods")));
    }
    let mut object = before.value();
    object["spec"]["replicas"] = json!(replicas);
    // Lets the update conflict if the object has changed since.
    object["metadata"]["resourceVersion"] = value["metadata"]["resourceVersion"].clone();
    write::update(state, path, query, name, object).map(|written| shown(&written.record))
}

pub(super) fn patch(
    state: &mut ServerState,
    path: &ObjectPath,
    query: &Query,
    name: &str,
    patch: &ObjectPatch,
) -> Result<Value, ApiError> {
    let mut value = of(state, path, name)?;
    patch.apply(path.resource.kind, &mut value)?;
    update(state, path, query, name, &value)
}

fn shown(record: &Record) -> Value {
    let object = record.value();
    let labels = object["spec"]["selector"]["matchLabels"].as_object();
    let terms =
        labels.into_iter().flatten().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
    let selector = terms.collect::<Vec<_>>().join(",");
    let metadata = &object["metadata"];
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": object["spec"]["replicas"].as_i64().unwrap_or(1)},
        "status": {"replicas": object["status"]["replicas"].as_i64().unwrap_or(0), "selector": selector},
    })
}
