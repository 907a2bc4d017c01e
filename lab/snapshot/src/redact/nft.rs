use serde_json::Value;

use super::{KnownNames, text};

/// The length of the base-32 hash (RFC 4648) between a chain's kind and its Service.
const HASH: usize = 8;

pub(super) fn ruleset(names: &KnownNames<'_>, text: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    walk(names, &mut value);
    Some(format!("{value}\n"))
}

/// Replaces names in all strings. In comments and log prefixes, which are free text, it replaces single words.
fn walk(names: &KnownNames<'_>, value: &mut Value) {
    match value {
        Value::String(name) => {
            if let Some(replaced) = owned(names, name) {
                *name = replaced;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(names, item)),
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    Value::String(comment) if key == "comment" => *comment = text::comment(names, comment),
                    Value::Object(log) if key == "log" => {
                        if let Some(Value::String(prefix)) = log.get_mut("prefix") {
                            *prefix = text::comment(names, prefix);
                        }
                    }
                    field => walk(names, field),
                }
            }
        }
        _ => {}
    }
}

/// Redacts chain names: `service-HASH-namespace/name/protocol/port`, with `__address/port` for endpoints. The hash
/// stays. kube-proxy truncates long names, so parts may be missing.
fn owned(names: &KnownNames<'_>, name: &str) -> Option<String> {
    let (head, service) = after_hash(name)?;
    let (service, endpoint) = service.split_at(service.find("__").unwrap_or(service.len()));
    let parts: Vec<String> = service
        .split('/')
        .enumerate()
        .map(|(index, part)| if index == 2 { part.to_owned() } else { names.replaced(part) })
        .collect();
    (parts.len() > 1).then(|| format!("{head}{}{endpoint}", parts.join("/")))
}

fn after_hash(name: &str) -> Option<(&str, &str)> {
    let dashes = name.match_indices('-').map(|(at, _)| at);
    let end = dashes.map(|at| at + 1 + HASH).find(|end| {
        let hash = name.get(end - HASH..*end).unwrap_or_default();
        let is_hash = hash.len() == HASH && hash.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        is_hash && name.as_bytes().get(*end) == Some(&b'-')
    })?;
    Some(name.split_at(end + 1))
}
