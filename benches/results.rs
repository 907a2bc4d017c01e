//! What was measured: criterion's own files, and what the benchmarks say besides.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::subject::kernel::Asked;

/// One point: criterion's group, function and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id {
    /// What is measured, such as `endpoint-replaced`.
    pub group: String,
    /// How, such as `iptables-nft`.
    pub series: String,
    /// On what, such as `1000x10`.
    pub value: String,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.group, self.series, self.value)
    }
}

impl Id {
    /// An id of these three.
    pub fn new(group: impl Into<String>, series: impl Into<String>, value: impl Into<String>) -> Id {
        Id { group: group.into(), series: series.into(), value: value.into() }
    }
}

/// What a benchmark says of itself beside the time that it took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// The part of the time that the kernel and commands took.
    pub apply: Option<Duration>,
    /// The part of it in which rules were written down.
    #[serde(default)]
    pub render: Option<Duration>,
    /// How long the kernel took for the longest transaction.
    #[serde(default)]
    pub longest: Option<Duration>,
    /// The longest time that other tasks of the daemon's runtime had to wait.
    #[serde(default)]
    pub pause: Option<Duration>,
    /// What was asked of the kernel.
    pub asked: Option<Asked>,
    /// The most memory that the process had, in bytes.
    pub peak_memory: Option<u64>,
    /// The memory that it has when it is done, in bytes.
    #[serde(default)]
    pub resident: Option<u64>,
    /// By so much the kernel's memory has grown, in bytes: slabs, memory of each processor, and `vmalloc`.
    #[serde(default)]
    pub kernel_memory: Option<u64>,
}

impl Detail {
    /// The median of each part; counts are those of the last one.
    pub fn median(details: Vec<Detail>) -> Option<Detail> {
        let last = *details.last()?;
        let middle = |part: fn(&Detail) -> Option<Duration>| {
            let mut all: Vec<Duration> = details.iter().filter_map(part).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied()
        };
        let bytes = |part: fn(&Detail) -> Option<u64>| {
            let mut all: Vec<u64> = details.iter().filter_map(part).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied()
        };
        let peak_memory = details.iter().filter_map(|detail| detail.peak_memory).max();
        let (apply, render) = (middle(|detail| detail.apply), middle(|detail| detail.render));
        let (longest, pause) = (middle(|detail| detail.longest), middle(|detail| detail.pause));
        let (resident, kernel_memory) = (bytes(|detail| detail.resident), bytes(|detail| detail.kernel_memory));
        let detail = Detail { apply, render, longest, pause, peak_memory, resident, kernel_memory, ..last };
        (detail != Detail::default()).then_some(detail)
    }

    /// Saves it beside criterion's files.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, output: &Path, id: &Id) -> Result<()> {
        let path = path(output, id);
        let text = serde_json::to_string_pretty(self).context("write details as JSON")?;
        let directory = path.parent().unwrap_or(output);
        let written = fs::create_dir_all(directory).and_then(|()| fs::write(&path, text));
        written.with_context(|| format!("write {}", path.display()))
    }
}

fn path(output: &Path, id: &Id) -> std::path::PathBuf {
    output.join("details").join(&id.group).join(&id.series).join(format!("{}.json", id.value))
}

/// One measured point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// What it is.
    pub id: Id,
    /// Median time of one run, in nanoseconds.
    pub median: f64,
    /// The interval of confidence of it.
    pub between: (f64, f64),
    /// What one run moves or does, where that is known.
    pub throughput: Option<Amount>,
    /// What else is known.
    pub detail: Detail,
    /// It is of this run and not of an earlier one.
    pub is_fresh: bool,
    /// The change against the baseline that this run was compared with: 0.1 is ten per cent slower.
    pub change: Option<f64>,
}

/// What one run moves or does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many times the thing that the group is named after.
    Elements(u64),
}

#[derive(Deserialize)]
struct SavedId {
    group_id: String,
    function_id: Option<String>,
    value_str: Option<String>,
    throughput: Option<Amount>,
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

/// Reads everything that criterion has saved under `output`; `began` tells this run's figures from earlier ones.
///
/// # Errors
/// When a file of criterion's cannot be read or is of another shape.
pub fn read(output: &Path, began: SystemTime) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for group in directories(&output.join("criterion")) {
        for series in directories(&group) {
            for value in directories(&series) {
                let new = value.join("new");
                if new.join("estimates.json").is_file() {
                    points.push(point(output, &value, began)?);
                }
            }
        }
    }
    Ok(points)
}

fn directories(path: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

fn json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
}

fn point(output: &Path, directory: &Path, began: SystemTime) -> Result<Point> {
    let is_fresh = |path: &Path| {
        let modified = fs::metadata(path).and_then(|data| data.modified());
        modified.is_ok_and(|modified| modified >= began)
    };
    let estimates_file = directory.join("new/estimates.json");
    let saved: SavedId = json(&directory.join("new/benchmark.json"))?;
    let estimates: Estimates = json(&estimates_file)?;
    let id = Id::new(saved.group_id, saved.function_id.unwrap_or_default(), saved.value_str.unwrap_or_default());
    let detail_file = path(output, &id);
    let change_file = directory.join("change/estimates.json");
    let change: Option<Estimates> = if is_fresh(&change_file) { Some(json(&change_file)?) } else { None };
    let Estimate { point_estimate, confidence_interval } = estimates.median;
    Ok(Point {
        detail: if detail_file.is_file() { json(&detail_file)? } else { Detail::default() },
        is_fresh: is_fresh(&estimates_file),
        median: point_estimate,
        between: (confidence_interval.lower_bound, confidence_interval.upper_bound),
        throughput: saved.throughput,
        change: change.map(|change| change.median.point_estimate),
        id,
    })
}

/// A table: columns are values such as cluster sizes, rows are series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Heads of the columns after the first, in order of size.
    pub columns: Vec<String>,
    /// Rows in the order of `order`, then by name.
    pub rows: Vec<(String, Vec<Option<Point>>)>,
}

impl Table {
    /// The points of one group; rows are in the order in which their names stand in `order`.
    pub fn of(points: &[Point], group: &str, order: &[String]) -> Table {
        let mut columns: Vec<(Vec<u64>, String)> = Vec::new();
        let mut rows: BTreeMap<(usize, String), BTreeMap<String, Point>> = BTreeMap::new();
        for point in points.iter().filter(|point| point.id.group == group) {
            let column = (numbers(&point.id.value), point.id.value.clone());
            if !columns.contains(&column) {
                columns.push(column);
            }
            let place = order.iter().position(|name| *name == point.id.series).unwrap_or(order.len());
            let row = rows.entry((place, point.id.series.clone())).or_default();
            row.insert(point.id.value.clone(), point.clone());
        }
        columns.sort();
        let columns: Vec<String> = columns.into_iter().map(|(_, column)| column).collect();
        let cells = |row: BTreeMap<String, Point>| columns.iter().map(|column| row.get(column).cloned()).collect();
        Table { rows: rows.into_iter().map(|((_, name), row)| (name, cells(row))).collect(), columns }
    }
}

/// The numbers in a value: endpoints, which stand last, decide before services.
pub fn numbers(value: &str) -> Vec<u64> {
    value.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).rev().collect()
}

/// Three significant digits, in the unit that reads best.
pub fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        v if v >= 1e11 => format!("{:.0} s", v / 1e9),
        v if v >= 1e10 => format!("{:.1} s", v / 1e9),
        v if v >= 1e9 => format!("{:.2} s", v / 1e9),
        v if v >= 1e8 => format!("{:.0} ms", v / 1e6),
        v if v >= 1e7 => format!("{:.1} ms", v / 1e6),
        v if v >= 1e6 => format!("{:.2} ms", v / 1e6),
        v if v >= 1e5 => format!("{:.0} µs", v / 1e3),
        v if v >= 1e4 => format!("{:.1} µs", v / 1e3),
        v => format!("{:.2} µs", v / 1e3),
    }
}

/// What is moved or done in a second.
pub fn rate(amount: Amount, nanoseconds: f64) -> String {
    let per_second = |amount: u64| amount as f64 / (nanoseconds / 1e9);
    match amount {
        Amount::Bytes(bytes) => format!("{:.2} Gbit/s", per_second(bytes) * 8.0 / 1e9),
        Amount::Elements(count) => match per_second(count) {
            v if v >= 1e6 => format!("{:.2} million/s", v / 1e6),
            v if v >= 1e4 => format!("{:.1} thousand/s", v / 1e3),
            v if v >= 1e3 => format!("{:.2} thousand/s", v / 1e3),
            v => format!("{v:.0}/s"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_comes_from_criterions_files_and_knows_its_age() {
        let output = std::env::temp_dir().join(format!("svcbench-{}", std::process::id()));
        let place = output.join("criterion/first-sync/nft/100x10");
        for part in ["new", "change"] {
            fs::create_dir_all(place.join(part)).unwrap();
            let value = if part == "new" { 2.5e6 } else { -0.25 };
            let interval = r#"{"confidence_level":0.95,"lower_bound":2e6,"upper_bound":3e6}"#;
            let text = format!(r#"{{"median":{{"point_estimate":{value},"confidence_interval":{interval}}}}}"#);
            fs::write(place.join(part).join("estimates.json"), text).unwrap();
        }
        let saved = r#"{"group_id":"first-sync","function_id":"nft","value_str":"100x10","throughput":{"Bytes":8}}"#;
        fs::write(place.join("new/benchmark.json"), saved).unwrap();
        let id = Id::new("first-sync", "nft", "100x10");
        let detail = Detail { apply: Some(Duration::from_millis(2)), ..Detail::default() };
        detail.write(&output, &id).unwrap();
        let points = read(&output, SystemTime::UNIX_EPOCH).unwrap();
        let expected = Point {
            id,
            median: 2.5e6,
            between: (2e6, 3e6),
            throughput: Some(Amount::Bytes(8)),
            detail,
            is_fresh: true,
            change: Some(-0.25),
        };
        assert_eq!(points, std::slice::from_ref(&expected));
        let later = SystemTime::now() + Duration::from_secs(60);
        let earlier = Point { is_fresh: false, change: None, ..expected };
        assert_eq!(read(&output, later).unwrap(), [earlier]);
        fs::write(place.join("new/estimates.json"), "{}").unwrap();
        assert!(read(&output, later).unwrap_err().to_string().contains("estimates.json"));
        fs::remove_dir_all(output).unwrap();
    }

    #[test]
    fn columns_are_in_order_of_size_and_rows_as_they_are_told() {
        let point = |series: &str, value: &str| Point {
            id: Id::new("g", series, value),
            median: 1.0,
            between: (1.0, 1.0),
            throughput: None,
            detail: Detail::default(),
            is_fresh: true,
            change: None,
        };
        let points = [point("b", "1000x10"), point("a", "100x10"), point("b", "100x100"), point("z", "100x10")];
        let table = Table::of(&points, "g", &["b".to_owned(), "a".to_owned()]);
        assert_eq!(table.columns, ["100x10", "1000x10", "100x100"]);
        assert_eq!(table.rows.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b", "a", "z"]);
        assert_eq!(table.rows[1].1.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([1234.0, 81e3, 12.34e6, 3.31e9].map(duration), ["1.23 µs", "81.0 µs", "12.3 ms", "3.31 s"]);
        assert_eq!(rate(Amount::Bytes(1_000_000_000), 1e9), "8.00 Gbit/s");
        assert_eq!(rate(Amount::Elements(1), 1e5), "10.0 thousand/s");
    }
}
