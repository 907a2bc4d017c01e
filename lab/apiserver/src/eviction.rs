//! `/eviction` of Pods. The lab has no PodDisruptionBudgets, so an eviction is a deletion.

use serde_json::{Value, json};

use super::error::ApiError;
use super::write::{DeleteOptions, WriteRequest};

impl WriteRequest<'_> {
    /// Deletes the pod as `policy/v1 Eviction` says.
    pub(super) fn evict(&mut self, eviction: &Value) -> Result<Value, ApiError> {
        if eviction["kind"] != "Eviction" {
            return Err(ApiError::bad_request(format!("the body: expected an Eviction, not {}", eviction["kind"])));
        }
        if eviction["metadata"]["name"] != self.path.name() {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        self.delete(&DeleteOptions::from_value(eviction["deleteOptions"].clone())?)?;
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
    }
}
