use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownDifference {
    /// `group/name` of a request (a final `*` matches any suffix), or `*` for all.
    #[serde(rename = "in")]
    pub exchanges: Vec<String>,
    /// Differing fields, without list indices, as `items[].spec.ports`.
    pub fields: Vec<String>,
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

pub fn all() -> Vec<KnownDifference> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/known.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let known: Vec<KnownDifference> =
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(known.iter().all(|known| !known.why.trim().is_empty()), "a difference without a reason");
    known
}

/// Collects unknown differences, and known ones that no longer occur.
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

    /// Returns the unexpected differences; empty if there are none.
    pub fn end(self) -> String {
        let gone = self.known.iter().enumerate().filter(|(index, _)| !self.met.contains(index));
        let gone = gone.map(|(_, known)| format!("no longer differs: {:?} in {:?}", known.fields, known.exchanges));
        self.unknown.iter().cloned().chain(gone).collect::<Vec<_>>().join("\n")
    }
}
