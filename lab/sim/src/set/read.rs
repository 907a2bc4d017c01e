use std::collections::BTreeMap;
use std::net::IpAddr;

use super::element::{Element, ElementPart, PartValue};
use super::{IpSet, Sets};
use crate::masked::{bits, prefix_mask};
use crate::protocol::Family;
use crate::rules::tokens::number;

/// A line of `ipset save` that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sets, line {line}: {problem}{}{text}", if text.is_empty() { "" } else { ": " })]
pub struct SetReadError {
    /// Counted from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// The error.
    pub problem: String,
}

fn parts(kind: &str) -> Option<Vec<ElementPart>> {
    use ElementPart::{Interface, Ip, Mac, Mark, Member, Net, PlainPort, Port};
    Some(match kind {
        "hash:ip" | "bitmap:ip" => vec![Ip],
        "hash:net" => vec![Net],
        "hash:mac" => vec![Mac],
        "hash:ip,port" => vec![Ip, Port],
        "hash:ip,mac" | "bitmap:ip,mac" => vec![Ip, Mac],
        "hash:ip,mark" => vec![Ip, Mark],
        "hash:net,port" => vec![Net, Port],
        "hash:net,net" => vec![Net, Net],
        "hash:net,iface" => vec![Net, Interface],
        "hash:ip,port,ip" => vec![Ip, Port, Ip],
        "hash:ip,port,net" => vec![Ip, Port, Net],
        "hash:net,port,net" => vec![Net, Port, Net],
        "bitmap:port" => vec![PlainPort],
        "list:set" => vec![Member],
        _ => return None,
    })
}

/// Options of sets without effect on verdicts; `true` marks options with values.
const HARMLESS: [(&str, bool); 11] = [
    ("hashsize", true),
    ("maxelem", true),
    ("bucketsize", true),
    ("initval", true),
    ("range", true),
    ("timeout", true),
    ("size", true),
    ("counters", false),
    ("comment", false),
    ("skbinfo", false),
    ("forceadd", false),
];

fn create(words: &[&str]) -> Result<IpSet, String> {
    let [name, kind, options @ ..] = words else {
        return Err("a set is created as: create NAME TYPE".to_owned());
    };
    let known = parts(kind);
    let unmodelled = known.is_none().then(|| format!("of type {kind}"));
    let parts = known.unwrap_or_default();
    let has_addresses = parts.iter().any(|part| matches!(part, ElementPart::Ip | ElementPart::Net));
    let mut set = IpSet {
        name: (*name).to_owned(),
        kind: (*kind).to_owned(),
        parts,
        family: has_addresses.then_some(Family::V4),
        address_mask: None,
        mark_mask: u32::MAX,
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        elements: Vec::new(),
        unmodelled,
    };
    let mut at = 0;
    while let Some(option) = options.get(at) {
        let value = options.get(at + 1).copied().unwrap_or_default();
        at += match HARMLESS.iter().find(|(known, _)| known == option) {
            Some((_, false)) => 1,
            Some((_, true)) => 2,
            None if effect(&mut set, option, value).is_some() => 2,
            None => {
                set.unmodelled.get_or_insert_with(|| format!("with option {option} {value}"));
                1
            }
        };
    }
    Ok(set)
}

/// Reads an option with an effect on verdicts; `None` if it or its value is unknown.
fn effect(set: &mut IpSet, option: &str, value: &str) -> Option<()> {
    let family = set.family.unwrap_or(Family::V4);
    match option {
        "family" => {
            set.family = Some(match value {
                "inet" => Family::V4,
                "inet6" => Family::V6,
                _ => return None,
            });
        }
        "netmask" => {
            let length = value.parse().ok().filter(|length| *length <= family.bits())?;
            set.address_mask = Some(prefix_mask(family, length));
        }
        "bitmask" => {
            let mask: IpAddr = value.parse().ok().filter(|mask| Family::of(*mask) == family)?;
            set.address_mask = Some(bits(mask));
        }
        "markmask" => set.mark_mask = number(value)?,
        _ => return None,
    }
    Some(())
}

/// Returns the element, or what is not understood in it.
fn element(set: &IpSet, text: &str, options: &[&str]) -> Result<Element, String> {
    let words: Vec<&str> = text.split(',').collect();
    let family = set.family.unwrap_or(Family::V4);
    let wrong = || format!("with element {text}");
    let given = set.parts.iter().zip(&words).map(|(part, word)| PartValue::read(*part, family, word));
    let mut values = given.collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
    if set.kind == "bitmap:ip,mac" && words.len() == 1 {
        values.push(PartValue::Mac(None));
    }
    if values.len() != set.parts.len() || words.len() > set.parts.len() {
        return Err(wrong());
    }
    let mut element = Element { values, nomatch: false, timeout: None };
    let mut at = 0;
    while let Some(option) = options.get(at) {
        at += match *option {
            "nomatch" => {
                element.nomatch = true;
                1
            }
            "wildcard" => {
                if let Some(PartValue::Interface(name)) = element.values.last_mut() {
                    name.wildcard = true;
                }
                1
            }
            "timeout" => {
                let value = options.get(at + 1).and_then(|value| value.parse().ok());
                element.timeout = Some(value.ok_or_else(wrong)?);
                2
            }
            // Options after the comment, which may contain anything, have no effect on verdicts.
            "comment" => return Ok(element),
            "packets" | "bytes" | "skbmark" | "skbprio" | "skbqueue" => 2,
            _ => return Err(format!("{} {option}", wrong())),
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
                let element = element(set, text, options).unwrap_or_else(|unknown| {
                    set.unmodelled.get_or_insert(unknown);
                    Element { values: vec![PartValue::Text((*text).to_owned())], nomatch: false, timeout: None }
                });
                set.elements.push(element);
            }
            // Perhaps a secret: its text is not quoted.
            _ => {
                let problem = "this is no output of ipset save: create NAME TYPE …, or add NAME ELEMENT …".to_owned();
                return Err(SetReadError { line: number, text: String::new(), problem });
            }
        }
    }
    Ok(sets)
}
