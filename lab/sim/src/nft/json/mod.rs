//! Reader of `nft -j list ruleset` (libnftables-json(5)).

mod expression;
mod statement;

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    BaseChain, Chain, DeclaredType, NamedCounter, NftReadError, Rule, Ruleset, Set, SetData, Table, TableFamily,
};
use crate::rules::ChainPolicy;

type ReadResult<T> = Result<T, NftReadError>;

fn wrong<T>(problem: impl Into<String>) -> ReadResult<T> {
    Err(NftReadError::new(0, problem))
}

fn text(value: &Value, field: &str) -> Option<String> {
    value.get(field).and_then(Value::as_str).map(str::to_owned)
}

fn needed(value: &Value, field: &str, of: &str) -> ReadResult<String> {
    text(value, field).map_or_else(|| wrong(format!("{of} without {field:?}: {value}")), Ok)
}

fn words(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn read(text: &str) -> ReadResult<Ruleset> {
    let whole: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return Err(NftReadError::new(error.line(), format!("not JSON: {error}"))),
    };
    let Some(all) = whole.get("nftables").and_then(Value::as_array) else {
        return wrong("expected an object with a list \"nftables\"");
    };
    let mut ruleset = Ruleset::default();
    let mut handles = Handles::default();
    for object in all.iter().filter_map(Value::as_object).flatten() {
        match object {
            (kind, value) if kind == "table" => ruleset.tables.push(table(value)?),
            (kind, value) if kind == "chain" => {
                let chain = chain(value)?;
                handles.note(value, &chain.name);
                of(&mut ruleset, value, kind)?.chains.push(chain);
            }
            (kind, value) if kind == "set" || kind == "map" => {
                let set = set(value)?;
                of(&mut ruleset, value, kind)?.sets.push(set);
            }
            (kind, value) if kind == "counter" => {
                let number = |field: &str| value.get(field).and_then(Value::as_u64).unwrap_or_default();
                let (packets, bytes) = (number("packets"), number("bytes"));
                let counter = NamedCounter { name: needed(value, "name", kind)?, packets, bytes };
                of(&mut ruleset, value, kind)?.counters.push(counter);
            }
            (kind, value) if kind == "rule" => {
                let name = needed(value, "chain", "a rule")?;
                let rule = rule(value);
                handles.note(value, "");
                let table = of(&mut ruleset, value, kind)?;
                match table.chains.iter_mut().find(|chain| chain.name == name) {
                    Some(chain) => chain.rules.push(rule),
                    None => return wrong(format!("rule in the unknown chain {name:?}")),
                }
            }
            // Declarations of these objects affect no verdicts.
            (kind, _)
                if ["metainfo", "flowtable", "quota", "limit", "secmark", "synproxy", "tunnel"]
                    .contains(&kind.as_str())
                    || kind.starts_with("ct ") => {}
            (kind, _) => return wrong(format!("{kind:?} is not part of a ruleset")),
        }
    }
    for table in &mut ruleset.tables {
        table.by_iptables = table.has_chains_of_iptables();
        handles.mark_late_chains(table);
    }
    Ok(ruleset)
}

/// Handles of chains, and the lowest of each table's rules (without name). A table's handles grow with time.
#[derive(Default)]
struct Handles(BTreeMap<(String, String, String), u64>);

impl Handles {
    fn note(&mut self, value: &Value, chain: &str) {
        let key = (text(value, "family"), text(value, "table"));
        let (Some(family), Some(table)) = key else { return };
        let Some(handle) = value.get("handle").and_then(Value::as_u64) else { return };
        let lowest = self.0.entry((family, table, chain.to_owned())).or_insert(handle);
        *lowest = handle.min(*lowest);
    }

    fn mark_late_chains(&self, table: &mut Table) {
        let of = |chain: &str| self.0.get(&(table.family.to_string(), table.name.clone(), chain.to_owned())).copied();
        let Some(first_rule) = of("") else { return };
        let late: Vec<bool> =
            table.chains.iter().map(|chain| of(&chain.name).is_some_and(|at| at > first_rule)).collect();
        let base = table.chains.iter_mut().zip(late).filter_map(|(chain, late)| Some((chain.base.as_mut()?, late)));
        base.for_each(|(base, late)| base.late = late);
    }
}

fn of<'a>(ruleset: &'a mut Ruleset, value: &Value, kind: &str) -> ReadResult<&'a mut Table> {
    let family = family(value, kind)?;
    let name = needed(value, "table", kind)?;
    let found = ruleset.tables.iter_mut().find(|table| table.family == family && table.name == name);
    found.map_or_else(|| wrong(format!("{kind} in the unknown table {family} {name}")), Ok)
}

fn family(value: &Value, kind: &str) -> ReadResult<TableFamily> {
    let text = needed(value, "family", kind)?;
    TableFamily::parse(&text).map_or_else(|| wrong(format!("family {text:?} is not known here")), Ok)
}

fn table(value: &Value) -> ReadResult<Table> {
    Ok(Table {
        family: family(value, "table")?,
        name: needed(value, "name", "table")?,
        by_iptables: false,
        flags: words(value.get("flags")),
        comment: text(value, "comment"),
        counters: Vec::new(),
        sets: Vec::new(),
        chains: Vec::new(),
    })
}

fn chain(value: &Value) -> ReadResult<Chain> {
    let base = match (text(value, "type"), text(value, "hook")) {
        (Some(kind), Some(hook)) => Some(BaseChain {
            kind,
            priority: value
                .get("prio")
                .and_then(Value::as_i64)
                .and_then(|number| i32::try_from(number).ok())
                .unwrap_or(0),
            devices: match value.get("dev") {
                None if matches!(hook.as_str(), "ingress" | "egress") => None,
                devices => Some(words(devices)),
            },
            policy: if text(value, "policy").as_deref() == Some("drop") {
                ChainPolicy::Drop
            } else {
                ChainPolicy::Accept
            },
            hook,
            late: false,
        }),
        _ => None,
    };
    Ok(Chain { name: needed(value, "name", "chain")?, base, comment: text(value, "comment"), rules: Vec::new() })
}

fn rule(value: &Value) -> Rule {
    let all = value.get("expr").and_then(Value::as_array);
    let statements = all.into_iter().flatten().map(statement::read).collect();
    Rule { line: 0, statements, comment: text(value, "comment") }
}

fn types(value: Option<&Value>) -> Option<Vec<DeclaredType>> {
    match value? {
        // Data of maps: `ipv4_addr . inet_service`.
        Value::String(names) => Some(names.split(" . ").map(|name| DeclaredType::Named(name.to_owned())).collect()),
        Value::Array(names) => {
            names.iter().map(|name| name.as_str().map(|name| DeclaredType::Named(name.to_owned()))).collect()
        }
        // Newer nft prints `typeof` expressions.
        object => {
            let of = object.get("typeof")?;
            let parts = match of.get("concat").and_then(Value::as_array) {
                Some(parts) => parts.iter().map(expression::read).collect(),
                None => vec![expression::read(of)],
            };
            Some(parts.into_iter().map(DeclaredType::Of).collect())
        }
    }
}

fn set(value: &Value) -> ReadResult<Set> {
    let name = needed(value, "name", "set")?;
    let Some(key) = types(value.get("type")) else { return wrong(format!("the set {name} without a type")) };
    let holds = match value.get("map") {
        None => SetData::Keys,
        Some(Value::String(verdict)) if verdict == "verdict" => SetData::Verdicts,
        Some(Value::String(counter)) if counter == "counter" => SetData::Counters,
        data => match types(data) {
            Some(data) => SetData::Data(data),
            None => return wrong(format!("the map {name} with data of no type that is known here")),
        },
    };
    let number = |field: &str| value.get(field).and_then(Value::as_u64);
    let all = value.get("elem").and_then(Value::as_array);
    let elements = all.into_iter().flatten().map(|one| expression::element(one, holds != SetData::Keys));
    let Some(elements) = elements.collect::<Option<Vec<_>>>() else {
        return wrong(format!("an element of the set {name} is not understood"));
    };
    let mut set = Set {
        name,
        key,
        holds,
        flags: words(value.get("flags")),
        timeout: number("timeout").map(|seconds| seconds.saturating_mul(1000)),
        size: number("size").and_then(|size| u32::try_from(size).ok()),
        comment: text(value, "comment"),
        statements: statement::all(value.get("stmt")),
        elements,
    };
    set.name_counters();
    Ok(set)
}
