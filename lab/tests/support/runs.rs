//! Runs of `svclab run`, and their JSON reports.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// After failures a proxy waits up to a minute before it asks the API server again.
const LIMIT: Duration = Duration::from_secs(250);
/// The limit of several scenarios in one microVM on a busy machine.
const MICROVM: Duration = Duration::from_secs(1200);

pub struct Run {
    pub status: i32,
    pub stderr: String,
    /// The report's only scenario, or null.
    pub scenario: Value,
}

impl Run {
    /// Returns the name of every failed step, with `expected: …; seen: …`.
    pub fn broken(&self) -> Vec<(String, String)> {
        let steps = self.scenario["steps"].as_array().cloned().unwrap_or_default();
        let broken = steps.iter().filter(|step| !["passed", "skipped"].contains(&step["verdict"].as_str().unwrap()));
        broken
            .map(|step| {
                let found = step["mismatches"].as_array().unwrap().iter();
                let words = found.map(|pair| format!("expected: {}; seen: {}", pair["expected"], pair["seen"]));
                (step["name"].as_str().unwrap().to_owned(), words.collect::<Vec<_>>().join("\n"))
            })
            .collect()
    }
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios").canonicalize().unwrap()
}

/// Returns the scenarios' names in the folder, such as `seeds/web`, sorted.
pub fn names() -> Vec<String> {
    fn files(directory: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }
    let root = folder();
    let yaml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "yaml");
    let name = |path: PathBuf| path.strip_prefix(&root).unwrap().with_extension("").to_str().unwrap().to_owned();
    let mut names: Vec<String> = files(&root).into_iter().filter(yaml).map(name).collect();
    names.sort();
    names
}

pub fn names_for_host() -> Vec<String> {
    names().into_iter().filter(|name| !is_for_microvm(name)).collect()
}

pub fn names_for_microvm() -> Vec<String> {
    names().into_iter().filter(|name| is_for_microvm(name)).collect()
}

pub fn is_for_microvm(name: &str) -> bool {
    name.starts_with("microvm/")
}

pub fn run(name: &str, flags: &[&str]) -> Run {
    let (status, stderr, mut scenarios) = run_all(&[name], flags, LIMIT);
    Run { status, stderr, scenario: scenarios.pop().unwrap_or_default() }
}

/// Runs scenarios in one boot of a deterministic microVM; one result per scenario, with common status and standard
/// error.
pub fn run_in_microvm(mode: &str, names: &[&str], flags: &[&str]) -> Vec<Run> {
    let flags = [&["--deterministic", "--keep-going", "--mode", mode], flags].concat();
    let (status, stderr, scenarios) = run_all(names, &flags, MICROVM);
    let by_path = |name: &&str| {
        let path = format!("{name}.yaml");
        let found = scenarios.iter().find(|one| one["path"].as_str().is_some_and(|text| text.ends_with(&path)));
        Run { status, stderr: stderr.clone(), scenario: found.cloned().unwrap_or_default() }
    };
    names.iter().map(by_path).collect()
}

fn run_all(names: &[&str], flags: &[&str], limit: Duration) -> (i32, String, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.arg("run").args(names.iter().map(|name| folder().join(name).with_extension("yaml")));
    command.args(["--json", "-"]).args(flags).stdin(Stdio::null());
    let output = super::finish(command, limit);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let scenarios = report["scenarios"].as_array().cloned().unwrap_or_default();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned(), scenarios)
}
