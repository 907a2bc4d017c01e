//! `svclab merge`: one report out of the reports of all shards.

mod check;
mod read;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use check::MergeError;
use check::Whole;

use crate::conformance::{Card, ModeCard, NotRun};
use crate::matrix::{Cell, Matrix};
use crate::report::{NotRunRecord, RunRecord};
use crate::shard::WorkItem;

#[derive(Debug)]
pub enum MergedReport {
    Run(RunRecord),
    Card(Box<Card>),
    Matrix(Matrix),
}

/// An item that no report has, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub item: WorkItem,
    pub why: String,
}

/// Merges the shards of one command. Gaps are also in the report, as scenarios that were not run.
///
/// # Errors
/// When a file is no report of a shard, or the reports are not of one whole.
pub fn merge(paths: &[PathBuf]) -> Result<(MergedReport, Vec<Gap>), MergeError> {
    Ok(match read::all(paths)? {
        read::ShardReports::Runs(runs) => {
            let whole = Whole::of(runs.iter().map(|(path, run)| (path.as_path(), run.shard.as_ref())))?;
            let (run, gaps) = merged_runs(runs.into_iter().map(|(_, run)| run).collect(), &whole);
            (MergedReport::Run(run), gaps)
        }
        read::ShardReports::Cards(cards) => {
            let whole = Whole::of(cards.iter().map(|(path, card)| (path.as_path(), card.shard.as_ref())))?;
            let (card, gaps) = merged_cards(cards.into_iter().map(|(_, card)| card), &whole);
            (MergedReport::Card(Box::new(card)), gaps)
        }
        read::ShardReports::Matrices(matrices) => {
            let whole = Whole::of(matrices.iter().map(|(path, matrix)| (path.as_path(), matrix.shard.as_ref())))?;
            check::equal_columns(&matrices)?;
            let (matrix, gaps) = merged_matrices(matrices.into_iter().map(|(_, matrix)| matrix), &whole);
            (MergedReport::Matrix(matrix), gaps)
        }
    })
}

fn merged_runs(runs: Vec<RunRecord>, whole: &Whole) -> (RunRecord, Vec<Gap>) {
    let (mut scenarios, mut not_run) = (Vec::new(), Vec::<NotRunRecord>::new());
    let (mut passed, mut interrupted) = (true, None);
    for run in runs {
        passed &= run.passed;
        interrupted = interrupted.or(run.interrupted);
        scenarios.extend(run.scenarios);
        not_run.extend(run.not_run.into_iter().flatten());
    }
    let position: BTreeMap<&WorkItem, usize> =
        whole.items().iter().enumerate().map(|(position, one)| (&one.item, position)).collect();
    // Batches on the host's kernel come before those in microVMs.
    scenarios.sort_by_cached_key(|one| {
        let listed = one.item().listed(whole.items()).and_then(|item| position.get(item));
        (one.machine.is_some(), listed.copied())
    });
    let ran: Vec<WorkItem> = scenarios.iter().filter_map(|one| one.item().listed(whole.items()).cloned()).collect();
    let gaps = whole.gaps(|item| {
        ran.contains(item) || not_run.iter().any(|one| (&one.scenario, &one.mode) == (&item.scenario, &item.mode))
    });
    not_run.extend(gaps.iter().map(|gap| NotRunRecord {
        scenario: gap.item.scenario.clone(),
        mode: gap.item.mode.clone(),
        why: gap.why.clone(),
        is_failure: true,
    }));
    let mut run = RunRecord::new(passed && gaps.is_empty(), scenarios);
    run.interrupted = interrupted;
    run.not_run = (!not_run.is_empty()).then_some(not_run);
    (run, gaps)
}

fn merged_cards(cards: impl Iterator<Item = Card>, whole: &Whole) -> (Card, Vec<Gap>) {
    let mut card = cards.reduce(Card::and).unwrap_or_default();
    card.shard = None;
    let is_in = |item: &WorkItem| {
        let has =
            |mode: &ModeCard| mode.mode == item.mode && mode.not_run.iter().any(|one| one.scenario == item.scenario);
        card.times.iter().any(|one| one.item == *item) || card.modes.iter().any(has)
    };
    let gaps = whole.gaps(is_in);
    for gap in &gaps {
        let mode = card.modes.iter_mut().find(|mode| mode.mode == gap.item.mode);
        let one = NotRun { scenario: gap.item.scenario.clone(), why: gap.why.clone() };
        mode.into_iter().for_each(|mode| mode.not_run.push(one.clone()));
    }
    (card, gaps)
}

fn merged_matrices(matrices: impl Iterator<Item = Matrix>, whole: &Whole) -> (Matrix, Vec<Gap>) {
    let and = |mut one: Matrix, other: Matrix| {
        one.cells.extend(other.cells);
        one.times.extend(other.times);
        one
    };
    let mut matrix = matrices.reduce(and).unwrap_or_default();
    matrix.shard = None;
    let column = |matrix: &Matrix, item: &WorkItem| {
        matrix.columns.iter().position(|column| (&column.folder, &column.mode) == (&item.place, &item.mode))
    };
    let is_in = |item: &WorkItem| {
        column(&matrix, item).is_some_and(|column| matrix.cells.contains_key(&(item.scenario.clone(), column)))
    };
    let gaps = whole.gaps(is_in);
    for Gap { item, why } in &gaps {
        if let Some(column) = column(&matrix, item) {
            matrix.enter(&item.scenario, column, Cell::NotRun(why.clone()));
        }
    }
    (matrix, gaps)
}

#[cfg(test)]
mod tests;
