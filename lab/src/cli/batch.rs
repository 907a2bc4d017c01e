//! Scenarios that are run together, on one kernel and in one mode, by an svclab process of their own: a run on the host's
//! kernel becomes another process anyway, inside its sandbox. Several of these make one report.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::output::{JSON, JUNIT, write, write_value};
use super::run_args::RunArgs;
use super::speak::Stream;
use super::{Exit, UNABLE, stop};
use crate::mode::Mode;
use crate::report::{json, junit};
use crate::scenario::Scenario;

/// Such scenarios.
pub(super) struct Batch<'a> {
    /// As `--kernel` has it.
    pub(super) kernel: String,
    pub(super) deterministic: bool,
    pub(super) mode: Mode,
    pub(super) scenarios: Vec<&'a Scenario>,
}

/// What came of one.
pub(super) struct Done {
    /// As a run of this batch alone would end, but 0 where there was just nothing to judge: other batches may judge.
    pub(super) status: u8,
    /// Its report's scenarios.
    pub(super) scenarios: Vec<Value>,
}

impl Done {
    /// `status` is that of the process; without a report there are no `scenarios`.
    fn new(status: u8, scenarios: Option<Vec<Value>>) -> Done {
        let able = |scenarios: &Vec<Value>| scenarios.iter().all(|scenario| scenario["unable"] == false);
        let unjudged = scenarios.as_ref().is_some_and(|scenarios| able(scenarios) && judged(scenarios) == 0);
        let status = if unjudged && status == UNABLE { 0 } else { status };
        Done { status, scenarios: scenarios.unwrap_or_default() }
    }

    /// How many of the scenarios judged anything.
    pub(super) fn judged(&self) -> usize {
        judged(&self.scenarios)
    }
}

fn judged(scenarios: &[Value]) -> usize {
    scenarios.iter().filter(|scenario| scenario["judged"] == true).count()
}

/// The reports of several, as they come.
pub(super) struct Reports {
    folder: tempfile::TempDir,
    scenarios: Vec<Value>,
    suites: Vec<String>,
    /// The worst status so far.
    pub(super) worst: u8,
    judged: usize,
}

impl Reports {
    /// None yet.
    pub(super) fn new() -> Result<Reports, Exit> {
        let folder = tempfile::tempdir().map_err(|error| Exit::unable(format!("cannot make a folder: {error}")))?;
        Ok(Reports { folder, scenarios: Vec::new(), suites: Vec::new(), worst: 0, judged: 0 })
    }

    /// Runs a batch, and takes its reports in.
    pub(super) fn run(&mut self, args: &RunArgs, batch: &Batch<'_>) -> Result<Done, Exit> {
        for name in [JSON, JUNIT] {
            // Of the batch before; there is none at first.
            let _ = std::fs::remove_file(self.folder.path().join(name));
        }
        let unable = |error: std::io::Error| Exit::unable(format!("cannot run svclab for {}: {error}", batch.kernel));
        let mut command = command(args, batch, self.folder.path()).map_err(unable)?;
        let status = stop::status(&mut command).map_err(unable)?;
        let status = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(UNABLE);
        let read = |name| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        self.suites.push(read(JUNIT));
        let report: Value = serde_json::from_str(&read(JSON)).unwrap_or_default();
        let done = Done::new(status, report["scenarios"].as_array().cloned());
        self.scenarios.extend(done.scenarios.iter().cloned());
        self.worst = self.worst.max(done.status);
        self.judged += done.judged();
        Ok(done)
    }

    /// Takes in a document of JUnit's.
    pub(super) fn suite(&mut self, document: String) {
        self.suites.push(document);
    }

    /// Writes one report of all, with `more` in its JSON; returns the status of the whole run.
    pub(super) fn finish(&self, args: &RunArgs, more: Value) -> Result<u8, Exit> {
        let stopped = stop::stop();
        let status = if self.worst == 0 && self.judged == 0 { UNABLE } else { self.worst };
        if status != self.worst && stopped.is_none() {
            args.stream().line("nothing was judged: no scenario could be run");
        }
        let mut report = json::document(status == 0, self.scenarios.clone());
        if let (Some(report), Value::Object(more)) = (report.as_object_mut(), more) {
            report.extend(more);
        }
        if let Some(stop) = stopped {
            json::interrupted(&mut report, stop.name());
        }
        write_value(args, &report)?;
        write(args.junit.as_deref(), &junit::join(&self.suites))?;
        stopped.map_or(Ok(status), |stop| Err(stop.exit()))
    }
}

fn command(args: &RunArgs, batch: &Batch<'_>, folder: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    svclab_netns::die_with_this_process(&mut command);
    command.stdin(Stdio::null());
    if args.stream() == Stream::Err {
        command.stdout(std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned()?);
    }
    command.arg("run").arg("--part").args(batch.scenarios.iter().map(|scenario| &scenario.path));
    command.args(args.flags_for(&[batch.mode], &batch.scenarios));
    command.args(["--kernel", &batch.kernel, "--seed", &args.lab.seed.to_string()]);
    command.arg("--json").arg(folder.join(JSON)).arg("--junit").arg(folder.join(JUNIT));
    // The folder of this part's report is a temporary one.
    match args.bundles() {
        Some(bundles) => command.arg("--bundle").arg(bundles),
        None => command.arg("--no-bundle"),
    };
    if batch.deterministic {
        command.arg("--deterministic");
    }
    let paths =
        [("--proxy", &args.lab.proxy), ("--cache-dir", &args.vm.cache_dir), ("--from-report", &args.from_report)];
    for (flag, path) in paths.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
        command.arg(flag).arg(path);
    }
    if let Some(seconds) = args.vm.deadline {
        command.args(["--deadline", &seconds.to_string()]);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_that_had_nothing_to_judge_does_not_fail_the_others() {
        let scenario = |judged: bool, unable: bool| json!({ "name": "a", "judged": judged, "unable": unable });
        let of = |status, scenarios: Option<Vec<Value>>| {
            let done = Done::new(status, scenarios);
            (done.status, done.judged())
        };
        assert_eq!(of(UNABLE, Some(vec![])), (0, 0), "the proxy is excused");
        assert_eq!(of(UNABLE, Some(vec![scenario(false, false)])), (0, 0), "its steps are not for this mode");
        assert_eq!(of(UNABLE, Some(vec![scenario(false, true)])), (UNABLE, 0), "the lab could not be built");
        assert_eq!(of(UNABLE, None), (UNABLE, 0), "svclab itself could not run");
        assert_eq!(of(0, Some(vec![scenario(true, false), scenario(false, false)])), (0, 1));
    }
}
