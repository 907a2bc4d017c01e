//! What each part of the program may know of the others: arrows lead from what is higher to what is lower.

use std::path::{Path, PathBuf};

/// Parts, and those that they must not know, tests aside.
const FORBIDDEN: [(&str, &[&str]); 10] = [
    ("model", &["config", "source", "state", "plan", "ruleset", "kernel", "mode", "relay", "metrics", "daemon", "cli"]),
    ("port_range", &["source", "state", "plan", "kernel", "mode", "metrics", "daemon", "cli"]),
    ("config", &["source", "state", "plan", "ruleset", "kernel", "mode", "relay", "metrics", "daemon", "cli"]),
    ("ruleset", &["config", "source", "state", "plan", "kernel", "mode", "relay", "metrics", "daemon", "cli"]),
    (
        "nftables",
        &["config", "source", "state", "plan", "ruleset", "kernel", "mode", "relay", "metrics", "daemon", "cli"],
    ),
    ("kernel", &["source", "state", "plan", "mode", "relay", "metrics", "health", "daemon", "cli"]),
    ("state", &["kernel", "plan", "mode", "relay", "metrics", "health", "daemon", "cli"]),
    ("plan", &["kernel", "ruleset", "mode", "relay", "metrics", "health", "daemon", "cli"]),
    ("relay", &["kernel", "ruleset", "mode", "metrics", "health", "daemon", "cli"]),
    ("mode", &["metrics", "health", "daemon", "cli"]),
];

/// Where the files of a part are.
fn files(of: &str) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut folders) = (Vec::new(), vec![source.join(of)]);
    found.extend(Some(source.join(format!("{of}.rs"))).filter(|file| file.exists()));
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

/// `file:line: module` of each arrow from a text to one of these modules. Unit tests stand at the end of a file.
fn arrows(file: &str, text: &str, forbidden: &[&str]) -> Vec<String> {
    let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).enumerate();
    let code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
    let used = |line: &str, module: &str| {
        let path = format!("crate::{module}");
        let mut ends = line.match_indices(&path).filter_map(|(at, _)| line.get(at + path.len()..));
        ends.any(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_'))
    };
    code.flat_map(|(number, line)| {
        let found = forbidden.iter().filter(move |module| used(line, module));
        found.map(move |module| format!("{file}:{}: {module}", number + 1))
    })
    .collect()
}

#[test]
fn no_arrow_leads_upward() {
    let mut found = Vec::new();
    for (part, forbidden) in FORBIDDEN {
        let files = files(part);
        assert!(!files.is_empty(), "{part} is not there");
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            found.extend(arrows(&file.to_string_lossy(), &text, forbidden));
        }
    }
    assert!(found.is_empty(), "these know what is above them:\n{}", found.join("\n"));
}

#[test]
fn an_arrow_is_found_wherever_it_stands() {
    let text = "use crate::mode::Mode;\nfn f() -> crate::metrics::Samples {}\nuse crate::model::Family;\n// crate::mode\n\
                #[cfg(test)]\nuse crate::mode::x;\n";
    assert_eq!(arrows("a.rs", text, &["mode", "metrics"]), ["a.rs:1: mode", "a.rs:2: metrics"]);
}
