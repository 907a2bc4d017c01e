//! The results: criterion's files, and details that the benchmarks save beside them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::subject::kernel::KernelRequests;

/// Identifies a point by criterion's group, function and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointId {
    /// Such as `endpoint-replaced`.
    pub group: String,
    /// Such as `iptables-nft`.
    pub series: String,
    /// Such as `1000x10`.
    pub value: String,
}

impl fmt::Display for PointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.group, self.series, self.value)
    }
}

impl PointId {
    pub fn new(group: impl Into<String>, series: impl Into<String>, value: impl Into<String>) -> PointId {
        PointId { group: group.into(), series: series.into(), value: value.into() }
    }
}

/// Memory is in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    pub apply: Option<Duration>,
    #[serde(default)]
    pub render: Option<Duration>,
    /// The longest transaction in the kernel.
    #[serde(default)]
    pub longest: Option<Duration>,
    /// The longest pause of other tasks of the daemon's runtime.
    #[serde(default)]
    pub pause: Option<Duration>,
    pub asked: Option<KernelRequests>,
    pub peak_memory: Option<u64>,
    /// Settled resident memory.
    #[serde(default)]
    pub resident: Option<u64>,
    /// Growth of slabs, per-CPU memory and `vmalloc`.
    #[serde(default)]
    pub kernel_memory: Option<u64>,
}

impl Detail {
    /// Returns median times and sizes, the largest peak memory, and the last counts.
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

    pub fn write(&self, output: &Path, id: &PointId) -> Result<()> {
        let path = path(output, id);
        let text = serde_json::to_string_pretty(self).context("write details as JSON")?;
        let directory = path.parent().unwrap_or(output);
        let written = fs::create_dir_all(directory).and_then(|()| fs::write(&path, text));
        written.with_context(|| format!("write {}", path.display()))
    }
}

fn path(output: &Path, id: &PointId) -> std::path::PathBuf {
    output.join("details").join(&id.group).join(&id.series).join(format!("{}.json", id.value))
}

#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub id: PointId,
    /// Median time of one repetition, in nanoseconds.
    pub median: f64,
    pub between: (f64, f64),
    pub throughput: Option<Amount>,
    pub detail: Detail,
    pub is_fresh: bool,
    /// The change from the baseline: 0.1 is ten per cent slower.
    pub change: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Amount {
    Bytes(u64),
    /// The number of connections, requests or datagrams.
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

/// Reads the results. Those before `began` are of an earlier run.
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
    let id = PointId::new(saved.group_id, saved.function_id.unwrap_or_default(), saved.value_str.unwrap_or_default());
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

/// A column per cluster size, a row per series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<(String, Vec<Option<Point>>)>,
}

impl Table {
    /// Returns a group's table, with rows by `order`, then by name.
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

/// Returns a size's numbers, last first, to sort by endpoints before Services.
pub fn numbers(value: &str) -> Vec<u64> {
    value.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).rev().collect()
}

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
    fn a_point_is_read_from_criterions_files_with_its_age() {
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
        let id = PointId::new("first-sync", "nft", "100x10");
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
    fn columns_are_in_order_of_size_and_rows_in_the_given_order() {
        let point = |series: &str, value: &str| Point {
            id: PointId::new("g", series, value),
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
    fn times_and_rates_have_three_digits() {
        assert_eq!([1234.0, 81e3, 12.34e6, 3.31e9].map(duration), ["1.23 µs", "81.0 µs", "12.3 ms", "3.31 s"]);
        assert_eq!(rate(Amount::Bytes(1_000_000_000), 1e9), "8.00 Gbit/s");
        assert_eq!(rate(Amount::Elements(1), 1e5), "10.0 thousand/s");
    }
}
