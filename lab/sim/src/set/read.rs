use std::collections::BTreeMap;

use super::element::{Element, ElementPart, PartValue};
use super::{IpSet, Sets};
use crate::protocol::Family;

/// A line of `ipset save` that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sets, line {line}: {problem}: {text}")]
pub struct SetReadError {
    /// Counted from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// The error.
    pub problem: String,
}

fn parts(kind: &str) -> Option<Vec<ElementPart>> {
    Some(match kind {
        "hash:ip" => vec![ElementPart::Ip],
        "hash:net" => vec![ElementPart::Net],
        "hash:ip,port" => vec![ElementPart::Ip, ElementPart::Port],
        "hash:net,port" => vec![ElementPart::Net, ElementPart::Port],
        "hash:net,net" => vec![ElementPart::Net, ElementPart::Net],
        "hash:ip,port,ip" => vec![ElementPart::Ip, ElementPart::Port, ElementPart::Ip],
        "hash:ip,port,net" => vec![ElementPart::Ip, ElementPart::Port, ElementPart::Net],
        "hash:net,port,net" => vec![ElementPart::Net, ElementPart::Port, ElementPart::Net],
        "bitmap:port" => vec![ElementPart::PlainPort],
        _ => return None,
    })
}

const HARMLESS: [(&str, bool); 10] = [
    ("hashsize", true),
    ("maxelem", true),
    ("bucketsize", true),
    ("initval", true),
    ("range", true),
    ("timeout", true),
    ("counters", false),
    ("comment", false),
    ("skbinfo", false),
    ("forceadd", false),
];

fn create(words: &[&str]) -> Result<IpSet, String> {
    let [name, kind, options @ ..] = words else {
        return Err("a set is created as: create NAME TYPE".to_owned());
    };
    let parts = parts(kind).ok_or_else(|| format!("sets of type {kind} are not modelled"))?;
    let mut family = parts.iter().any(|part| *part != ElementPart::PlainPort).then_some(Family::V4);
    let mut at = 0;
    while let Some(option) = options.get(at) {
        let value = options.get(at + 1).copied();
        at += match HARMLESS.iter().find(|(known, _)| known == option) {
            Some((_, true)) => 2,
            Some((_, false)) => 1,
            None if *option == "family" => {
                family = Some(match value {
                    Some("inet") => Family::V4,
                    Some("inet6") => Family::V6,
                    _ => return Err("a family is inet or inet6".to_owned()),
                });
                2
            }
            None => return Err(format!("option {option} is not modelled")),
        };
    }
    let options = options.iter().map(|option| (*option).to_owned()).collect();
    Ok(IpSet { name: (*name).to_owned(), kind: (*kind).to_owned(), parts, family, options, elements: Vec::new() })
}

fn element(set: &IpSet, text: &str, options: &[&str]) -> Result<Element, String> {
    let words: Vec<&str> = text.split(',').collect();
    let family = set.family.unwrap_or(Family::V4);
    let wrong = || format!("{text} is no element of a set of type {}", set.kind);
    if words.len() != set.parts.len() {
        return Err(wrong());
    }
    let values = set.parts.iter().zip(words).map(|(part, word)| PartValue::read(*part, family, word));
    let values = values.collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
    let mut element = Element { values, nomatch: false, timeout: None };
    let mut at = 0;
    while let Some(option) = options.get(at) {
        at += match *option {
            "nomatch" => {
                element.nomatch = true;
                1
            }
            "timeout" => {
                let value = options.get(at + 1).and_then(|value| value.parse().ok());
                element.timeout = Some(value.ok_or("a timeout is a number of seconds")?);
                2
            }
            // `comment` is the last option.
            "comment" => return Ok(element),
            "packets" | "bytes" | "skbmark" | "skbprio" | "skbqueue" => 2,
            _ => return Err(format!("option {option} is not modelled")),
        };
    }
    Ok(element)
}

pub(super) fn read(text: &str) -> Result<Sets, SetReadError> {
    let mut sets = Sets::default();
    let mut index = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        let fail = |problem: String| SetReadError { line: number, text: line.to_owned(), problem };
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            ["create", rest @ ..] => {
                let set = create(rest).map_err(fail)?;
                if index.insert(set.name.clone(), sets.sets.len()).is_some() {
                    return Err(fail("duplicate set".to_owned()));
                }
                sets.sets.push(set);
            }
            ["add", name, text, options @ ..] => {
                let set = index.get(*name).and_then(|at| sets.sets.get_mut(*at));
                let set = set.ok_or_else(|| fail(format!("there is no set {name}")))?;
                let element = element(set, text, options).map_err(fail)?;
                set.elements.push(element);
            }
            _ => return Err(fail("a line is: create NAME TYPE …, or add NAME ELEMENT …".to_owned())),
        }
    }
    Ok(sets)
}
