//! The JSON form of a matrix.

use serde::{Deserialize, Serialize};

use super::{Cell, Column, Matrix, SCHEMA_VERSION, markdown};
use crate::report::ProgramRecord;
use crate::shard::{ItemTime, ShardRecord};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MatrixRecord {
    schema_version: u64,
    program: ProgramRecord,
    proxy: String,
    columns: Vec<Column>,
    cells: Vec<CellRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    times: Vec<ItemTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shard: Option<ShardRecord>,
}

#[derive(Serialize, Deserialize)]
struct CellRecord {
    scenario: String,
    #[serde(flatten)]
    column: Column,
    verdict: String,
    reason: Option<String>,
    links: Option<Vec<String>>,
}

impl From<Matrix> for MatrixRecord {
    fn from(matrix: Matrix) -> MatrixRecord {
        let cell = |((scenario, place), cell): (&(String, usize), &Cell)| CellRecord {
            scenario: scenario.clone(),
            column: matrix.columns[*place].clone(),
            verdict: cell.word().to_owned(),
            reason: cell.reason().map(str::to_owned),
            links: cell.reason().map(|reason| markdown::links(reason).into_iter().map(|(_, url)| url).collect()),
        };
        MatrixRecord {
            schema_version: SCHEMA_VERSION,
            program: ProgramRecord::own(),
            cells: matrix.cells.iter().map(cell).collect(),
            proxy: matrix.proxy,
            columns: matrix.columns,
            times: matrix.times,
            shard: matrix.shard,
        }
    }
}

impl TryFrom<MatrixRecord> for Matrix {
    type Error = String;

    fn try_from(record: MatrixRecord) -> Result<Matrix, String> {
        let MatrixRecord { proxy, columns, cells, times, shard, .. } = record;
        let mut matrix = Matrix { proxy, columns, times, shard, ..Matrix::default() };
        for CellRecord { scenario, column, verdict, reason, .. } in cells {
            let place = matrix.columns.iter().position(|one| *one == column);
            let place = place.ok_or_else(|| format!("cells: {scenario} has a version or mode that is no column"))?;
            let reason = reason.unwrap_or_default();
            let cell = match verdict.as_str() {
                "passed" => Cell::Passed,
                "failed" => Cell::Failed(reason),
                "excused" => Cell::Excused(reason),
                "notJudged" => Cell::NotJudged(reason),
                "notRun" => Cell::NotRun(reason),
                other => return Err(format!("cells: {scenario} has the unknown verdict {other:?}")),
            };
            matrix.enter(&scenario, place, cell);
        }
        Ok(matrix)
    }
}
