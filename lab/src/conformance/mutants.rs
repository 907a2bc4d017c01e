//! The table of wrong proxies in docs/mutants.md, which `./just mutants --scenarios` makes: which scenario notices each,
//! and which promises it breaks.

use std::collections::BTreeMap;
use std::fmt;

/// The document with the table.
pub const DOCUMENT: &str = include_str!("../../../docs/mutants.md");

const BEGIN: &str = "<!-- generated: mutants -->";
const END: &str = "<!-- end -->";
const HEAD: &str =
    "| mutant | what the proxy does wrong | mode | noticed by | on | audit | breaks |\n|---|---|---|---|---|---|---|\n";

/// Begins the proof that nothing can notice a mutant.
pub const EQUIVALENT: &str = "equivalent: ";

/// What notices a wrong proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MutantRow {
    /// The id in svcproxy's catalogue.
    pub id: String,
    pub does: String,
    pub mode: String,
    /// `SCENARIO: STEP`; empty if nothing notices it; a proof if nothing can.
    pub noticed_by: String,
    /// `simulator`, `kernel`, or empty.
    pub on: String,
    /// Whether an audit of the nodes in that scenario notices it as well; `None`: not asked.
    pub by_audit: Option<bool>,
    /// The ids of the promise that the step tests, and of those that a card of the scenario calls broken.
    pub breaks: Vec<String>,
}

impl MutantRow {
    #[must_use]
    pub fn is_noticed(&self) -> bool {
        !self.on.is_empty()
    }

    /// Whether nothing can notice the mutant.
    #[must_use]
    pub fn is_equivalent(&self) -> bool {
        self.noticed_by.starts_with(EQUIVALENT)
    }

    fn read(line: &str) -> Option<MutantRow> {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix('|')?.split(" |").map(str::trim).collect();
        let &[id, does, mode, noticed_by, on, audit, breaks, ..] = cells.as_slice() else { return None };
        let breaks = breaks.split(", ").filter(|id| !id.is_empty()).map(str::to_owned).collect();
        Some(MutantRow {
            id: id.trim_matches('`').to_owned(),
            does: does.to_owned(),
            mode: mode.to_owned(),
            noticed_by: noticed_by.to_owned(),
            on: on.to_owned(),
            by_audit: (!audit.is_empty()).then_some(audit == "yes"),
            breaks,
        })
    }

    /// The scenario of `noticed_by`.
    #[must_use]
    pub fn scenario(&self) -> Option<&str> {
        self.noticed_by.split_once(": ").map(|(scenario, _)| scenario).filter(|_| self.is_noticed())
    }
}

impl fmt::Display for MutantRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MutantRow { id, does, mode, noticed_by, on, by_audit, breaks } = self;
        let audit = by_audit.map_or("", |found| if found { "yes" } else { "no" });
        write!(f, "| `{id}` | {does} | {mode} | {noticed_by} | {on} | {audit} | {} |", breaks.join(", "))
    }
}

/// Returns the rows of a document with such a table.
#[must_use]
pub fn rows(document: &str) -> Vec<MutantRow> {
    let table = document.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map_or("", |(table, _)| table);
    table.lines().filter(|line| line.starts_with("| `")).filter_map(MutantRow::read).collect()
}

/// Returns the document with other rows.
#[must_use]
pub fn with_rows(document: &str, rows: &[MutantRow]) -> String {
    let (before, _) = document.split_once(BEGIN).unwrap_or((document, ""));
    let after = document.split_once(END).map_or("\n", |(_, after)| after);
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    format!("{before}{BEGIN}\n\n{HEAD}{lines}\n{END}{after}")
}

/// Returns the ids of the wrong proxies that break each promise.
#[must_use]
pub fn by_promise() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows(DOCUMENT) {
        for promise in row.breaks {
            found.entry(promise).or_default().push(row.id.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let row = |id: &str, breaks: &[&str]| MutantRow {
            id: id.to_owned(),
            does: "ignores ports".to_owned(),
            mode: "iptables".to_owned(),
            noticed_by: "hairpin: a step | of a scenario".replace(" | ", " or "),
            on: "kernel".to_owned(),
            by_audit: (!breaks.is_empty()).then_some(true),
            breaks: breaks.iter().map(|id| (*id).to_owned()).collect(),
        };
        let written = [row("a", &[]), row("b", &["even", "kept"])];
        let document = with_rows("# Title\n<!-- generated: mutants --><!-- end -->\nrest\n", &written);
        assert_eq!(rows(&document), written);
        assert!(document.starts_with("# Title\n") && document.ends_with("\nrest\n"), "{document}");
        assert_eq!(with_rows(&document, &written), document);
    }
}
