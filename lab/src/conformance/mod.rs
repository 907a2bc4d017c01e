//! A card of one proxy: which promises it keeps in which mode, which it breaks and how that is seen, which were not judged and why, and what
//! it costs. Cards of two proxies, or of two versions of one, compare by the promises' numbers.

mod against;
mod gather;
mod html;
mod markdown;
mod source;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use against::{Change, against};
pub use gather::{Gatherer, OnlyGenerated};
pub use html::render as html;
pub use markdown::render as markdown;
pub use text::{promises, render as text};

use crate::promises::Promise;
use crate::report::Figures;

/// The version of the card's form: another number where a key has gone, or means something else.
pub const SCHEMA_VERSION: u64 = 1;

/// The whole card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u64,
    /// The proxy, with its version where that is known.
    pub proxy: String,
    /// Version of svclab.
    pub lab: String,
    /// What decides the values that scenarios leave open, and the generated clusters.
    pub seed: u64,
    /// The modes that were judged, in the order of the columns.
    pub modes: Vec<ModeCard>,
    /// Every promise, by number.
    pub promises: Vec<Row>,
}

/// A mode.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeCard {
    /// Its name.
    pub mode: String,
    /// Releases of the kernels that it was run on.
    pub kernels: Vec<String>,
    /// Scenarios that were run.
    pub scenarios: usize,
    /// Generated clusters that were run.
    pub generated: usize,
    /// Scenarios that were not run, or only in part.
    pub not_run: Vec<NotRun>,
    /// What it cost, if that was measured.
    pub figures: Option<CardFigures>,
}

/// A scenario that was not run, or a step of it that was not judged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NotRun {
    /// The scenario, with the step where it is one.
    pub scenario: String,
    /// Why.
    pub why: String,
}

/// Figures over the scenarios in which a mode was measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CardFigures {
    /// Changes of objects that were measured.
    pub changes: usize,
    /// Seconds from a change to the first right answer of a node.
    pub applied_median: Option<f64>,
    /// Of 100 changes 95 took no longer.
    pub applied_95: Option<f64>,
    /// The most memory that any proxy had resident, in bytes.
    pub peak_memory: u64,
    /// Processor time of all proxies with the commands that they ran, in seconds.
    pub processor: f64,
}

/// A promise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its number, which stays.
    pub number: u16,
    /// Its short name.
    pub id: String,
    /// What it says.
    pub says: String,
    /// Where that is written.
    pub source: String,
    /// By mode; a mode that the promise is not for has none.
    pub cells: BTreeMap<String, Cell>,
}

impl Row {
    /// One in which nothing was judged yet.
    #[must_use]
    pub fn of(promise: &Promise) -> Row {
        Row {
            number: promise.number,
            id: promise.id.to_owned(),
            says: promise.says.to_owned(),
            source: promise.source.to_owned(),
            cells: BTreeMap::new(),
        }
    }
}

/// A promise in a mode.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// The verdict.
    pub verdict: PromiseVerdict,
    /// Calls of audits that it was judged by.
    pub calls: usize,
    /// Those that broke it.
    pub broken_calls: usize,
    /// Steps of scenarios that it was judged by.
    pub steps: usize,
    /// How it was seen to break, the smallest scenario first; at most [`BREACHES`].
    pub breaches: Vec<Breach>,
    /// Scenarios and steps about it that were not judged.
    pub not_judged: Vec<NotRun>,
}

/// Breaches that a cell shows.
pub const BREACHES: usize = 3;

/// What became of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PromiseVerdict {
    /// Every call and step that was judged kept it.
    Kept,
    /// It was broken.
    Broken,
    /// It was broken only in ways in which kube-proxy is known to break it everywhere.
    Known,
    /// A scenario about it was left out, for the proxy's description says that it fails.
    Excused,
    /// Nothing was judged.
    #[default]
    NotJudged,
}

impl PromiseVerdict {
    /// Every verdict.
    pub const ALL: [PromiseVerdict; 5] = [
        PromiseVerdict::Kept,
        PromiseVerdict::Broken,
        PromiseVerdict::Known,
        PromiseVerdict::Excused,
        PromiseVerdict::NotJudged,
    ];

    /// In a word or two.
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

    /// After a number.
    fn noun(self) -> &'static str {
        match self {
            PromiseVerdict::Broken => "broken",
            PromiseVerdict::Known => "broken as known",
            PromiseVerdict::NotJudged => "not judged",
            verdict => verdict.word(),
        }
    }

    /// What it means.
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

/// How a promise was seen to break.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Breach {
    /// The scenario.
    pub scenario: String,
    /// The step.
    pub step: String,
    /// Whether an audit says so: the step's own, or one that was done after it.
    #[serde(default)]
    pub by_audit: bool,
    /// What was promised.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// Why it is known, if it is.
    pub known: Option<String>,
    /// The packet's way, a line each.
    pub way: Vec<String>,
    /// The command that repeats it.
    pub repeat: String,
    /// The scenario's text, if it was generated.
    pub text: Option<String>,
    /// How long the scenario is: the shortest is the one to read.
    pub length: usize,
}

impl Card {
    /// How many promises have a verdict in a mode: those of Kubernetes, or those that only this project holds proxies to.
    #[must_use]
    pub fn count(&self, mode: &str, verdict: PromiseVerdict, kubernetes: bool) -> usize {
        let is_one = |row: &&Row| {
            row.is_kubernetes() == kubernetes && row.cells.get(mode).is_some_and(|cell| cell.verdict == verdict)
        };
        self.promises.iter().filter(is_one).count()
    }

    /// Whether no promise was broken.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.cells().all(|(_, _, cell)| cell.verdict != PromiseVerdict::Broken)
    }

    /// Whether anything was judged.
    #[must_use]
    pub fn judged(&self) -> bool {
        self.cells().any(|(_, _, cell)| cell.calls + cell.steps > 0)
    }

    /// Every promise in every mode, in order.
    pub fn cells(&self) -> impl Iterator<Item = (&Row, &ModeCard, &Cell)> {
        let of_row = |row| self.modes.iter().filter_map(move |mode| row_cell(row, mode));
        self.promises.iter().flat_map(of_row)
    }
}

fn row_cell<'a>(row: &'a Row, mode: &'a ModeCard) -> Option<(&'a Row, &'a ModeCard, &'a Cell)> {
    Some((row, mode, row.cells.get(&mode.mode)?))
}

impl Row {
    /// Whether a document of Kubernetes says it.
    #[must_use]
    pub fn is_kubernetes(&self) -> bool {
        Promise::of_id(&self.id).is_none_or(Promise::is_kubernetes)
    }

    /// The chapter that it stands in.
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

    /// In a line.
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
