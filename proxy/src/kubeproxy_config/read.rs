//! Reads a configuration file. Errors name file, line and field.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value, json};
use serde_saphyr::{MessageFormatter, Spanned, UserMessageFormatter};
use sha2::{Digest, Sha256};

use super::{API_VERSION, KIND, KubeProxyConfiguration, tree};
use crate::small_file;

#[derive(Debug, Clone, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {file}: {cause}")]
    File { file: String, cause: String },
    #[error("{file}{}{}: {problem}", line_suffix(*line), field_suffix(field))]
    Content {
        file: String,
        /// The line, from 1; 0 if unknown.
        line: u64,
        /// The field's path; empty for the whole file.
        field: String,
        problem: String,
    },
}

fn line_suffix(line: u64) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

fn field_suffix(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!(": {field}") }
}

#[derive(Debug, Clone)]
pub struct LoadedConfig {
    pub file: String,
    pub configuration: KubeProxyConfiguration,
    /// SHA-256 of the content.
    pub digest: [u8; 32],
    /// Unknown fields, and all but the last of repeated ones, by line: no error, as the file may be for a newer
    /// version.
    pub ignored: Vec<ConfigError>,
    lines: BTreeMap<String, u64>,
}

impl LoadedConfig {
    pub fn problem(&self, field: &str, problem: String) -> ConfigError {
        ConfigError::Content {
            file: self.file.clone(),
            line: line_of(&self.lines, field),
            field: field.to_owned(),
            problem,
        }
    }
}

pub fn read(path: &Path) -> Result<LoadedConfig, ConfigError> {
    let file = path.display().to_string();
    let failed = |cause: String| ConfigError::File { file: file.clone(), cause };
    let bytes = small_file::read(path).map_err(|error| failed(error.to_string()))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| failed("it is not UTF-8 text".to_owned()))?;
    parse(&file, text)
}

fn parse(file: &str, text: &str) -> Result<LoadedConfig, ConfigError> {
    let mut located = LocatedValue::default();
    let wrong = |line, field: &str, problem| ConfigError::Content {
        file: file.to_owned(),
        line,
        field: field.to_owned(),
        problem,
    };
    if !text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#') || line.trim() == "---") {
        let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough };
        located = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let line = error.location().map_or(0, |at| at.line().max(1));
            wrong(
                line,
                "",
                format!(
                    "malformed YAML: {}",
                    UserMessageFormatter.format_message(&error).lines().collect::<Vec<_>>().join(" ")
                ),
            )
        })?;
    }
    let wrong = |field: &str, problem: String| wrong(line_of(&located.found.lines, field), field, problem);
    if !located.value.is_object() {
        return Err(wrong("", format!("is no {KIND}")));
    }
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match located.value.get(field).and_then(Value::as_str) {
            Some(value) if value == expected => {}
            Some(other) => return Err(wrong(field, format!("is {other:?}; this proxy reads {expected}"))),
            None => return Err(wrong(field, format!("is missing; it must be {expected}"))),
        }
    }
    let mut whole = serde_json::to_value(KubeProxyConfiguration::default()).map_err(|e| wrong("", e.to_string()))?;
    let ignored = ignored(file, &located, &whole);
    for emptied in ["bindAddress", "healthzBindAddress", "metricsBindAddress"] {
        // The defaults of these addresses depend on `bindAddress`; `fill` sets them last.
        tree::set(&mut whole, emptied, Value::String(String::new()));
    }
    tree::overlay(&mut whole, located.value.clone());
    let mut configuration: KubeProxyConfiguration = serde_path_to_error::deserialize(whole)
        .map_err(|error| wrong(&error.path().to_string(), error.inner().to_string()))?;
    configuration.fill();
    let digest = Sha256::digest(text.as_bytes()).into();
    Ok(LoadedConfig { file: file.to_owned(), configuration, digest, ignored, lines: located.found.lines })
}

fn ignored(file: &str, located: &LocatedValue, whole: &Value) -> Vec<ConfigError> {
    let mut whole = whole.clone();
    // The list is empty by default; its items have known fields.
    let module = json!({ "filePattern": "", "verbosity": 0 });
    tree::set(&mut whole, "logging.vmodule", Value::Array(vec![module]));
    let mut fields = Vec::new();
    unknown(&located.value, &whole, "", &mut fields);
    let unknown = fields.into_iter().map(|field| {
        let problem = format!("there is no such field in {API_VERSION}{}", similar(&field, &whole));
        (line_of(&located.found.lines, &field), field, problem)
    });
    let repeated = located.found.repeated.iter();
    let repeated =
        repeated.map(|(field, line)| (*line, field.clone(), "is given again, and the last one counts".to_owned()));
    let mut ignored: Vec<_> = unknown.chain(repeated).collect();
    ignored.sort();
    // An unknown name may contain line breaks.
    let content = |(line, field, problem): (u64, String, String)| ConfigError::Content {
        file: file.to_owned(),
        line,
        field: field.escape_debug().to_string(),
        problem,
    };
    ignored.into_iter().map(content).collect()
}

/// Returns the field's line, else that of its nearest parent.
fn line_of(lines: &BTreeMap<String, u64>, field: &str) -> u64 {
    let mut field = field.replace('[', ".").replace(']', "");
    loop {
        if let Some(line) = lines.get(&field) {
            return *line;
        }
        match field.rfind('.') {
            Some(dot) => field.truncate(dot),
            None => return 0,
        }
    }
}

/// Finds fields that `known` lacks. An empty mapping in `known`, such as the feature gates, accepts any key.
fn unknown(value: &Value, known: &Value, path: &str, found: &mut Vec<String>) {
    match (value, known) {
        (Value::Object(value), Value::Object(known)) if !known.is_empty() => {
            for (key, value) in value {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match known.get(key) {
                    None => found.push(path),
                    Some(known) => unknown(value, known, &path, found),
                }
            }
        }
        (Value::Array(items), Value::Array(known)) => {
            let Some(known) = known.first() else { return };
            for (index, item) in items.iter().enumerate() {
                unknown(item, known, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn similar(field: &str, known: &Value) -> String {
    let (parent, name) = field.rsplit_once('.').map_or((None, field), |(parent, name)| (Some(parent), name));
    let around = parent.map_or(Some(known), |parent| tree::get(known, parent));
    let plain = |name: &str| name.to_lowercase().replace(['-', '_'], "");
    let names = around.and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let found = names.into_iter().find(|known| plain(known) == plain(name));
    found.map_or_else(String::new, |known| format!("; is {known} meant?"))
}

#[derive(Debug, Default)]
struct LocatedValue {
    value: Value,
    found: FieldPositions,
}

#[derive(Debug, Default)]
struct FieldPositions {
    lines: BTreeMap<String, u64>,
    repeated: Vec<(String, u64)>,
}

impl<'de> Deserialize<'de> for LocatedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LocatedValue, D::Error> {
        let mut found = FieldPositions::default();
        let value = FieldSeed { path: String::new(), found: &mut found }.deserialize(deserializer)?;
        Ok(LocatedValue { value, found })
    }
}

struct FieldSeed<'f> {
    path: String,
    found: &'f mut FieldPositions,
}

impl FieldSeed<'_> {
    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let path = self.path_of(&key.value);
            let line = key.referenced.line();
            if fields.contains_key(&key.value) {
                self.found.repeated.push((path.clone(), line));
            }
            self.found.lines.insert(path.clone(), line);
            let value = map.next_value_seed(FieldSeed { path, found: self.found })?;
            fields.insert(key.value, value);
        }
        Ok(Value::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) =
            sequence.next_element_seed(FieldSeed { path: self.path_of(&items.len().to_string()), found: self.found })?
        {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
}
pub(crate) fn fuzz(text: &str) {
    let _ = parse("config.yaml", text);
}
