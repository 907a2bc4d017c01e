//! `/scale` of Deployments and ReplicaSets, as `autoscaling/v1 Scale`.

use serde_json::{Value, json};

use super::error::ApiError;
use super::patch::ObjectPatch;
use super::resources::ObjectPath;
use super::shared::ServerState;
use super::write::{WriteRequest, existing_object};
use crate::objects::Record;

pub(super) fn of(state: &ServerState, path: &ObjectPath) -> Result<Value, ApiError> {
    existing_object(state, path).map(|record| shown(&record))
}

impl WriteRequest<'_> {
    pub(super) fn update_scale(&mut self, value: &Value) -> Result<Value, ApiError> {
        let before = existing_object(self.state, self.path)?;
        let replicas = value["spec"]["replicas"].as_i64().unwrap_or(0);
        if i32::try_from(replicas).is_err() || replicas < 0 {
            return Err(ApiError::bad_request(format!("spec.replicas: {replicas}: expected a number of pods")));
        }
        let mut object = before.value();
        object["spec"]["replicas"] = json!(replicas);
        // Lets the update conflict if the object has changed since.
        object["metadata"]["resourceVersion"] = value["metadata"]["resourceVersion"].clone();
        self.update(object).map(|written| shown(&written.record))
    }

    pub(super) fn patch_scale(&mut self, patch: &ObjectPatch) -> Result<Value, ApiError> {
        let mut value = of(self.state, self.path)?;
        patch.apply(self.path.resource.kind, &mut value)?;
        self.update_scale(&value)
    }
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
