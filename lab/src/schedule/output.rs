//! Writes reports and decides the exit status.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use super::args::RunArgs;
use super::signals::Stop;
use crate::console::{progress, unless_unread};
use crate::exit::{Exit, FAILED, UNABLE};
use crate::report::{RunRecord, annotations, html, junit, markdown};

/// GitHub sets it to `true` in a step of a workflow.
pub(super) const IN_WORKFLOW: &str = "GITHUB_ACTIONS";

pub(super) fn finish(args: &RunArgs, run: RunRecord, stopped: Option<Stop>) -> Result<u8, Exit> {
    // Other shards judge more.
    let is_judged = args.share.is_some() || run.scenarios.iter().any(|one| one.judged);
    let status = if run.scenarios.iter().any(|one| one.unable) || !is_judged {
        UNABLE
    } else if run.passed {
        0
    } else {
        FAILED
    };
    write_run(args, run, status, stopped)
}

/// Writes every requested report; returns `status` unless a signal ended the run.
pub(super) fn write_run(args: &RunArgs, mut run: RunRecord, status: u8, stopped: Option<Stop>) -> Result<u8, Exit> {
    if let Some(stop) = stopped {
        run.interrupt(stop.name());
    }
    run.shard.clone_from(&args.share);
    write_json(args.json.as_deref(), &run)?;
    if args.html.is_some() {
        write(args.html.as_deref(), &html::render(&run))?;
    }
    write(args.junit.as_deref(), &junit::render(&run))?;
    write(args.markdown.as_deref(), &markdown::render(&run))?;
    if std::env::var_os(IN_WORKFLOW).is_some_and(|value| value == "true") {
        let workspace = std::env::var_os("GITHUB_WORKSPACE");
        let lines = annotations::render(&run, workspace.as_ref().map(Path::new));
        lines.iter().for_each(|line| args.stream().line(line));
    }
    stopped.map_or(Ok(status), |stop| Err(stop.exit()))
}

/// Tries to open each file, and leaves it as it was: a run of an hour must not end with "permission denied".
pub(crate) fn open<'a>(paths: impl IntoIterator<Item = Option<&'a Path>>) -> Result<(), Exit> {
    for path in paths.into_iter().flatten().filter(|path| path.as_os_str() != "-") {
        let existed = path.exists();
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.and_then(|_| if existed { Ok(()) } else { fs::remove_file(path) }).map_err(|e| unwritten(path, &e))?;
    }
    Ok(())
}

/// Writes JSON with sorted keys.
pub(crate) fn write_json(path: Option<&Path>, value: &impl serde::Serialize) -> Result<(), Exit> {
    let value: Value = serde_json::to_value(value).map_err(|error| Exit::unable(error.to_string()))?;
    write(path, &format!("{value:#}\n"))
}

pub(crate) fn write(path: Option<&Path>, text: &str) -> Result<(), Exit> {
    let Some(path) = path else { return Ok(()) };
    let written = match path.as_os_str() == "-" {
        true => unless_unread(progress::without(|| std::io::stdout().lock().write_all(text.as_bytes()))),
        false => fs::write(path, text),
    };
    written.map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &io::Error) -> Exit {
    Exit::usage(format!("cannot write the report {}: {error}", path.display()))
}
