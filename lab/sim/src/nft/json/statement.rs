use serde_json::Value;

use super::expression::{self, map, verdict};
use super::{text, words};
use crate::names;
use crate::nft::statement::{LIMIT_UNITS, NAT_KINDS, RELATIONS, SET_OPERATIONS};
use crate::nft::{Expr, NatKind, Relation, Statement};

pub(super) fn read(value: &Value) -> Statement {
    let known = match value {
        Value::Object(object) if object.len() == 1 => object.iter().next().and_then(|(kind, inner)| one(kind, inner)),
        Value::String(word) if word == "notrack" => Some(Statement::Notrack),
        _ => None,
    };
    known.unwrap_or_else(|| Statement::Unknown(value.to_string()))
}

fn one(kind: &str, inner: &Value) -> Option<Statement> {
    if let Some(verdict) = verdict(kind, inner) {
        return Some(Statement::Verdict(verdict));
    }
    match kind {
        "match" => matching(inner),
        "vmap" => {
            Some(Statement::VerdictMap { key: expression::read(inner.get("key")?), map: map(inner.get("data")?)? })
        }
        "mangle" => mangle(inner),
        "set" | "map" => element(inner),
        "reject" => Some(reject(inner)),
        "notrack" => Some(Statement::Notrack),
        "limit" => limit(inner),
        "counter" | "log" | "flow" => Some(Statement::NoEffect(no_effect(kind, inner))),
        _ => nat(names::value(&NAT_KINDS, kind)?, inner),
    }
}

fn matching(inner: &Value) -> Option<Statement> {
    let relation = match inner.get("op")?.as_str()? {
        "in" => Relation::Implicit,
        operator => names::value(&RELATIONS, operator)?,
    };
    let left = expression::read(inner.get("left")?);
    Some(Statement::Match { left, relation, right: expression::read(inner.get("right")?) })
}

fn mangle(inner: &Value) -> Option<Statement> {
    let key = inner.get("key")?;
    let value = expression::read(inner.get("value").unwrap_or(&Value::Null));
    if let Some(option) = key.get("tcp option") {
        let (name, field) = (text(option, "name")?, text(option, "field")?);
        let size = if matches!(value, Expr::Unknown(_)) { "rt mtu".to_owned() } else { value.to_string() };
        return Some(Statement::NoEffect(format!("tcp option {name} {field} set {size}")));
    }
    let what = expression::read(key);
    let harmless = key
        .get("meta")
        .and_then(|meta| text(meta, "key"))
        .is_some_and(|key| key == "nftrace" || key == "priority")
        || key.get("payload").and_then(|of| text(of, "field")).is_some_and(|field| field == "dscp" || field == "ecn");
    if harmless {
        return Some(Statement::NoEffect(format!("{what} set {value}")));
    }
    let is_mark = matches!(&what, Expr::Meta(key) | Expr::Ct { key, .. } if key == "mark");
    is_mark.then_some(Statement::Set { what, value })
}

fn element(inner: &Value) -> Option<Statement> {
    let operation = names::value(&SET_OPERATIONS, inner.get("op")?.as_str()?)?;
    let (set, elem) = (text(inner, "set").or_else(|| text(inner, "map"))?, inner.get("elem")?);
    let timeout = elem.get("elem").and_then(|elem| elem.get("timeout")).and_then(Value::as_u64);
    Some(Statement::Element {
        operation,
        set: set.trim_start_matches('@').to_owned(),
        key: expression::read(elem),
        data: inner.get("data").map(expression::read),
        timeout: timeout.map(|seconds| seconds.saturating_mul(1000)),
    })
}

fn nat(kind: NatKind, inner: &Value) -> Option<Statement> {
    let (address, port) = (inner.get("addr").map(expression::read), inner.get("port").map(expression::read));
    // `netmap` and ranges from maps are not modelled.
    if words(inner.get("type_flags")).iter().any(|flag| flag != "concat") {
        return None;
    }
    Some(Statement::Nat { kind, family: text(inner, "family"), address, port, flags: words(inner.get("flags")) })
}

fn no_effect(kind: &str, inner: &Value) -> String {
    let mut words = kind.to_owned();
    match (kind, inner) {
        ("counter", Value::String(name)) => words = format!("counter name {name:?}"),
        ("counter", _) => {
            let number = |field: &str| inner.get(field).and_then(Value::as_u64).unwrap_or(0);
            words = format!("counter packets {} bytes {}", number("packets"), number("bytes"));
        }
        ("flow", _) => words = format!("flow add {}", text(inner, "flowtable").unwrap_or_default()),
        _ => {
            for (option, value) in inner.as_object().into_iter().flatten() {
                words = match value {
                    Value::String(text) if option == "prefix" => format!("{words} {option} {text:?}"),
                    Value::String(text) => format!("{words} {option} {text}"),
                    Value::Array(all) => {
                        let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
                        format!("{words} {option} {}", all.join(","))
                    }
                    other => format!("{words} {option} {other}"),
                };
            }
        }
    }
    words
}

fn reject(inner: &Value) -> Statement {
    let name = text(inner, "expr");
    match (text(inner, "type"), name) {
        (Some(kind), _) if kind == "tcp reset" => Statement::Reject(Some(("tcp".to_owned(), "reset".to_owned()))),
        (Some(kind), Some(name)) => Statement::Reject(Some((kind, name))),
        _ => Statement::Reject(None),
    }
}

fn limit(inner: &Value) -> Option<Statement> {
    // Byte limits are not modelled.
    if text(inner, "rate_unit").is_some_and(|unit| unit != "packets") {
        return None;
    }
    let per = names::value(&LIMIT_UNITS, inner.get("per")?.as_str()?)?;
    let rate = inner.get("rate").and_then(Value::as_u64).filter(|rate| *rate > 0)?;
    let burst = inner.get("burst").and_then(Value::as_u64).unwrap_or(5);
    let over = inner.get("inv").and_then(Value::as_bool).unwrap_or(false);
    Some(Statement::Limit { rate, per, burst, over })
}
