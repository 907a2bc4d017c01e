//! What was measured: medians as criterion wrote them, and the table of them.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// One measured point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// What was measured, e.g. `apply-full`: criterion's group.
    pub group: String,
    /// How, e.g. `legacy`: criterion's function.
    pub series: String,
    /// Services in the cluster.
    pub services: u32,
    /// Median time of one run, in milliseconds.
    pub median_ms: f64,
}

/// Reads the median of one benchmark from criterion's output directory.
pub fn read_median_ms(output: &Path, group: &str, series: &str, services: u32) -> Result<f64> {
    let path = output.join(group).join(series).join(services.to_string()).join("new/estimates.json");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let estimates: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
    let nanoseconds = estimates["median"]["point_estimate"].as_f64();
    nanoseconds.map(|ns| ns / 1e6).with_context(|| format!("no median.point_estimate in {}", path.display()))
}

/// A Markdown table: a row for each size, a column for each group and series, in the order given; `—` is a point
/// that was not measured.
pub fn table(points: &[Point], rules: &[(u32, usize)]) -> String {
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for point in points {
        let column = (point.group.as_str(), point.series.as_str());
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let mut text = String::from("| services | rules |");
    for (group, series) in &columns {
        let _ = write!(text, " {group} {series} |");
    }
    text.push_str("\n|---:|---:|");
    text.push_str(&"---:|".repeat(columns.len()));
    text.push('\n');
    for (services, rules) in rules {
        let _ = write!(text, "| {services} | {rules} |");
        for (group, series) in &columns {
            let point =
                points.iter().find(|p| (p.group.as_str(), p.series.as_str(), p.services) == (group, series, *services));
            let _ = write!(text, " {} |", point.map_or_else(|| "—".to_owned(), |p| milliseconds(p.median_ms)));
        }
        text.push('\n');
    }
    text
}

/// Three significant digits, in the unit that reads best.
pub fn milliseconds(value: f64) -> String {
    match value {
        v if v >= 100_000.0 => format!("{:.0} s", v / 1000.0),
        v if v >= 10_000.0 => format!("{:.1} s", v / 1000.0),
        v if v >= 1000.0 => format!("{:.2} s", v / 1000.0),
        v if v >= 100.0 => format!("{v:.0} ms"),
        v if v >= 10.0 => format!("{v:.1} ms"),
        v if v >= 1.0 => format!("{v:.2} ms"),
        v => format!("{:.0} µs", v * 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(group: &str, series: &str, services: u32, median_ms: f64) -> Point {
        Point { group: group.into(), series: series.into(), services, median_ms }
    }

    #[test]
    fn points_that_were_not_measured_are_dashes() {
        let points =
            [point("full", "nft", 10, 12.34), point("full", "legacy", 10, 0.5), point("full", "legacy", 100, 1234.0)];
        let expected = "| services | rules | full nft | full legacy |\n\
                        |---:|---:|---:|---:|\n\
                        | 10 | 320 | 12.3 ms | 500 µs |\n\
                        | 100 | 3200 | — | 1.23 s |\n";
        assert_eq!(table(&points, &[(10, 320), (100, 3200)]), expected);
    }

    #[test]
    fn a_median_comes_from_criterions_file() {
        let directory = std::env::temp_dir().join(format!("svcbench-{}", std::process::id()));
        let place = directory.join("full/nft/10/new");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("estimates.json"), r#"{"median":{"point_estimate":2500000.0}}"#).unwrap();
        assert_eq!(read_median_ms(&directory, "full", "nft", 10).unwrap(), 2.5);
        assert!(read_median_ms(&directory, "full", "nft", 100).is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
