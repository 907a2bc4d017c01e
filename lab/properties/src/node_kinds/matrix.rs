//! The table of kinds and modes in `docs/audit.md`.

use std::fmt::Write as _;

use svclab_oracle::Mode;

use super::{ALL, NodeKind, twins};

/// A cell: `quiet, found`, or what is wrong.
fn cell(kind: &NodeKind, mode: Mode) -> String {
    if !kind.modes.contains(&mode) {
        return "–".to_owned();
    }
    let quiet = match kind.audit(mode, None) {
        Ok(report) if report.is_clean() => "quiet".to_owned(),
        Ok(report) => format!("{} findings", report.wrong().count()),
        Err(error) => error,
    };
    let found = twins(mode).iter().all(|twin| kind.audit(mode, Some(twin)).is_ok_and(|report| !report.is_clean()));
    format!("{quiet}, {}", if found { "found" } else { "missed" })
}

/// Returns the table in Markdown.
#[must_use]
pub fn table() -> String {
    let mut text = "| node |".to_owned();
    Mode::ALL.iter().for_each(|mode| {
        let _ = write!(text, " {} |", mode.name());
    });
    text.push_str("\n|---|---|---|---|---|\n");
    for kind in ALL {
        let _ = write!(text, "| {} |", kind.name);
        for mode in Mode::ALL {
            let _ = write!(text, " {} |", cell(kind, mode));
        }
        text.push('\n');
    }
    text
}
