//! Replaces `kubectl/` if the feature `kubectl` is off.

use serde_json::Value;

use crate::objects::{ObjectKind, Record};
use crate::resources::ApiRoute;

pub(crate) const TABLES: bool = false;
pub(crate) const STRATEGIC: bool = false;

pub(crate) fn api_document(_: &ApiRoute<'_>) -> Option<Value> {
    None
}

pub(crate) fn columns(_: ObjectKind) -> Vec<Value> {
    Vec::new()
}

pub(crate) fn cells(_: &Record, _: &Value, _: jiff::Timestamp) -> Vec<Value> {
    Vec::new()
}

pub(crate) fn apply(_: ObjectKind, _: &mut Value, _: &Value) -> Result<(), String> {
    Err("strategic merge patches are not served".to_owned())
}
