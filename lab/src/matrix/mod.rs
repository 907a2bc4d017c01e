//! What became of every scenario with several versions of a proxy, in each of its modes.

mod markdown;

use std::collections::BTreeMap;

pub use markdown::markdown;
use serde_json::{Value, json};

/// The version of the JSON's form: another number where a key has gone, or means something else.
pub const SCHEMA_VERSION: u64 = 1;

/// One version in one mode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    /// The name of the folder that the program came from.
    pub folder: String,
    /// The version that the program tells, if its description says how to ask.
    pub version: Option<String>,
    /// The mode.
    pub mode: String,
}

/// What became of a scenario in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// Every promise was kept.
    Passed,
    /// One was not: the step, and what was seen of it.
    Failed(String),
    /// It is not run with this proxy, and why.
    Excused(String),
    /// It was run, and nothing of it could be judged; or no step after the one that could not.
    NotJudged(String),
    /// It could not be run here.
    NotRun(String),
}

impl Cell {
    /// In a word, as the JSON has it.
    pub fn word(&self) -> &'static str {
        match self {
            Cell::Passed => "passed",
            Cell::Failed(_) => "failed",
            Cell::Excused(_) => "excused",
            Cell::NotJudged(_) => "notJudged",
            Cell::NotRun(_) => "notRun",
        }
    }

    /// Why it did not pass.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Cell::Passed => None,
            Cell::Failed(why) | Cell::Excused(why) | Cell::NotJudged(why) | Cell::NotRun(why) => Some(why),
        }
    }

    /// What the report of a scenario, as [`crate::report::json`] writes it, comes to.
    pub fn of(report: &Value) -> Cell {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if report["unable"] == true {
            return Cell::NotRun(text(&report["notStarted"]));
        }
        if let Some(why) = report["notStarted"].as_str() {
            return Cell::Failed(format!("before the first step: {why}"));
        }
        let steps = report["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
        if report["passed"] != true {
            return Cell::Failed(steps.iter().find_map(broken).unwrap_or_else(|| "it was interrupted".to_owned()));
        }
        match steps.iter().find(|step| step["verdict"] == "not judged") {
            // A step's promise that nobody could look at is not a scenario's.
            Some(step)
                if report["judged"] != true || steps.last().is_some_and(|last| last["verdict"] == "not judged") =>
            {
                Cell::NotJudged(text(&step["why"]))
            }
            _ => Cell::Passed,
        }
    }
}

/// What broke in a step, if anything did.
fn broken(step: &Value) -> Option<String> {
    let first = step["mismatches"].as_array()?.first()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(format!("{}: expected: {}; seen: {}", text(&step["name"]), text(&first["expected"]), text(&first["seen"])))
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub struct Matrix {
    /// The proxy's name.
    pub proxy: String,
    /// The versions in their modes, in the order in which they are shown.
    pub columns: Vec<Column>,
    /// By scenario, and by the place of the column. A scenario that is not for a mode has no cell there.
    pub cells: BTreeMap<(String, usize), Cell>,
}

impl Matrix {
    /// Adds a version in a mode; returns its place.
    pub fn add(&mut self, column: Column) -> usize {
        self.columns.push(column);
        self.columns.len() - 1
    }

    /// Enters what became of a scenario in a column.
    pub fn enter(&mut self, scenario: &str, column: usize, cell: Cell) {
        self.cells.insert((scenario.to_owned(), column), cell);
    }

    /// How many cells are `word`.
    pub fn count(&self, word: &str) -> usize {
        self.cells.values().filter(|cell| cell.word() == word).count()
    }

    /// As JSON: a list of columns, and one of cells.
    pub fn json(&self) -> Value {
        let columns = self
            .columns
            .iter()
            .map(|column| json!({ "folder": column.folder, "version": column.version, "mode": column.mode }));
        let cells = self.cells.iter().map(|((scenario, place), cell)| {
            let column = &self.columns[*place];
            let reason = cell.reason();
            json!({
                "scenario": scenario,
                "folder": column.folder,
                "version": column.version,
                "mode": column.mode,
                "verdict": cell.word(),
                "reason": reason,
                "links": reason.map(|reason| markdown::links(reason).into_iter().map(|(_, url)| url).collect::<Vec<_>>()),
            })
        });
        json!({
            "schemaVersion": SCHEMA_VERSION,
            "program": { "name": "svclab", "version": env!("CARGO_PKG_VERSION"), "commit": option_env!("SVCLAB_COMMIT") },
            "proxy": self.proxy,
            "columns": columns.collect::<Vec<_>>(),
            "cells": cells.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two versions, of which the older has a mode less.
    pub(crate) fn sample() -> Matrix {
        let mut matrix = Matrix { proxy: "kube-proxy".to_owned(), ..Matrix::default() };
        let mut column = |folder: &str, mode: &str| {
            let version = Some(folder.trim_start_matches('v').to_owned());
            matrix.add(Column { folder: folder.to_owned(), version, mode: mode.to_owned() })
        };
        let (old, new, nft) =
            (column("v1.30.5", "iptables"), column("v1.36.2", "iptables"), column("v1.36.2", "nftables"));
        for place in [old, new, nft] {
            matrix.enter("hairpin", place, Cell::Passed);
        }
        let flush = "it looks rarely (kubernetes#129128)".to_owned();
        matrix.enter("flush", old, Cell::Excused(flush.clone()));
        matrix.enter("flush", new, Cell::Excused(flush));
        matrix.enter("udp", nft, Cell::Failed("it answers | at once: expected: web; seen: nobody".to_owned()));
        matrix.enter("udp", old, Cell::NotJudged("no root".to_owned()));
        matrix
    }

    #[test]
    fn a_report_comes_to_a_cell() {
        let step = |verdict: &str| json!({ "name": "s", "verdict": verdict, "why": "no root", "mismatches": [] });
        let report = |passed: bool, judged: bool, steps: &[&str]| {
            json!({ "passed": passed, "judged": judged, "unable": false, "notStarted": null,
                "steps": steps.iter().map(|verdict| step(verdict)).collect::<Vec<_>>() })
        };
        assert_eq!(Cell::of(&report(true, true, &["passed", "passed"])), Cell::Passed);
        let one_of_several = report(true, true, &["passed", "not judged", "passed"]);
        assert_eq!(Cell::of(&one_of_several), Cell::Passed);
        assert_eq!(Cell::of(&report(true, true, &["passed", "not judged"])), Cell::NotJudged("no root".to_owned()));
        assert_eq!(Cell::of(&report(true, false, &["not judged"])), Cell::NotJudged("no root".to_owned()));
        let mut failed = report(false, true, &["passed", "failed"]);
        failed["steps"][1]["mismatches"] = json!([{ "expected": "a", "seen": "b" }]);
        assert_eq!(Cell::of(&failed), Cell::Failed("s: expected: a; seen: b".to_owned()));
        let mut unable = report(false, true, &[]);
        unable["notStarted"] = "no bridge".into();
        assert_eq!(Cell::of(&unable), Cell::Failed("before the first step: no bridge".to_owned()));
        unable["unable"] = true.into();
        assert_eq!(Cell::of(&unable), Cell::NotRun("no bridge".to_owned()));
    }

    #[test]
    fn the_json_has_every_cell_with_its_links() {
        let value = sample().json();
        assert_eq!(value["columns"].as_array().map(Vec::len), Some(3));
        let cells = value["cells"].as_array().cloned().unwrap_or_default();
        let cell = |scenario: &str, folder: &str, mode: &str| {
            let of_it =
                |cell: &&Value| cell["scenario"] == scenario && cell["folder"] == folder && cell["mode"] == mode;
            cells.iter().find(of_it).cloned().unwrap_or_default()
        };
        assert_eq!(cell("hairpin", "v1.30.5", "iptables")["verdict"], "passed");
        assert_eq!(cell("udp", "v1.36.2", "iptables"), Value::Null, "it is not for that mode");
        let flush = cell("flush", "v1.36.2", "iptables");
        assert_eq!((&flush["verdict"], &flush["version"]), (&"excused".into(), &"1.36.2".into()));
        assert_eq!(flush["links"][0], "https://github.com/kubernetes/kubernetes/issues/129128");
    }
}
