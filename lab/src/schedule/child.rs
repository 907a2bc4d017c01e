//! Runs in a child process of svclab.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use super::output::IN_WORKFLOW;
use super::{RunArgs, signals};
use crate::console::{FORCE_COLOUR, Stream};
use crate::exit::{Exit, status_of};
use crate::input::is_standard_input_kept;
use crate::report::RunRecord;

/// The hidden subcommand that takes a [`RunArgs`] as JSON.
pub(crate) const RUN_ORDER: &str = "run-order";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildOutput {
    /// Standard output goes to this stream of the parent.
    To(Stream),
    Discard,
}

/// Runs scenarios in a child process, passes signals on to it, and returns its exit status.
pub(crate) fn run(args: &RunArgs, output: ChildOutput, path: Option<OsString>) -> Result<u8, Exit> {
    let mut command = command(args)?;
    match output {
        ChildOutput::To(Stream::Out) => {}
        ChildOutput::To(Stream::Err) => drop(command.stdout(std::io::stderr())),
        ChildOutput::Discard => drop(command.stdout(Stdio::null()).stderr(Stdio::null())),
    }
    // The parent's report has the failures as well.
    command.env_remove(IN_WORKFLOW);
    command.envs(path.map(|path| ("PATH", path)));
    signals::status(&mut command).map(status_of).map_err(unable)
}

/// Like [`run`], and returns what the child writes to both streams.
pub(super) fn run_captured(args: &RunArgs) -> Result<(u8, String), Exit> {
    let (mut output, written) = std::io::pipe().map_err(unable)?;
    let mut command = command(args)?;
    command.stdout(written.try_clone().map_err(unable)?).stderr(written);
    if args.stream().colour() {
        command.env(FORCE_COLOUR, "1");
    }
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut bytes = Vec::new();
            output.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
        });
        let status = signals::status(&mut command).map(status_of);
        // The pipe ends when every copy of its other end is closed.
        drop(command);
        let text = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((status.map_err(unable)?, text.map_err(unable)?))
    })
}

fn command(args: &RunArgs) -> Result<Command, Exit> {
    let mut command = Command::new(std::env::current_exe().map_err(unable)?);
    svclab_netns::die_with_this_process(&mut command);
    let input = if is_standard_input_kept() { Stdio::inherit() } else { Stdio::null() };
    command.arg(RUN_ORDER).arg(order(args)?).stdin(input);
    Ok(command)
}

fn unable(error: std::io::Error) -> Exit {
    Exit::unable(format!("cannot run svclab: {error}"))
}

pub(crate) fn run_with_report(
    args: RunArgs,
    report: &Path,
    output: ChildOutput,
    path: Option<OsString>,
) -> Result<(u8, Option<RunRecord>), Exit> {
    // Removes a report from an earlier run.
    let _ = std::fs::remove_file(report);
    let status = run(&RunArgs { json: Some(report.to_owned()), ..args }, output, path)?;
    Ok((status, RunRecord::read(report).ok()))
}

pub(super) fn order(args: &RunArgs) -> Result<String, Exit> {
    serde_json::to_string(args).map_err(|error| Exit::unable(format!("cannot write the order for svclab: {error}")))
}
