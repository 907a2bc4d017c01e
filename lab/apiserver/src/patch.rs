use serde_json::Value;

use super::error::ApiError;
use super::{kubectl, negotiate};
use crate::objects::ObjectKind;

/// Lacks server-side apply, which needs field ownership: the lab stores none.
const ACCEPTED: &str =
    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json";

#[derive(Debug)]
pub(super) enum ObjectPatch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

impl ObjectPatch {
    pub(super) fn parse(content_type: Option<&str>, body: &[u8]) -> Result<Self, ApiError> {
        fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
            serde_json::from_slice(body).map_err(|error| ApiError::bad_request(format!("the patch: {error}")))
        }
        fn object(body: &[u8]) -> Result<Value, ApiError> {
            let patch: Value = read(body)?;
            if patch.is_object() { Ok(patch) } else { Err(ApiError::bad_request("the patch: expected a JSON object")) }
        }
        match negotiate::media(content_type) {
            "application/json-patch+json" => read(body).map(ObjectPatch::Json),
            "application/merge-patch+json" => object(body).map(ObjectPatch::Merge),
            "application/strategic-merge-patch+json" if kubectl::STRATEGIC => object(body).map(ObjectPatch::Strategic),
            _ => Err(ApiError::unsupported_media(ACCEPTED)),
        }
    }

    pub(super) fn apply(&self, kind: ObjectKind, object: &mut Value) -> Result<(), ApiError> {
        match self {
            ObjectPatch::Json(patch) => json_patch::patch(object, patch).map_err(|error| {
                ApiError::new(
                    422,
                    "Invalid",
                    format!("the server rejected our request due to an error in our request: {error}"),
                )
            }),
            ObjectPatch::Merge(patch) => {
                json_patch::merge(object, patch);
                Ok(())
            }
            ObjectPatch::Strategic(patch) => kubectl::apply(kind, object, patch)
                .map_err(|problem| ApiError::bad_request(format!("the patch: {problem}"))),
        }
    }
}
