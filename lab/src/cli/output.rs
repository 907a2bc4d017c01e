//! Reports, and how a run ends.

use std::io::Write;
use std::path::Path;

use serde_json::Value;

use super::run_args::RunArgs;
use super::speak::unless_unread;
use super::{Exit, FAILED, UNABLE, live};
use crate::report::{ScenarioReport, html};

/// What the reports of a part of a run are called where they are put together.
pub(super) const JSON: &str = "json";
pub(super) const JUNIT: &str = "junit";

/// The exit status of a run with these reports.
pub(super) fn status(reports: &[ScenarioReport]) -> u8 {
    if reports.iter().any(|report| report.unable) || !reports.iter().any(ScenarioReport::judged) {
        UNABLE
    } else if reports.iter().all(ScenarioReport::passed) {
        0
    } else {
        FAILED
    }
}

/// Writes a report, if one is wanted.
pub(super) fn write(path: Option<&Path>, text: &str) -> Result<(), Exit> {
    let Some(path) = path else { return Ok(()) };
    let written = match path.as_os_str() == "-" {
        true => unless_unread(live::aside(|| std::io::stdout().lock().write_all(text.as_bytes()))),
        false => std::fs::write(path, text),
    };
    written.map_err(|error| Exit::usage(format!("cannot write the report {}: {error}", path.display())))
}

/// Writes a run's report as JSON and as a page, where they are wanted.
pub(super) fn write_value(args: &RunArgs, report: &Value) -> Result<(), Exit> {
    write(args.json.as_deref(), &format!("{report:#}\n"))?;
    write_page(args, report)
}

/// Writes it as a page.
pub(super) fn write_page(args: &RunArgs, report: &Value) -> Result<(), Exit> {
    if args.html.is_some() { write(args.html.as_deref(), &html::render(report)) } else { Ok(()) }
}
