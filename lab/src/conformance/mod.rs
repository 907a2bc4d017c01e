//! The conformance card of a proxy: its verdict on every promise in every mode, with breaches and costs. Cards compare
//! by promise number.

mod against;
mod gather;
mod html;
pub mod judges;
mod markdown;
mod merge;
pub mod mutants;
mod source;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use against::{VerdictChange, against};
pub use gather::{Gatherer, OnlyGenerated};
pub use html::render as html;
pub use judges::{Judges, MutantCount};
pub use markdown::render as markdown;
pub use text::{promises, render as text};

use crate::promises::Promise;
use crate::report::Figures;
use crate::shard::{ItemTime, ShardRecord};

/// Changes when a key is removed or changes its meaning.
pub const SCHEMA_VERSION: u64 = 1;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    pub schema_version: u64,
    /// The proxy's name, with its version if known.
    pub proxy: String,
    pub lab: String,
    /// The seed of unset values, and the first generated cluster's number.
    pub seed: u64,
    /// The modes, in the order of the columns.
    pub modes: Vec<ModeCard>,
    /// The promises, sorted by number.
    pub promises: Vec<PromiseRow>,
    /// What the scenarios behind the card are worth.
    #[serde(default)]
    pub mutants: MutantCount,
    /// For `--balance`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<ItemTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardRecord>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeCard {
    pub mode: String,
    pub kernels: Vec<String>,
    pub scenarios: usize,
    pub generated: usize,
    /// Scenarios that were not run, or that ended early.
    pub not_run: Vec<NotRun>,
    pub figures: Option<CardFigures>,
}

/// A scenario that was not run, or a step that was not judged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NotRun {
    /// The scenario's name, with the step if only a step was not judged.
    pub scenario: String,
    pub why: String,
}

/// The proxy's costs over the measured scenarios of a mode.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CardFigures {
    pub changes: usize,
    /// Median seconds from a change to the first right answer on a node.
    pub applied_median: Option<f64>,
    /// The 95th percentile of these times, in seconds.
    pub applied_95: Option<f64>,
    /// Bytes of resident memory, the largest of all proxies.
    pub peak_memory: u64,
    /// Seconds of processor time of all proxies, children included.
    pub processor: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromiseRow {
    /// The promise's permanent number.
    pub number: u16,
    pub id: String,
    pub says: String,
    pub source: String,
    #[serde(default)]
    pub judges: Judges,
    /// The results by mode, without modes to which the promise does not apply.
    pub cells: BTreeMap<String, Cell>,
}

impl PromiseRow {
    #[must_use]
    pub fn of(promise: &Promise) -> PromiseRow {
        PromiseRow {
            number: promise.number,
            id: promise.id.to_owned(),
            says: promise.says.to_owned(),
            source: promise.source.to_owned(),
            judges: Judges::default(),
            cells: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    pub verdict: PromiseVerdict,
    /// The number of calls in audits.
    pub calls: usize,
    pub broken_calls: usize,
    pub steps: usize,
    /// At most [`BREACHES`] breaches, the shortest scenario first.
    pub breaches: Vec<Breach>,
    pub not_judged: Vec<NotRun>,
}

pub const BREACHES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PromiseVerdict {
    /// Every judged call and step kept the promise.
    Kept,
    Broken,
    /// Every breach is one for which kube-proxy is known.
    Known,
    /// The proxy's description excuses a scenario about the promise, and no step broke the promise.
    Excused,
    #[default]
    NotJudged,
}

impl PromiseVerdict {
    pub const ALL: [PromiseVerdict; 5] = [
        PromiseVerdict::Kept,
        PromiseVerdict::Broken,
        PromiseVerdict::Known,
        PromiseVerdict::Excused,
        PromiseVerdict::NotJudged,
    ];

    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            PromiseVerdict::Kept => "kept",
            PromiseVerdict::Broken => "BROKEN",
            PromiseVerdict::Known => "known",
            PromiseVerdict::Excused => "excused",
            PromiseVerdict::NotJudged => "-",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            PromiseVerdict::Broken => "broken",
            PromiseVerdict::Known => "broken as known",
            PromiseVerdict::NotJudged => "not judged",
            verdict => verdict.word(),
        }
    }

    #[must_use]
    pub fn means(self) -> &'static str {
        match self {
            PromiseVerdict::Kept => "kept: every call and every step that was judged kept it",
            PromiseVerdict::Broken => "BROKEN: seen to be broken, below",
            PromiseVerdict::Known => "known: broken only as kube-proxy is known to break it everywhere, below",
            PromiseVerdict::Excused => "excused: left out, for the proxy's description says that it fails, below",
            PromiseVerdict::NotJudged => "-: not judged, below; empty: not for this mode",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Breach {
    pub scenario: String,
    pub step: String,
    /// Whether an audit step, or the audit after a step, found the breach.
    #[serde(default)]
    pub by_audit: bool,
    pub expected: String,
    pub seen: String,
    /// The reason for a known breach.
    pub known: Option<String>,
    pub way: Vec<String>,
    pub repeat: String,
    pub text: Option<String>,
    /// The size of the scenario file in bytes.
    pub length: usize,
}

impl Card {
    /// Adds who judges each promise, and how many wrong proxies the scenarios notice.
    #[must_use]
    pub fn with_judges(mut self) -> Card {
        for row in &mut self.promises {
            row.judges = judges::judges().get(&row.id).cloned().unwrap_or_default();
        }
        self.mutants = MutantCount::of_table();
        self
    }

    fn lab_and_shard(&self) -> String {
        let shard = self.shard.as_ref().map(|shard| format!(", shard {}", shard.shard())).unwrap_or_default();
        format!("{}{shard}", self.lab)
    }

    /// Counts promises with a verdict: Kubernetes' or those that only this project demands.
    #[must_use]
    pub fn count(&self, mode: &str, verdict: PromiseVerdict, kubernetes: bool) -> usize {
        let is_one = |row: &&PromiseRow| {
            row.is_kubernetes() == kubernetes && row.cells.get(mode).is_some_and(|cell| cell.verdict == verdict)
        };
        self.promises.iter().filter(is_one).count()
    }

    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.cells().all(|(_, _, cell)| cell.verdict != PromiseVerdict::Broken)
    }

    #[must_use]
    pub fn judged(&self) -> bool {
        self.cells().any(|(_, _, cell)| cell.calls + cell.steps > 0)
    }

    pub fn cells(&self) -> impl Iterator<Item = (&PromiseRow, &ModeCard, &Cell)> {
        let of_row = |row| self.modes.iter().filter_map(move |mode| row_cell(row, mode));
        self.promises.iter().flat_map(of_row)
    }
}

fn row_cell<'a>(row: &'a PromiseRow, mode: &'a ModeCard) -> Option<(&'a PromiseRow, &'a ModeCard, &'a Cell)> {
    Some((row, mode, row.cells.get(&mode.mode)?))
}

impl PromiseRow {
    #[must_use]
    pub fn is_kubernetes(&self) -> bool {
        Promise::of_id(&self.id).is_none_or(Promise::is_kubernetes)
    }

    #[must_use]
    pub fn chapter(&self) -> &'static str {
        Promise::of_id(&self.id).map_or("Others", Promise::chapter)
    }
}

impl CardFigures {
    fn of(figures: &Figures) -> CardFigures {
        let seconds = |percent| figures.applied_within(percent).map(|took| took.as_secs_f64());
        CardFigures {
            changes: figures.applied.len(),
            applied_median: seconds(50),
            applied_95: seconds(95),
            peak_memory: figures.peak_memory,
            processor: figures.processor.as_secs_f64(),
        }
    }

    #[must_use]
    pub fn line(&self) -> String {
        let time = |seconds: Option<f64>| seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.2} s"));
        format!(
            "{} changes, applied in {} (median), 95 of 100 in {}; {:.1} MB at most, {:.1} s of processor time",
            self.changes,
            time(self.applied_median),
            time(self.applied_95),
            self.peak_memory as f64 / 1e6,
            self.processor,
        )
    }
}

#[cfg(test)]
mod tests;
