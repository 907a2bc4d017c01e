//! A module uses only modules before it in [`ORDER`].

use std::path::{Path, PathBuf};

/// Modules, each after those that it uses.
const ORDER: [&str; 25] = [
    "model",
    "habits",
    "port_range",
    "small_file",
    "removed_objects",
    "config",
    "ruleset",
    "nftables",
    "events",
    "kernel",
    "state",
    "testing",
    "plan",
    "mutants",
    "relay",
    "mode",
    "http",
    "zpages",
    "metrics",
    "health",
    "source",
    "kubeproxy_config",
    "daemon",
    "cli",
    "fuzzing",
];

/// Modules that must not use certain modules before them.
const APART: [(&str, &[&str]); 7] = [
    ("model", &[]),
    ("kernel", &["events"]),
    ("state", &["config", "ruleset", "nftables", "events", "kernel"]),
    ("plan", &["ruleset", "nftables", "events", "kernel"]),
    ("relay", &["ruleset", "nftables", "events", "kernel", "state"]),
    ("source", &["ruleset", "nftables", "state", "plan", "relay", "mode", "http", "zpages", "health"]),
    ("kubeproxy_config", &["mode", "relay", "state", "metrics", "health", "source"]),
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files(of: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![source().join(of)]);
    found.extend(Some(source().join(format!("{of}.rs"))).filter(|file| file.exists()));
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

/// Returns `file:line: module` of each use, without unit tests at a file's end.
fn uses(file: &str, text: &str, forbidden: &[&str]) -> Vec<String> {
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
fn every_module_uses_only_modules_before_it() {
    let library = std::fs::read_to_string(source().join("lib.rs")).unwrap();
    let mut modules: Vec<&str> = library
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    let mut order = ORDER.to_vec();
    modules.sort_unstable();
    order.sort_unstable();
    assert_eq!(modules, order, "ORDER lists every module");
    let mut found = Vec::new();
    for (rank, module) in ORDER.into_iter().enumerate() {
        let apart = APART.iter().find(|(of, _)| *of == module).map_or(&[][..], |(_, apart)| apart);
        let forbidden = [&ORDER[rank + 1..], apart].concat();
        for file in files(module) {
            let text = std::fs::read_to_string(&file).unwrap();
            found.extend(uses(&file.to_string_lossy(), &text, &forbidden));
        }
    }
    assert!(found.is_empty(), "these use a module that they must not use:\n{}", found.join("\n"));
}

#[test]
fn a_use_is_found_in_code_and_not_in_comments_or_unit_tests() {
    let text = "use crate::mode::Mode;\nfn f() -> crate::metrics::Samples {}\nuse crate::model::Family;\n// crate::mode\n\
                #[cfg(test)]\nuse crate::mode::x;\n";
    assert_eq!(uses("a.rs", text, &["mode", "metrics"]), ["a.rs:1: mode", "a.rs:2: metrics"]);
}
