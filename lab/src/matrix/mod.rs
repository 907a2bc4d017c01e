//! Verdicts on every scenario with several versions of a proxy, in each of their modes.

mod markdown;
mod record;

use std::collections::BTreeMap;

pub use markdown::markdown;
use serde::{Deserialize, Serialize};

use crate::report::{ScenarioRecord, StepRecord, VerdictWord};
use crate::shard::{ItemTime, ShardRecord};
use record::MatrixRecord;

/// Changes when a key is removed or changes its meaning.
pub const SCHEMA_VERSION: u64 = 1;

/// A version of the proxy in a mode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Column {
    pub folder: String,
    /// The version as the program prints it, if its description has a version command.
    pub version: Option<String>,
    pub mode: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    Passed,
    /// The first failed step and its mismatch.
    Failed(String),
    /// The reason in the proxy's description.
    Excused(String),
    /// The reason why no step, or not the last one, was judged.
    NotJudged(String),
    NotRun(String),
}

impl Cell {
    pub fn word(&self) -> &'static str {
        match self {
            Cell::Passed => "passed",
            Cell::Failed(_) => "failed",
            Cell::Excused(_) => "excused",
            Cell::NotJudged(_) => "notJudged",
            Cell::NotRun(_) => "notRun",
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            Cell::Passed => None,
            Cell::Failed(why) | Cell::Excused(why) | Cell::NotJudged(why) | Cell::NotRun(why) => Some(why),
        }
    }

    pub fn of(report: &ScenarioRecord) -> Cell {
        let not_started = report.not_started.clone();
        if report.unable {
            return Cell::NotRun(not_started.unwrap_or_default());
        }
        if let Some(why) = not_started {
            return Cell::Failed(format!("before the first step: {why}"));
        }
        if !report.passed {
            let broken = report.steps.iter().find_map(broken);
            return Cell::Failed(broken.unwrap_or_else(|| "it was interrupted".to_owned()));
        }
        let is_not_judged = |step: &&StepRecord| step.verdict == VerdictWord::NotJudged;
        match report.steps.iter().find(is_not_judged) {
            // An unjudged step counts only if it is the last one, or if no step was judged.
            Some(step) if !report.judged || report.steps.last().as_ref().is_some_and(is_not_judged) => {
                Cell::NotJudged(step.why.clone().unwrap_or_default())
            }
            _ => Cell::Passed,
        }
    }
}

fn broken(step: &StepRecord) -> Option<String> {
    let first = step.mismatches.first()?;
    Some(format!("{}: expected: {}; seen: {}", step.name, first.expected, first.seen))
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(into = "MatrixRecord", try_from = "MatrixRecord")]
pub struct Matrix {
    pub proxy: String,
    pub columns: Vec<Column>,
    /// By scenario and column index. Lacks a cell where the mode does not suit the scenario.
    pub cells: BTreeMap<(String, usize), Cell>,
    /// For `--balance`.
    pub times: Vec<ItemTime>,
    pub shard: Option<ShardRecord>,
}

impl Matrix {
    pub fn add(&mut self, column: Column) -> usize {
        self.columns.push(column);
        self.columns.len() - 1
    }

    pub fn enter(&mut self, scenario: &str, column: usize, cell: Cell) {
        self.cells.insert((scenario.to_owned(), column), cell);
    }

    pub fn count(&self, word: &str) -> usize {
        self.cells.values().filter(|cell| cell.word() == word).count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::Value;

    use super::*;

    /// Returns a matrix of two versions, of which the older lacks nftables mode.
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
    fn a_cell_has_the_verdict_of_the_report() {
        use VerdictWord::{Failed, NotJudged, Passed};
        let no_root = || Cell::NotJudged("no root".to_owned());
        let report = |passed: bool, judged: bool, verdicts: &[VerdictWord]| {
            let (name, why) = ("s".to_owned(), Some("no root".to_owned()));
            let step = |verdict: &VerdictWord| StepRecord {
                verdict: *verdict,
                name: name.clone(),
                why: why.clone(),
                ..StepRecord::default()
            };
            ScenarioRecord { passed, judged, steps: verdicts.iter().map(step).collect(), ..ScenarioRecord::default() }
        };
        assert_eq!(Cell::of(&report(true, true, &[Passed, Passed])), Cell::Passed);
        assert_eq!(Cell::of(&report(true, true, &[Passed, NotJudged, Passed])), Cell::Passed);
        assert_eq!(Cell::of(&report(true, true, &[Passed, NotJudged])), no_root());
        assert_eq!(Cell::of(&report(true, false, &[NotJudged])), no_root());
        let mut failed = report(false, true, &[Passed, Failed]);
        failed.steps[1].mismatches = vec![crate::expect::Mismatch::new("a", "b")];
        assert_eq!(Cell::of(&failed), Cell::Failed("s: expected: a; seen: b".to_owned()));
        let mut unable = report(false, true, &[]);
        unable.not_started = Some("no bridge".to_owned());
        assert_eq!(Cell::of(&unable), Cell::Failed("before the first step: no bridge".to_owned()));
        unable.unable = true;
        assert_eq!(Cell::of(&unable), Cell::NotRun("no bridge".to_owned()));
    }

    #[test]
    fn the_json_has_every_cell_with_its_links() {
        let value = serde_json::to_value(sample()).unwrap_or_default();
        assert_eq!(serde_json::from_value::<Matrix>(value.clone()).ok(), Some(sample()));
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
