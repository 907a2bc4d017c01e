//! Expressions of Prometheus: which metrics they read.

use std::collections::{BTreeMap, BTreeSet};

/// Returns a query's names other than functions, labels and keywords.
pub fn read_by(expression: &str) -> BTreeSet<String> {
    let mut plain = String::new();
    // Skips matchers and ranges.
    let mut depth = 0;
    for character in expression.chars() {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ if depth == 0 => plain.push(character),
            _ => {}
        }
    }
    for grouping in ["by", "without", "on", "ignoring"] {
        while let Some(at) = plain.find(&format!("{grouping} (")) {
            let end = plain[at..].find(')').unwrap() + at;
            plain.replace_range(at..=end, " ");
        }
    }
    let words = plain.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let words = words.filter(|word| word.starts_with(|first: char| first.is_ascii_alphabetic()));
    const LANGUAGE: [&str; 13] = [
        "topk",
        "sum",
        "max",
        "min",
        "count",
        "rate",
        "increase",
        "histogram_quantile",
        "or",
        "and",
        "unless",
        "time",
        "vector",
    ];
    words.filter(|word| !LANGUAGE.contains(word)).map(str::to_owned).collect()
}

pub fn check(expression: &str, served: &BTreeMap<String, bool>) {
    let read = read_by(expression);
    assert!(!read.is_empty(), "{expression}");
    for name in read {
        // Prometheus adds `up`.
        let known = name == "up"
            || served.get(&name) == Some(&false)
            || ["_bucket", "_count", "_sum"]
                .iter()
                .any(|suffix| name.strip_suffix(suffix).is_some_and(|name| served.get(name) == Some(&true)));
        assert!(known, "{name}, in {expression}");
    }
}
