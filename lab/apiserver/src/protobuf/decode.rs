//! Protobuf to JSON.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::schema::{Field, FieldForm, FieldType};
use super::wire::{WireFields, WireValue};
use super::{ProtobufError, bytes_field};

/// Reads a message; the depth of the table bounds the recursion. Ignores unknown fields, and leaves out plain fields that
/// have the zero value, as Go's `omitempty` does.
pub(super) fn message(fields: &[Field], bytes: &[u8]) -> Result<Map<String, Value>, ProtobufError> {
    let mut object = Map::new();
    for found in WireFields(bytes) {
        let (number, wire) = found?;
        let Some(field) = fields.iter().find(|field| u64::from(field.number) == number) else { continue };
        match field.form {
            FieldForm::Plain => match value(field, wire)? {
                zero if is_zero(&zero, field.of) => {}
                value => drop(object.insert(field.name.to_owned(), value)),
            },
            FieldForm::Inline => {
                if let Value::Object(inner) = value(field, wire)? {
                    object.extend(inner);
                }
            }
            FieldForm::Pointer => drop(object.insert(field.name.to_owned(), value(field, wire)?)),
            FieldForm::List => {
                let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(items) = list {
                    items.push(value(field, wire)?);
                }
            }
            FieldForm::Map => {
                let (key, value) = entry(field, wire)?;
                let map = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(entries) = map {
                    entries.insert(key, value);
                }
            }
        }
    }
    Ok(object)
}

fn entry(field: &Field, wire: WireValue<'_>) -> Result<(String, Value), ProtobufError> {
    let (mut key, mut result) = (String::new(), Value::String(String::new()));
    for found in WireFields(bytes_of(field, wire)?) {
        match found? {
            (1, wire) => key = text(field, bytes_of(field, wire)?)?,
            (2, wire) => result = value(field, wire)?,
            _ => {}
        }
    }
    Ok((key, result))
}

fn value(field: &Field, wire: WireValue<'_>) -> Result<Value, ProtobufError> {
    Ok(match field.of {
        FieldType::Bool => Value::Bool(number(field, wire)? != 0),
        FieldType::Int => number(field, wire)?.into(),
        FieldType::String => text(field, bytes_of(field, wire)?)?.into(),
        FieldType::Time => time(field, wire, |time| time.to_string())?,
        FieldType::MicroTime => time(field, wire, |time| format!("{time:.6}"))?,
        FieldType::Quantity => text(field, bytes_field(bytes_of(field, wire)?, 1)?)?.into(),
        FieldType::IntOrString => int_or_string(field, wire)?,
        FieldType::Raw => serde_json::from_slice(bytes_field(bytes_of(field, wire)?, 1)?)
            .map_err(|_| ProtobufError::Value { field: field.name, expected: "JSON" })?,
        FieldType::Message(fields) => message(fields, bytes_of(field, wire)?)?.into(),
    })
}

fn is_zero(value: &Value, of: &FieldType) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => matches!((of, text.as_str()), (FieldType::String, "") | (FieldType::Quantity, "0")),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn number(field: &Field, wire: WireValue<'_>) -> Result<i64, ProtobufError> {
    match wire {
        WireValue::Varint(value) => Ok(i64::from_ne_bytes(value.to_ne_bytes())),
        _ => Err(ProtobufError::WireType { field: u64::from(field.number) }),
    }
}

fn bytes_of<'a>(field: &Field, wire: WireValue<'a>) -> Result<&'a [u8], ProtobufError> {
    match wire {
        WireValue::Bytes(bytes) => Ok(bytes),
        _ => Err(ProtobufError::WireType { field: u64::from(field.number) }),
    }
}

fn text(field: &Field, bytes: &[u8]) -> Result<String, ProtobufError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ProtobufError::Value { field: field.name, expected: "UTF-8" })?;
    Ok(text.to_owned())
}

/// The empty message is the zero time.
fn time(field: &Field, wire: WireValue<'_>, shown: fn(Timestamp) -> String) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    let bytes = bytes_of(field, wire)?;
    for inner in WireFields(bytes) {
        match inner? {
            (1, wire) => seconds = number(field, wire)?,
            (2, wire) => nanoseconds = number(field, wire)?,
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let time = i32::try_from(nanoseconds).ok().and_then(|nanoseconds| Timestamp::new(seconds, nanoseconds).ok());
    time.map(|time| shown(time).into()).ok_or(ProtobufError::Value { field: field.name, expected: "a time" })
}

fn int_or_string(field: &Field, wire: WireValue<'_>) -> Result<Value, ProtobufError> {
    let (mut is_string, mut int, mut string) = (false, 0, String::new());
    for inner in WireFields(bytes_of(field, wire)?) {
        match inner? {
            (1, wire) => is_string = number(field, wire)? == 1,
            (2, wire) => int = number(field, wire)?,
            (3, wire) => string = text(field, bytes_of(field, wire)?)?,
            _ => {}
        }
    }
    Ok(if is_string { string.into() } else { int.into() })
}
