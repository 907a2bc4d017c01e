//! Generates the tables of keys in docs/scenarios.md from the types of scenario files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;

use super::file::{ClusterFile, EXPECT_KEYS, ProbeFile, STEP_KEYS, ScenarioFile};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn fields<T: JsonSchema>() -> String {
    let schema = schemars::schema_for!(T).to_value();
    let mut table = "| key | meaning |\n|---|---|\n".to_owned();
    for (key, field) in schema["properties"].as_object().unwrap() {
        let meaning = field["description"].as_str().unwrap_or_else(|| panic!("{key} has no documentation"));
        let _ = writeln!(table, "| `{key}` | {} |", meaning.replace('\n', " ").replace("(`|`)", "(`\\|`)"));
    }
    table
}

fn steps() -> String {
    let mut table = "| step | meaning |\n|---|---|\n".to_owned();
    for (form, meaning) in STEP_KEYS.iter().flat_map(|row| row.docs) {
        let _ = writeln!(table, "| {form} | {meaning} |");
    }
    table
}

fn expectations() -> String {
    let mut table = "| key | goes with | meaning |\n|---|---|---|\n".to_owned();
    for row in &EXPECT_KEYS {
        for (form, meaning) in row.docs {
            let _ = writeln!(table, "| {form} | {} | {meaning} |", row.goes_with().join(", "));
        }
    }
    table
}

fn with_tables(text: &str) -> String {
    let tables = [
        ("top level", fields::<ScenarioFile>()),
        ("cluster", fields::<ClusterFile>()),
        ("steps", steps()),
        ("probe", fields::<ProbeFile>()),
        ("expect", expectations()),
    ];
    tables.into_iter().fold(text.to_owned(), |text, (name, table)| {
        let (begin, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->\n");
        let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("no marker {begin:?}"));
        let (_, after) = rest.split_once(end).unwrap();
        format!("{before}{begin}\n{table}\n{end}{after}")
    })
}

#[test]
fn the_tables_of_keys_are_those_of_the_types() {
    let path = root().join("docs/scenarios.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = with_tables(&text);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == expected,
        "docs/scenarios.md is out of date: UPDATE_DOCS=1 cargo nextest run -p svclab reference"
    );
}

#[test]
fn the_files_of_how_to_add_a_scenario_key_exist() {
    let text = include_str!("file/step.rs");
    let list = text.lines().take_while(|line| line.starts_with("//!"));
    let quoted: Vec<&str> = list.flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    let files: Vec<&str> =
        quoted.into_iter().filter(|name| name.contains('/') && name.contains('.') && !name.contains(' ')).collect();
    assert!(files.len() > 4, "{files:?}");
    for file in files {
        assert!(root().join(file).is_file(), "{file} does not exist");
    }
}
