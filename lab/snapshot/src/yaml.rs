use serde_json::Value;

/// Returns YAML, or, if that fails, JSON, which is YAML.
pub(crate) fn text(value: &Value) -> String {
    let mut text = serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}"));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
