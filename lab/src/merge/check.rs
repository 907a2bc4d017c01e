//! Whether reports are shards of one whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Gap;
use crate::matrix::Matrix;
use crate::shard::{AssignedItem, Shard, ShardRecord, WorkItem};

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MergeError {
    #[error("there are no reports")]
    Empty,
    #[error("{path}: {problem}")]
    Unreadable { path: PathBuf, problem: String },
    #[error("{path} is no shard: it was written without --shard")]
    NoShard { path: PathBuf },
    #[error("{one} is {of_one}, and {other} is {of_other}: merge reports of one command")]
    Kinds { one: PathBuf, of_one: &'static str, other: PathBuf, of_other: &'static str },
    #[error("{one} and {other} are both shard {shard}: leave one out")]
    Twice { shard: Shard, one: PathBuf, other: PathBuf },
    #[error(
        "{one} and {other} are of different commands: {what} is {of_one:?} in the first, and {of_other:?} in the second"
    )]
    Differ { what: &'static str, one: PathBuf, of_one: String, other: PathBuf, of_other: String },
}

/// What the shards have in common, and which are absent.
pub(super) struct Whole {
    record: ShardRecord,
    numbers: Vec<usize>,
}

impl Whole {
    pub(super) fn of<'a>(
        reports: impl Iterator<Item = (&'a Path, Option<&'a ShardRecord>)>,
    ) -> Result<Whole, MergeError> {
        let mut seen: BTreeMap<usize, &Path> = BTreeMap::new();
        let mut first: Option<(&Path, &ShardRecord)> = None;
        for (path, record) in reports {
            let record = record.ok_or_else(|| MergeError::NoShard { path: path.to_owned() })?;
            let (first_path, first_record) = *first.get_or_insert((path, record));
            if let Some((what, of_one, of_other)) = difference(first_record, record) {
                let (one, other) = (first_path.to_owned(), path.to_owned());
                return Err(MergeError::Differ { what, one, of_one, other, of_other });
            }
            if let Some(one) = seen.insert(record.number, path) {
                let (one, other) = (one.to_owned(), path.to_owned());
                return Err(MergeError::Twice { shard: record.shard(), one, other });
            }
        }
        let (_, record) = first.ok_or(MergeError::Empty)?;
        Ok(Whole { record: record.clone(), numbers: seen.into_keys().collect() })
    }

    pub(super) fn items(&self) -> &[AssignedItem] {
        &self.record.items
    }

    /// Returns the items that no report has.
    pub(super) fn gaps(&self, is_in: impl Fn(&WorkItem) -> bool) -> Vec<Gap> {
        let gap = |one: &AssignedItem| {
            let shard = Shard { number: one.shard, of: self.record.of };
            let why = match self.numbers.contains(&one.shard) {
                false => format!("shard {shard} is missing"),
                true if is_in(&one.item) => return None,
                true => format!("shard {shard} ended before it"),
            };
            Some(Gap { item: one.item.clone(), why })
        };
        self.record.items.iter().filter_map(gap).collect()
    }
}

/// Returns what two shards of one command must have in common and do not.
fn difference(one: &ShardRecord, other: &ShardRecord) -> Option<(&'static str, String, String)> {
    let same = |what, of: fn(&ShardRecord) -> String| {
        let (one, other) = (of(one), of(other));
        (one != other).then_some((what, one, other))
    };
    same("the version of svclab", |record| record.lab.clone())
        .or_else(|| same("the proxy", |record| record.proxy.clone()))
        .or_else(|| same("the number of shards", |record| record.of.to_string()))
        .or_else(|| same("the list of flags", |record| record.flags.clone()))
        .or_else(|| {
            let only = |one: &ShardRecord, other: &ShardRecord| {
                let is_other = |item: &&AssignedItem| !other.items.contains(item);
                one.items.iter().find(is_other).map_or("nothing".to_owned(), |one| {
                    format!("{} in shard {}", one.item, Shard { number: one.shard, of: other.of })
                })
            };
            let what = "what only one has (scenarios, modes, kernels, seeds, the report of --balance)";
            (one.items != other.items).then(|| (what, only(one, other), only(other, one)))
        })
}

pub(super) fn equal_columns(matrices: &[(PathBuf, Matrix)]) -> Result<(), MergeError> {
    let Some(((one, first), others)) = matrices.split_first() else { return Ok(()) };
    let columns = |matrix: &Matrix| {
        let name = |column: &crate::matrix::Column| {
            format!("{} {} {}", column.folder, column.version.as_deref().unwrap_or("?"), column.mode)
        };
        matrix.columns.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    match others.iter().find(|(_, matrix)| matrix.columns != first.columns) {
        None => Ok(()),
        Some((other, matrix)) => Err(MergeError::Differ {
            what: "the list of versions and modes",
            one: one.clone(),
            of_one: columns(first),
            other: other.clone(),
            of_other: columns(matrix),
        }),
    }
}
