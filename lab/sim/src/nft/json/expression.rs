use serde_json::Value;

use super::{statement, text};
use crate::names;
use crate::nft::expression::BINARIES;
use crate::nft::{Element, ElementKey, ElementValue, Expr, NftVerdict};

fn unknown(value: &Value) -> Expr {
    Expr::Unknown(value.to_string())
}

pub(super) fn number(value: &Value, field: &str) -> Option<u32> {
    value.get(field).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok())
}

pub(super) fn read(value: &Value) -> Expr {
    match value {
        Value::String(word) => match word.strip_prefix('@') {
            Some(set) => Expr::SetRef(set.to_owned()),
            None => Expr::Word(word.clone()),
        },
        Value::Number(number) => Expr::Word(number.to_string()),
        // `fib … oif` is compared with booleans.
        Value::Bool(there) => Expr::Word(if *there { "exists" } else { "missing" }.to_owned()),
        Value::Array(flags) => Expr::Flags(flags.iter().map(read).collect()),
        Value::Object(object) => match object.iter().next() {
            Some((kind, inner)) if object.len() == 1 => one(kind, inner).unwrap_or_else(|| unknown(value)),
            _ => unknown(value),
        },
        Value::Null => unknown(value),
    }
}

fn one(kind: &str, inner: &Value) -> Option<Expr> {
    Some(match kind {
        "concat" => Expr::Concat(inner.as_array()?.iter().map(read).collect()),
        "set" => match inner {
            Value::Array(all) => Expr::Elements(all.iter().map(anonymous).collect::<Option<_>>()?),
            Value::String(name) => Expr::SetRef(name.trim_start_matches('@').to_owned()),
            one => Expr::Elements(vec![anonymous(one)?]),
        },
        "prefix" => {
            let length = number(inner, "len").and_then(|length| u8::try_from(length).ok())?;
            Expr::Prefix(Box::new(read(inner.get("addr")?)), length)
        }
        "range" => {
            let ends = inner.as_array()?;
            Expr::Range(Box::new(read(ends.first()?)), Box::new(read(ends.get(1)?)))
        }
        "payload" => match (text(inner, "protocol"), text(inner, "field")) {
            (Some(protocol), Some(field)) => Expr::Payload { protocol, field },
            _ => Expr::Raw {
                base: text(inner, "base")?,
                offset: number(inner, "offset")?,
                length: number(inner, "len")?,
            },
        },
        "meta" => Expr::Meta(text(inner, "key")?),
        "ct" => {
            let key = text(inner, "key")?;
            Expr::Ct { direction: text(inner, "dir"), key }
        }
        "socket" => {
            let level = number(inner, "level").map(|level| format!(" level {level}")).unwrap_or_default();
            Expr::Socket(format!("{}{level}", text(inner, "key")?))
        }
        "fib" => Expr::Fib { flags: super::words(inner.get("flags")), result: text(inner, "result")? },
        "numgen" => Expr::Numgen {
            random: text(inner, "mode")? == "random",
            modulus: number(inner, "mod")?,
            offset: number(inner, "offset").unwrap_or(0),
        },
        "jhash" | "symhash" => Expr::Hash {
            key: inner.get("expr").map(|key| Box::new(read(key))),
            modulus: number(inner, "mod")?,
            seed: number(inner, "seed"),
            offset: number(inner, "offset").unwrap_or(0),
        },
        "map" => Expr::Map { key: Box::new(read(inner.get("key")?)), map: Box::new(map(inner.get("data")?)?) },
        "elem" => read(inner.get("val")?),
        _ => {
            let operation = names::value(&BINARIES, kind)?;
            // Left-associative.
            let mut operands = inner.as_array()?.iter().map(read);
            let first = operands.next()?;
            operands.fold(first, |left, right| Expr::Binary(operation, Box::new(left), Box::new(right)))
        }
    })
}

/// Reads `@name` or pairs.
pub(super) fn map(value: &Value) -> Option<Expr> {
    match value {
        Value::String(_) => Some(read(value)),
        object => {
            let all = object.get("set")?.as_array()?;
            Some(Expr::Elements(all.iter().map(|one| element(one, true)).collect::<Option<_>>()?))
        }
    }
}

fn anonymous(value: &Value) -> Option<Element> {
    element(value, false)
}

pub(super) fn verdict(kind: &str, inner: &Value) -> Option<NftVerdict> {
    Some(match kind {
        "accept" => NftVerdict::Accept,
        "drop" => NftVerdict::Drop,
        "return" => NftVerdict::Return,
        "continue" => NftVerdict::Continue,
        "jump" => NftVerdict::Jump(text(inner, "target")?),
        "goto" => NftVerdict::Goto(text(inner, "target")?),
        _ => return None,
    })
}

pub(super) fn element(value: &Value, in_map: bool) -> Option<Element> {
    let (key, data) = match value {
        Value::Array(pair) if in_map => (pair.first()?, pair.get(1)),
        key => (key, None),
    };
    let mut element = Element {
        key: ElementKey::Any,
        value: ElementValue::None,
        timeout: None,
        expires: None,
        statements: Vec::new(),
    };
    let inner = key.get("elem");
    if let Some(inner) = inner {
        element.statements = statement::of_element(inner);
        let seconds = |field: &str| inner.get(field).and_then(Value::as_u64).map(|time| time.saturating_mul(1000));
        (element.timeout, element.expires) = (seconds("timeout"), seconds("expires"));
    }
    let key = inner.and_then(|inner| inner.get("val")).unwrap_or(key);
    if key.as_str() != Some("*") {
        element.key = ElementKey::Parts(match read(key) {
            Expr::Concat(parts) => parts,
            one => vec![one],
        });
    }
    if let Some(data) = data {
        let named = data.as_object().and_then(|object| object.iter().next());
        element.value = match named.and_then(|(kind, inner)| verdict(kind, inner)) {
            Some(verdict) => ElementValue::Verdict(verdict),
            None => ElementValue::Data(match read(data) {
                Expr::Concat(parts) => parts,
                one => vec![one],
            }),
        };
    }
    Some(element)
}
