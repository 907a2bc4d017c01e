//! The matrix as GitHub Markdown: a summary, a table, and the reasons that its cells link to.

use std::fmt::Write as _;

use super::{Cell, Matrix};
use crate::report::markdown::plain;

pub fn markdown(matrix: &Matrix) -> String {
    let mut reasons: Vec<(&'static str, &str)> = Vec::new();
    let shard = matrix.shard.as_ref().map(|shard| format!(", shard {}", shard.shard())).unwrap_or_default();
    let mut text = format!("# {}{shard}\n\n", matrix.proxy);
    summary(matrix, &mut text);
    let heads: String = matrix.columns.iter().map(|column| format!(" {} {} |", column.folder, column.mode)).collect();
    let _ = writeln!(text, "\n| scenario |{heads}\n|---|{}", "---|".repeat(matrix.columns.len()));
    let mut scenarios: Vec<&str> = matrix.cells.keys().map(|(scenario, _)| scenario.as_str()).collect();
    scenarios.dedup();
    for scenario in scenarios {
        let _ = write!(text, "| {scenario} |");
        for place in 0..matrix.columns.len() {
            let cell = matrix.cells.get(&(scenario.to_owned(), place));
            let _ = write!(text, " {} |", cell.map_or_else(String::new, |cell| shown(cell, &mut reasons)));
        }
        text.push('\n');
    }
    if !reasons.is_empty() {
        text.push_str("\n## Reasons\n\n");
    }
    for (number, (word, reason)) in (1..).zip(&reasons) {
        let _ = writeln!(text, "{number}. <a id=\"reason-{number}\"></a>{word}: {}", linked(&plain(reason)));
    }
    text
}

fn summary(matrix: &Matrix, text: &mut String) {
    text.push_str(
        "| version | mode | passed | failed | excused | not judged | not run |\n|---|---|---|---|---|---|---|\n",
    );
    for (place, column) in matrix.columns.iter().enumerate() {
        let count = |word| matrix.cells.iter().filter(|((_, at), cell)| *at == place && cell.word() == word).count();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            column.version.as_ref().unwrap_or(&column.folder),
            column.mode,
            count("passed"),
            count("failed"),
            count("excused"),
            count("notJudged"),
            count("notRun"),
        );
    }
}

/// Returns a cell's text, with a link to its reason.
fn shown<'a>(cell: &'a Cell, reasons: &mut Vec<(&'static str, &'a str)>) -> String {
    let word = match cell {
        Cell::Passed => return "✓".to_owned(),
        Cell::Failed(_) => "**failed**",
        Cell::Excused(_) => "excused",
        Cell::NotJudged(_) => "not judged",
        Cell::NotRun(_) => "not run",
    };
    let entry = (word, cell.reason().unwrap_or_default());
    let number = reasons.iter().position(|other| *other == entry).unwrap_or_else(|| {
        reasons.push(entry);
        reasons.len() - 1
    }) + 1;
    format!("{word} [{number}](#reason-{number})")
}

fn linked(text: &str) -> String {
    let mut linked = text.to_owned();
    let mut found = links(text);
    found.sort();
    found.dedup();
    for (name, url) in found {
        linked = linked.replace(&name, &format!("[{name}]({url})"));
    }
    linked
}

/// Finds issues and enhancements (`kubernetes#129128`, `KEP-6032`) and their addresses.
pub(super) fn links(text: &str) -> Vec<(String, String)> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '#' || c == '-'));
    let link = |word: &str| {
        let (url, number) = if let Some(number) = word.strip_prefix("kubernetes#") {
            ("https://github.com/kubernetes/kubernetes/issues/", number)
        } else {
            ("https://github.com/kubernetes/enhancements/issues/", word.strip_prefix("KEP-")?)
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| (word.to_owned(), format!("{url}{number}")))
    };
    words.filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn each_cell_without_a_tick_links_to_its_reason() {
        let text = markdown(&sample());
        for line in [
            "# kube-proxy",
            "| 1.30.5 | iptables | 1 | 0 | 1 | 1 | 0 |",
            "| 1.36.2 | nftables | 1 | 1 | 0 | 0 | 0 |",
            "| scenario | v1.30.5 iptables | v1.36.2 iptables | v1.36.2 nftables |",
            "| flush | excused [1](#reason-1) | excused [1](#reason-1) |  |",
            "| hairpin | ✓ | ✓ | ✓ |",
            "| udp | not judged [2](#reason-2) |  | **failed** [3](#reason-3) |",
            "1. <a id=\"reason-1\"></a>excused: it looks rarely \
             ([kubernetes#129128](https://github.com/kubernetes/kubernetes/issues/129128))",
            "3. <a id=\"reason-3\"></a>**failed**: it answers \\| at once: expected: web; seen: nobody",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }

    #[test]
    fn issues_and_enhancements_are_links() {
        let names = |text: &str| links(text).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("(KEP-6032, alpha in 1.37), kubernetes#49881."), ["KEP-6032", "kubernetes#49881"]);
        assert!(names("kubernetes# KEP- KEP-x kubernetes#12a #3").is_empty());
        assert!(plain(&"x".repeat(1000)).ends_with("x…"));
    }
}
