//! YAML for people.

use serde_json::Value;

/// A value as YAML; as JSON, which is YAML too, if it cannot be.
pub(crate) fn text(value: &Value) -> String {
    let mut text = serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}"));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
