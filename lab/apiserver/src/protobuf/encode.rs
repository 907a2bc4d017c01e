//! JSON to protobuf.

use jiff::Timestamp;
use serde_json::Value;

use super::schema::{Field, FieldForm, FieldType};
use super::wire::{put_bytes, put_number};

/// Writes a message's fields. A value of another type than the table's counts as missing.
pub(super) fn put_message(out: &mut Vec<u8>, fields: &[Field], object: &Value) {
    for field in fields {
        let value = object.get(field.name).unwrap_or(&Value::Null);
        match field.form {
            FieldForm::Plain => put_value(out, field.number, field.of, value),
            FieldForm::Inline => put_value(out, field.number, field.of, object),
            FieldForm::Pointer if value.is_null() => {}
            FieldForm::Pointer => put_value(out, field.number, field.of, value),
            FieldForm::List => {
                for item in value.as_array().into_iter().flatten() {
                    put_value(out, field.number, field.of, item);
                }
            }
            FieldForm::Map => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    let mut entry = Vec::new();
                    put_bytes(&mut entry, 1, key.as_bytes());
                    put_value(&mut entry, 2, field.of, value);
                    put_bytes(out, field.number, &entry);
                }
            }
        }
    }
}

fn put_value(out: &mut Vec<u8>, number: u32, of: &FieldType, value: &Value) {
    let mut bytes = Vec::new();
    match of {
        FieldType::Bool => return put_number(out, number, u64::from(value.as_bool().unwrap_or(false))),
        FieldType::Int => return put_number(out, number, as_varint(value.as_i64().unwrap_or(0))),
        FieldType::String => return put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        FieldType::Time => put_time(&mut bytes, value, |_| 0),
        FieldType::MicroTime => put_time(&mut bytes, value, |time| time.subsec_nanosecond() / 1_000 * 1_000),
        FieldType::Quantity => put_bytes(&mut bytes, 1, quantity(value).as_bytes()),
        FieldType::IntOrString => put_int_or_string(&mut bytes, value),
        FieldType::Raw => put_bytes(&mut bytes, 1, value.to_string().as_bytes()),
        FieldType::Message(fields) => put_message(&mut bytes, fields, value),
    }
    put_bytes(out, number, &bytes);
}

/// A negative number takes ten bytes, also as `int32`.
fn as_varint(number: i64) -> u64 {
    u64::from_ne_bytes(number.to_ne_bytes())
}

/// The zero time is an empty message.
fn put_time(out: &mut Vec<u8>, value: &Value, nanoseconds: fn(&Timestamp) -> i32) {
    let time = value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    if let Some(time) = time {
        put_number(out, 1, as_varint(time.as_second()));
        put_number(out, 2, as_varint(i64::from(nanoseconds(&time))));
    }
}

fn quantity(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => "0".to_owned(),
    }
}

fn put_int_or_string(out: &mut Vec<u8>, value: &Value) {
    put_number(out, 1, u64::from(value.is_string()));
    put_number(out, 2, as_varint(value.as_i64().unwrap_or(0)));
    put_bytes(out, 3, value.as_str().unwrap_or_default().as_bytes());
}
