use serde_json::Value;

use super::expression::{self, map, number, verdict};
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
        "quota" => Some(unknown_match("quota", inner)),
        "ct count" => Some(Statement::ConnectionCount { count: number(inner, "val")?, over: is_inverted(inner) }),
        "counter" if inner.get("map").is_some() => match expression::read(inner) {
            Expr::Map { key, map } => Some(Statement::CountBy { key: *key, map: *map }),
            _ => None,
        },
        "counter" | "log" | "flow" | "last" => Some(Statement::NoEffect(no_effect(kind, inner))),
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
        statements: all(inner.get("stmt")),
    })
}

pub(super) fn all(statements: Option<&Value>) -> Vec<Statement> {
    statements.and_then(Value::as_array).into_iter().flatten().map(read).collect()
}

/// Returns an element's statements: a field each, or a list if there are several of a kind.
pub(super) fn of_element(element: &Value) -> Vec<Statement> {
    let fields = element.as_object().into_iter().flatten();
    let kinds = fields.filter(|(kind, _)| ["counter", "limit", "quota", "ct count", "last"].contains(&kind.as_str()));
    kinds.filter_map(|(kind, inner)| one(kind, inner)).chain(all(element.get("stmt"))).collect()
}

/// Returns `quota over 10 mbytes used 88 bytes`, `limit rate 10 mbytes/second`, `quota name "q"`.
fn unknown_match(kind: &str, inner: &Value) -> Statement {
    let number = |field: &str| inner.get(field).and_then(Value::as_u64).unwrap_or(0);
    let unit = |field: &str| text(inner, field).unwrap_or_else(|| "bytes".to_owned());
    let over = if is_inverted(inner) { "over " } else { "" };
    let text = match inner {
        Value::String(name) => format!("{kind} name {name:?}"),
        _ if kind == "quota" => {
            let used = format!(" used {} {}", number("used"), unit("used_unit"));
            let used = if number("used") == 0 { "" } else { &used };
            format!("quota {over}{} {}{used}", number("val"), unit("val_unit"))
        }
        _ => {
            let per = text(inner, "per").unwrap_or_else(|| "second".to_owned());
            format!("{kind} rate {over}{} {}/{per}", number("rate"), unit("rate_unit"))
        }
    };
    Statement::UnknownMatch { name: kind.to_owned(), text }
}

fn is_inverted(inner: &Value) -> bool {
    inner.get("inv").and_then(Value::as_bool).unwrap_or(false)
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
        ("last", _) => {}
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
    if inner.is_string() || text(inner, "rate_unit").is_some_and(|unit| unit != "packets") {
        return Some(unknown_match("limit", inner));
    }
    let per = names::value(&LIMIT_UNITS, inner.get("per")?.as_str()?)?;
    let rate = inner.get("rate").and_then(Value::as_u64).filter(|rate| *rate > 0)?;
    let burst = inner.get("burst").and_then(Value::as_u64).unwrap_or(5);
    Some(Statement::Limit { rate, per, burst, over: is_inverted(inner) })
}
