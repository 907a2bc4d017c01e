//! In place of the feature `kubectl`, where it is off: objects alone are served.

use serde_json::Value;

use crate::objects::{Kind, Record};
use crate::resources::Route;

pub(crate) const TABLES: bool = false;
pub(crate) const STRATEGIC: bool = false;

pub(crate) fn about(_: &Route<'_>) -> Option<Value> {
    None
}

pub(crate) fn columns(_: Kind) -> Vec<Value> {
    Vec::new()
}

pub(crate) fn cells(_: &Record, _: &Value, _: jiff::Timestamp) -> Vec<Value> {
    Vec::new()
}

pub(crate) fn apply(_: Kind, _: &mut Value, _: &Value) -> Result<(), String> {
    Err("strategic merge patches are not served".to_owned())
}
