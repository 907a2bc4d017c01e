//! Scenarios that are run together, on one kernel and in one mode, by an svclab process of their own: a run on the host's
//! kernel becomes another process anyway, inside its sandbox. Several of these make one report.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::inside::{JSON, JUNIT};
use super::run::{RunArgs, write};
use super::{Exit, UNABLE};
use crate::report::junit;
use crate::scenario::Scenario;
use crate::scenario::file::Mode;

/// Such scenarios.
pub(super) struct Part<'a> {
    /// As `--kernel` has it.
    pub(super) kernel: String,
    pub(super) deterministic: bool,
    pub(super) mode: Mode,
    pub(super) scenarios: Vec<&'a Scenario>,
}

/// What came of one.
pub(super) struct Done {
    pub(super) status: u8,
    /// Its report's scenarios.
    pub(super) scenarios: Vec<Value>,
}

/// The reports of several, as they come.
pub(super) struct Reports {
    folder: tempfile::TempDir,
    scenarios: Vec<Value>,
    suites: Vec<String>,
}

impl Reports {
    /// None yet.
    pub(super) fn new() -> Result<Reports, Exit> {
        let folder = tempfile::tempdir().map_err(|error| Exit::unable(format!("cannot make a folder: {error}")))?;
        Ok(Reports { folder, scenarios: Vec::new(), suites: Vec::new() })
    }

    /// Runs a part, and takes its reports in.
    pub(super) fn run(&mut self, args: &RunArgs, part: &Part<'_>) -> Result<Done, Exit> {
        for name in [JSON, JUNIT] {
            // Of the part before; there is none at first.
            let _ = std::fs::remove_file(self.folder.path().join(name));
        }
        let unable = |error: std::io::Error| Exit::unable(format!("cannot run svclab for {}: {error}", part.kernel));
        let status = command(args, part, self.folder.path()).map_err(unable)?.status().map_err(unable)?;
        let status = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(UNABLE);
        let read = |name| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        self.suites.push(read(JUNIT));
        let report: Value = serde_json::from_str(&read(JSON)).unwrap_or_default();
        let scenarios = report["scenarios"].as_array().cloned().unwrap_or_default();
        // Where the proxy is excused from all of a part nothing was judged there; whether anything was, the caller counts.
        let excused = report["scenarios"].as_array().is_some_and(Vec::is_empty);
        let status = if excused && status == UNABLE { 0 } else { status };
        self.scenarios.extend(scenarios.iter().cloned());
        Ok(Done { status, scenarios })
    }

    /// Takes in a document of JUnit's.
    pub(super) fn suite(&mut self, document: String) {
        self.suites.push(document);
    }

    /// Writes one report of all, with what else is to be told.
    pub(super) fn write(&self, args: &RunArgs, passed: bool, more: Value) -> Result<(), Exit> {
        let mut report = serde_json::json!({ "passed": passed, "scenarios": self.scenarios });
        if let (Some(report), Value::Object(more)) = (report.as_object_mut(), more) {
            report.extend(more);
        }
        write(args.json.as_deref(), &format!("{report:#}\n"))?;
        write(args.junit.as_deref(), &junit::join(&self.suites))
    }
}

fn command(args: &RunArgs, part: &Part<'_>, folder: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    crate::netns::die_with_this_process(&mut command);
    command.stdin(Stdio::null());
    command.arg("run").args(part.scenarios.iter().map(|scenario| &scenario.path));
    command.args(args.flags_for(&[part.mode], &part.scenarios));
    command.args(["--kernel", &part.kernel, "--seed", &args.lab.seed.to_string()]);
    command.arg("--json").arg(folder.join(JSON)).arg("--junit").arg(folder.join(JUNIT));
    if part.deterministic {
        command.arg("--deterministic");
    }
    let paths = [("--proxy", &args.lab.proxy), ("--cache-dir", &args.vm.cache_dir)];
    for (flag, path) in paths.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
        command.arg(flag).arg(path);
    }
    if let Some(seconds) = args.vm.deadline {
        command.args(["--deadline", &seconds.to_string()]);
    }
    Ok(command)
}
