//! Runs of `svclab run` as a user would start them, and what their JSON report says.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// How long one scenario may take.
const LIMIT: Duration = Duration::from_secs(100);

/// A finished run.
pub struct Run {
    /// Its exit status.
    pub status: i32,
    /// What it told people.
    pub told: String,
    /// The report's only scenario; null, if there is none.
    pub scenario: Value,
}

impl Run {
    /// `name: expected; seen: …` of every broken step.
    pub fn broken(&self) -> Vec<(String, String)> {
        let steps = self.scenario["steps"].as_array().cloned().unwrap_or_default();
        let broken = steps.iter().filter(|step| !["passed", "skipped"].contains(&step["verdict"].as_str().unwrap()));
        broken
            .map(|step| {
                let found = step["broken"].as_array().unwrap().iter();
                let words = found.map(|pair| format!("expected: {}; seen: {}", pair["expected"], pair["seen"]));
                (step["name"].as_str().unwrap().to_owned(), words.collect::<Vec<_>>().join("\n"))
            })
            .collect()
    }
}

/// The folder of scenarios.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios").canonicalize().unwrap()
}

/// Every scenario by its name in the folder, such as `seeds/web`, sorted.
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

/// Those that the host's kernel can run; the tests of the microVM run the others.
pub fn names_for_host() -> Vec<String> {
    names().into_iter().filter(|name| !name.starts_with("microvm/")).collect()
}

/// Runs scenario `name` with further flags.
pub fn run(name: &str, flags: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.arg("run").arg(folder().join(name).with_extension("yaml")).args(["--json", "-"]).args(flags);
    command.stdin(Stdio::null());
    let output = super::finish(command, LIMIT);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    Run {
        status: output.status.code().unwrap_or(-1),
        told: String::from_utf8_lossy(&output.stderr).into_owned(),
        scenario: report["scenarios"][0].clone(),
    }
}
