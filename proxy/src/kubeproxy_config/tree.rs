//! Reads and sets JSON values by path, such as `iptables.syncPeriod`.

use serde_json::{Map, Value};

pub(super) fn get<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, key| value.get(key))
}

pub(super) fn set(value: &mut Value, path: &str, new: Value) {
    let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Some(fields) = value.as_object_mut() else { return };
    match rest {
        None => {
            fields.insert(key.to_owned(), new);
        }
        Some(rest) => set(fields.entry(key).or_insert(Value::Null), rest, new),
    }
}

pub(super) fn overlay(under: &mut Value, over: Value) {
    match (under, over) {
        (_, Value::Null) => {}
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                overlay(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}
