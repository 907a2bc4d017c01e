use std::fmt::Write as _;
use std::time::Duration;

use super::{Difference, Excused, Pair, ProxyComparison, differences};
use crate::report::{Figures, ScenarioReport};

pub fn render(comparison: &ProxyComparison) -> String {
    let [a, b] = &comparison.names;
    let scenarios = comparison.pairs.iter().map(|pair| title(pair).chars().count());
    let column =
        scenarios.max().unwrap_or_default().max(LABELS.iter().map(|label| label.len()).max().unwrap_or_default());
    let width = a.chars().count().max(b.chars().count()).max(9);
    let mut text = format!("{:column$}  {a:width$}  {b}\n", "");
    let mut different = 0;
    for pair in &comparison.pairs {
        let _ = writeln!(text, "{:column$}  {:width$}  {}", title(pair), verdict(&pair.a), verdict(&pair.b));
        let found = differences(pair);
        different += usize::from(!found.is_empty());
        for difference in &found {
            text.push_str(&explain(difference, &pair.a.path, &comparison.names));
        }
    }
    for Excused { scenario, mode, proxy, reason } in &comparison.excused {
        let scenario = format!("{scenario} ({mode})");
        let _ = writeln!(text, "{scenario:column$}  not compared: {proxy} is excused, {reason}");
    }
    let _ = writeln!(text, "\n{different} of {} scenarios differ", comparison.pairs.len());
    let [of_a, of_b] = comparison.figures();
    if of_a != Figures::default() || of_b != Figures::default() {
        text.push('\n');
        for (label, [a, b]) in LABELS.iter().zip(rows(&of_a, &of_b)) {
            let _ = writeln!(text, "{label:column$}  {a:width$}  {b}");
        }
    }
    text
}

/// The most characters of an outcome in the text. The JSON is not cut.
const WIDTH: usize = 200;

const LABELS: [&str; 8] = [
    "a change to the first right answer: median",
    "  95 of 100 within",
    "  all within",
    "rules at the end of all scenarios",
    "chains, likewise",
    "most memory of a proxy",
    "processor time of all proxies",
    "  of one that is idle",
];

fn rows(a: &Figures, b: &Figures) -> [[String; 2]; 8] {
    let both = |show: &dyn Fn(&Figures) -> String| [show(a), show(b)];
    let within = |percent| {
        both(&move |figures: &Figures| figures.applied_within(percent).map_or_else(|| "-".to_owned(), duration))
    };
    [
        within(50),
        within(95),
        within(100),
        both(&|figures| figures.rules.to_string()),
        both(&|figures| figures.chains.to_string()),
        both(&|figures| format!("{:.1} MB", figures.peak_memory as f64 / 1e6)),
        both(&|figures| duration(figures.processor)),
        both(&|figures| {
            figures.idle.share().map_or_else(|| "-".to_owned(), |share| format!("{:.3} % of a core", share * 100.0))
        }),
    ]
}

fn title(pair: &Pair) -> String {
    format!("{} ({})", pair.a.name, pair.a.mode)
}

fn verdict(report: &ScenarioReport) -> &'static str {
    if report.passed() { "passed" } else { "FAILED" }
}

fn explain(difference: &Difference, path: &str, [a, b]: &[String; 2]) -> String {
    let width = a.chars().count().max(b.chars().count());
    let place = if difference.line == 0 {
        "the start".to_owned()
    } else {
        format!("{path}:{}: {}", difference.line, difference.step)
    };
    let word = difference.what.word();
    let (seen_a, seen_b) = (one_line(&difference.a), one_line(&difference.b));
    format!("  {word} differs at {place}\n    {a:width$}  {seen_a}\n    {b:width$}  {seen_b}\n")
}

fn one_line(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let mut short: String = first.chars().take(WIDTH).collect();
    if short.len() < text.trim_end().len() {
        short.push_str(" …");
    }
    short
}

fn duration(took: Duration) -> String {
    if took < Duration::from_secs(1) {
        format!("{} ms", took.as_millis())
    } else {
        format!("{:.2} s", took.as_secs_f64())
    }
}
