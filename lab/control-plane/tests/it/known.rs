//! What is known to differ, and why.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

/// Places at which the answers may differ.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownDifference {
    /// Where: `group/name of the exchange` (with `*` at the end: whatever begins so), or `*` for all of them.
    #[serde(rename = "in")]
    pub exchanges: Vec<String>,
    /// The fields that differ; of an item of a list without its number, as in `items[].spec.ports`.
    pub fields: Vec<String>,
    /// Why, and why it is left so.
    pub why: String,
}

impl KnownDifference {
    fn covers(&self, exchange: &str, field: &str) -> bool {
        let named = |pattern: &String| match pattern.strip_suffix('*') {
            Some(begin) => exchange.starts_with(begin),
            None => exchange == pattern,
        };
        let field_is = |known: &String| field == known || field.ends_with(&format!(".{known}"));
        self.exchanges.iter().any(named) && self.fields.iter().any(field_is)
    }
}

/// Every known difference.
pub fn all() -> Vec<KnownDifference> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/known.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let known: Vec<KnownDifference> =
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(known.iter().all(|known| !known.why.trim().is_empty()), "a difference without a reason");
    known
}

/// Takes differences, and tells those that nobody knows and those that are no more.
pub struct DifferenceLedger {
    known: Vec<KnownDifference>,
    met: BTreeSet<usize>,
    unknown: Vec<String>,
}

impl DifferenceLedger {
    pub fn new() -> Self {
        DifferenceLedger { known: all(), met: BTreeSet::new(), unknown: Vec::new() }
    }

    pub fn takes(&mut self, exchange: &str, field: &str, lab: &str, real: &str) {
        match self.known.iter().position(|known| known.covers(exchange, field)) {
            Some(index) => drop(self.met.insert(index)),
            None => self.unknown.push(format!("{exchange}: {field}\n    lab:  {lab}\n    real: {real}")),
        }
    }

    /// What is to be said; empty if all is as it is known.
    pub fn end(self) -> String {
        let gone = self.known.iter().enumerate().filter(|(index, _)| !self.met.contains(index));
        let gone = gone.map(|(_, known)| format!("no longer differs: {:?} in {:?}", known.fields, known.exchanges));
        self.unknown.iter().cloned().chain(gone).collect::<Vec<_>>().join("\n")
    }
}
