//! Writes `sync.md` and the self-contained page `index.html`.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::measure::Bench;
use crate::results::{Point, Table, duration, rate, read};
use crate::sections::{Section, all, floor_name, order};
use crate::subject::kernel::KernelRequests;

const EARLIER: &str = "†";

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>svcproxy: benchmarks</title>
<style>
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 66em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: .7em 0 } td, th { padding: .15em .7em; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child { text-align: left } h2 { margin-top: 2em } small { color: #666 } svg { max-width: 100%; height: auto }
</style>
<h1>svcproxy: benchmarks</h1>
";

const NOTE: &str = "Medians. Columns are services x endpoints of each. A row that ends in -floor is the same objects sent by the shortest \
program that can; (× 1.2) is the ratio to it. Read figures as ratios: they are of the machine that ran them, and of what else it \
did.";

/// Writes both files from all results of criterion, and prints the first file.
pub fn write(bench: &Bench, left_out: &[String]) -> Result<()> {
    let output = bench.output();
    let points = read(output, bench.began)?;
    let text = markdown(&points, left_out);
    let page = html(&points, left_out)?;
    let (table_file, page_file) = (output.join("sync.md"), output.join("index.html"));
    put(&table_file, &text)?;
    put(&page_file, &page)?;
    let text = format!("{text}\n{}\n{}\n", table_file.display(), page_file.display());
    std::io::stdout().write_all(text.as_bytes()).context("print the tables")
}

fn put(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn markdown(points: &[Point], left_out: &[String]) -> String {
    let mut text = format!("{NOTE} {EARLIER}: of an earlier run.\n");
    for Section { group, about } in all(points) {
        let table = Table::of(points, &group, &order());
        let _ = write!(text, "\n{group}: {about}\n\n| |");
        table.columns.iter().for_each(|column| {
            let _ = write!(text, " {column} |");
        });
        let _ = writeln!(text, "\n|---|{}", "---:|".repeat(table.columns.len()));
        for (name, cells) in &table.rows {
            let shown = cells.iter().enumerate().map(|(column, point)| cell(&table, name, column, point.as_ref()));
            let _ = writeln!(text, "| {name} | {} |", shown.collect::<Vec<_>>().join(" | "));
        }
    }
    for one in left_out {
        let _ = write!(text, "\nLeft out: {one}.");
    }
    text.push('\n');
    text
}

fn html(points: &[Point], left_out: &[String]) -> Result<String> {
    let mut page = format!("{HEAD}<p>{NOTE} {EARLIER}: of an earlier run.</p>\n");
    for Section { group, about } in all(points) {
        let table = Table::of(points, &group, &order());
        let _ = writeln!(page, "<h2>{}</h2>\n<p>{}</p>", escape(&group), escape(&about));
        rows(&mut page, &table, |name, column, point| escape(&cell(&table, name, column, point)));
        let has_details =
            |(_, cells): &(String, Vec<Option<Point>>)| cells.iter().flatten().any(|p| details(p).is_some());
        if table.rows.iter().any(has_details) {
            let with = table.rows.iter().filter(|row| has_details(row)).cloned().collect();
            let with = Table { columns: table.columns.clone(), rows: with };
            rows(&mut page, &with, |_, _, point| {
                point.and_then(details).map_or_else(String::new, |text| format!("<small>{}</small>", escape(&text)))
            });
        }
        page.push_str(&crate::plot::svg(&group, &table)?);
    }
    if !left_out.is_empty() {
        page.push_str("<h2>Left out</h2>\n<ul>\n");
        left_out.iter().for_each(|one| {
            let _ = writeln!(page, "<li>{}</li>", escape(one));
        });
        page.push_str("</ul>\n");
    }
    page.push_str("</html>\n");
    Ok(page)
}

fn rows(page: &mut String, table: &Table, show: impl Fn(&str, usize, Option<&Point>) -> String) {
    page.push_str("<table><tr><th></th>");
    table.columns.iter().for_each(|column| {
        let _ = write!(page, "<th>{}</th>", escape(column));
    });
    page.push_str("</tr>\n");
    for (name, cells) in &table.rows {
        let _ = write!(page, "<tr><td>{}</td>", escape(name));
        for (column, point) in cells.iter().enumerate() {
            let _ = write!(page, "<td>{}</td>", show(name, column, point.as_ref()));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

fn cell(table: &Table, name: &str, column: usize, point: Option<&Point>) -> String {
    let Some(point) = point else { return "-".to_owned() };
    let mut text = point.throughput.map_or_else(|| duration(point.median), |amount| rate(amount, point.median));
    let floor = table.rows.iter().find(|(other, _)| *other == floor_name(name));
    if let Some(floor) = floor.and_then(|(_, cells)| cells.get(column)?.as_ref()) {
        let _ = write!(text, " (× {:.2})", point.median / floor.median);
    }
    if let Some(peak) = point.detail.peak_memory {
        let _ = write!(text, ", {:.0} MB", peak as f64 / 1e6);
    }
    if let Some(resident) = point.detail.resident {
        let _ = write!(text, " then {:.0} MB", resident as f64 / 1e6);
    }
    if let Some(kernel) = point.detail.kernel_memory {
        let _ = write!(text, ", kernel {:.0} MB", kernel as f64 / 1e6);
    }
    if let Some(change) = point.change {
        let _ = write!(text, " {:+.0} %", change * 100.0);
    }
    if !point.is_fresh {
        text.push_str(EARLIER);
    }
    text
}

fn details(point: &Point) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(apply) = point.detail.apply {
        let share = |part: Duration| -> f64 { (part.as_nanos() as f64 / point.median).min(1.0) * 100.0 };
        let mut text = format!("{:.0} % in the kernel and commands", share(apply));
        if let Some(render) = point.detail.render {
            let rest = (100.0 - share(apply) - share(render)).max(0.0);
            let _ = write!(text, ", {:.0} % rendering, {rest:.0} % state, plan and handing over", share(render));
        }
        parts.push(text);
    }
    if let Some(longest) = point.detail.longest {
        parts.push(format!("{} for the longest transaction", duration(longest.as_nanos() as f64)));
    }
    if let Some(pause) = point.detail.pause {
        parts.push(format!("other tasks waited {} at most", duration(pause.as_nanos() as f64)));
    }
    if let Some(KernelRequests { dumps, restores, messages, elements, bytes, rules, chains, removed_chains, .. }) =
        point.detail.asked
    {
        let what = if elements > 0 {
            format!("{elements} elements, {rules} rules, {messages} messages")
        } else if messages > 0 {
            format!("{messages} messages")
        } else {
            format!("{rules} rules, {chains} chains, {removed_chains} removed")
        };
        parts.push(format!("{dumps} reads of the tables, {restores} transactions: {what}, {bytes} bytes"));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Detail;
    use crate::results::PointId;

    fn point(series: &str, value: &str, median: f64) -> Point {
        let (detail, between) = (Detail::default(), (median, median));
        let id = PointId::new("first-sync", series, value);
        Point { id, median, between, throughput: None, detail, is_fresh: true, change: None }
    }

    #[test]
    fn every_result_is_on_the_page_with_its_ratio_to_the_floor() {
        let mut old = point("iptables-nft", "100x10", 4e6);
        (old.is_fresh, old.change) = (false, Some(0.5));
        let points = [
            point("iptables-nft", "10x10", 3e6),
            point("iptables-nft-floor", "10x10", 2e6),
            old,
            point("own-work", "10x10", 5e5),
        ];
        let text = markdown(&points, &["this with that: too slow".to_owned()]);
        let expected = "| | 10x10 | 100x10 |\n\
                        |---|---:|---:|\n\
                        | own-work | 500 µs | - |\n\
                        | iptables-nft | 3.00 ms (× 1.50) | 4.00 ms +50 %† |\n\
                        | iptables-nft-floor | 2.00 ms | - |\n\
                        \nLeft out: this with that: too slow.\n";
        assert!(text.ends_with(expected), "{text}");
        let page = html(&points, &[]).unwrap();
        assert!(page.contains("<td>3.00 ms (× 1.50)</td>") && page.contains("<svg"), "{page}");
        assert!(!page.contains("src=") && !page.contains("href="), "the page needs nothing else");
    }
}
