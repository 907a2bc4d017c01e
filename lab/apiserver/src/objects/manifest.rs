//! Parses multi-document YAML, with positions of all errors.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::field_position::field_position;
use super::kind::ObjectKind;
use super::object::{Object, WrongType};

/// A document of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The document's first line in the text, counted from 1.
    pub line: usize,
    /// The document's text.
    pub text: String,
    /// The parsed object.
    pub object: Object,
}

/// An error in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ManifestError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

#[derive(Deserialize)]
struct TypeMeta {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
}

/// Parses every document of `text`; returns all errors.
///
/// # Errors
/// Malformed YAML, an unsupported kind, a value of the wrong type, an unknown field.
pub fn parse(text: &str) -> Result<Vec<Document>, Vec<ManifestError>> {
    let (mut documents, mut errors) = (Vec::new(), Vec::new());
    for (start, document) in split(text) {
        match read(&document) {
            Ok(object) => documents.push(Document { line: start, text: document, object }),
            Err(found) => {
                errors.extend(found.into_iter().map(|error| ManifestError { line: error.line + start - 1, ..error }));
            }
        }
    }
    if errors.is_empty() { Ok(documents) } else { Err(errors) }
}

/// Returns documents with their first lines; skips empty ones.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut documents = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        if line.trim_end() == "---" {
            documents.push((index + 2, String::new()));
        } else if let Some((_, document)) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    documents.retain(|(_, document)| !document.lines().all(blank));
    documents
}

fn read(text: &str) -> Result<Object, Vec<ManifestError>> {
    let value: serde_json::Value = from_yaml(text).map_err(|error| vec![error])?;
    let wrong_type = |error: &WrongType| vec![at_field(text, &error.field, plain_types(&error.to_string()))];
    let TypeMeta { api_version, kind } = serde_path_to_error::deserialize(&value).map_err(|error| {
        wrong_type(&WrongType { field: error.path().to_string(), expected: error.inner().to_string() })
    })?;
    let kind = match (api_version.as_str(), kind.as_str()) {
        ("v1", "Pod") => ObjectKind::Pod,
        ("v1", "Service") => ObjectKind::Service,
        ("v1", "Node") => ObjectKind::Node,
        ("discovery.k8s.io/v1", "EndpointSlice") => ObjectKind::EndpointSlice,
        ("networking.k8s.io/v1", "ServiceCIDR") => ObjectKind::ServiceCidr,
        (version, kind) => {
            return Err(vec![at_field(
                text,
                "kind",
                format!(
                    "{version} {kind}: expected v1 Pod, v1 Service, v1 Node, discovery.k8s.io/v1 EndpointSlice or \
                     networking.k8s.io/v1 ServiceCIDR"
                ),
            )]);
        }
    };
    let (object, unknown) = Object::from_value(kind, &value).map_err(|error| wrong_type(&error))?;
    if unknown.is_empty() {
        return Ok(object);
    }
    let message = |path: &str| format!("unknown field `{path}`: Kubernetes has none of that name there");
    Err(unknown.iter().map(|path| at_field(text, path, message(path))).collect())
}

fn plain_types(message: &str) -> String {
    TYPES.iter().fold(message.to_owned(), |text, (name, words)| match text.strip_suffix(&format!("expected {name}")) {
        Some(start) => format!("{start}expected {words}"),
        None => text,
    })
}

const TYPES: [(&str, &str); 7] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u64", "a whole number"),
    ("usize", "a whole number"),
    ("i32", "a whole number"),
    ("i64", "a whole number"),
    ("bool", "true or false"),
];

fn at_field(text: &str, path: &str, message: String) -> ManifestError {
    let (line, column) = field_position(text, path).unwrap_or((1, 1));
    ManifestError { line, column, message }
}

fn from_yaml<T: DeserializeOwned>(text: &str) -> Result<T, ManifestError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
        ManifestError {
            line: usize::try_from(line).unwrap_or(1),
            column: usize::try_from(column).unwrap_or(1),
            message: plain_message(&error),
        }
    })
}

pub(super) fn lost_fields(written: &serde_json::Value, kept: &serde_json::Value) -> Vec<String> {
    let mut lost = Vec::new();
    gather_lost(written, kept, String::new(), &mut lost);
    lost
}

fn gather_lost(written: &serde_json::Value, kept: &serde_json::Value, path: String, lost: &mut Vec<String>) {
    use serde_json::Value::{Array, Null, Object};
    match (written, kept) {
        (Object(written), Object(kept)) => {
            for (name, value) in written {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match kept.get(name) {
                    Some(kept) => gather_lost(value, kept, path, lost),
                    None if matches!(value, Null) => {}
                    None => lost.push(path),
                }
            }
        }
        (Array(written), Array(kept)) => {
            for (index, (written, kept)) in written.iter().zip(kept).enumerate() {
                gather_lost(written, kept, format!("{path}[{index}]"), lost);
            }
        }
        _ => {}
    }
}

/// Returns the message of a YAML error without source excerpt and position.
pub fn plain_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    for (type_name, words) in TYPES {
        if text == format!("invalid {type_name}") {
            return format!("expected {words}");
        }
    }
    text.replace(", set DuplicateKeyPolicy in Options if acceptable", "")
}
