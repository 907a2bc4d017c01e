use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::MergeError;
use crate::conformance::{self, Card};
use crate::matrix::{self, Matrix};
use crate::report::RunRecord;

pub(super) enum ShardReports {
    Runs(Vec<(PathBuf, RunRecord)>),
    Cards(Vec<(PathBuf, Card)>),
    Matrices(Vec<(PathBuf, Matrix)>),
}

/// Each kind of report has a key that the others lack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReportKind {
    Run,
    Card,
    Matrix,
}

impl ReportKind {
    fn of(value: &Value) -> Option<ReportKind> {
        let kinds = [("scenarios", ReportKind::Run), ("promises", ReportKind::Card), ("cells", ReportKind::Matrix)];
        kinds.into_iter().find(|(key, _)| value.get(key).is_some()).map(|(_, kind)| kind)
    }

    fn name(self) -> &'static str {
        match self {
            ReportKind::Run => "a report of `svclab run`",
            ReportKind::Card => "a card of `svclab conformance`",
            ReportKind::Matrix => "a matrix of `svclab matrix`",
        }
    }

    fn schema_version(self) -> u64 {
        match self {
            ReportKind::Run => crate::report::SCHEMA_VERSION,
            ReportKind::Card => conformance::SCHEMA_VERSION,
            ReportKind::Matrix => matrix::SCHEMA_VERSION,
        }
    }
}

pub(super) fn all(paths: &[PathBuf]) -> Result<ShardReports, MergeError> {
    let mut values = Vec::new();
    for path in paths {
        values.push((path.clone(), read(path)?));
    }
    let Some((one, (kind, _))) = values.first().map(|(path, (kind, value))| (path.clone(), (*kind, value))) else {
        return Err(MergeError::Empty);
    };
    if let Some((other, (of_other, _))) = values.iter().find(|(_, (other, _))| *other != kind) {
        let (of_one, of_other) = (kind.name(), of_other.name());
        return Err(MergeError::Kinds { one, of_one, other: other.clone(), of_other });
    }
    let values: Vec<(PathBuf, Value)> = values.into_iter().map(|(path, (_, value))| (path, value)).collect();
    Ok(match kind {
        ReportKind::Run => ShardReports::Runs(typed(values)?),
        ReportKind::Card => ShardReports::Cards(typed(values)?),
        ReportKind::Matrix => ShardReports::Matrices(typed(values)?),
    })
}

fn read(path: &Path) -> Result<(ReportKind, Value), MergeError> {
    let wrong = |problem: String| MergeError::Unreadable { path: path.to_owned(), problem };
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let value: Value = serde_json::from_slice(&text).map_err(|error| wrong(format!("not a report: {error}")))?;
    let kind = ReportKind::of(&value)
        .ok_or_else(|| wrong("not a report of `svclab run`, `conformance` or `matrix`".to_owned()))?;
    let (version, known) = (&value["schemaVersion"], kind.schema_version());
    if version.as_u64() != Some(known) {
        return Err(wrong(format!("its schema version is {version}, and this program reads {known}")));
    }
    Ok((kind, value))
}

fn typed<T: DeserializeOwned>(values: Vec<(PathBuf, Value)>) -> Result<Vec<(PathBuf, T)>, MergeError> {
    let one = |(path, value): (PathBuf, Value)| match serde_json::from_value(value) {
        Ok(report) => Ok((path, report)),
        Err(error) => Err(MergeError::Unreadable { path, problem: format!("not a report: {error}") }),
    };
    values.into_iter().map(one).collect()
}
