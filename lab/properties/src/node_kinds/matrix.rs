//! The table of kinds and modes in `docs/audit.md`. Tests of each mode prove its cells.

use std::fmt::Write as _;

use svclab_oracle::Mode;

use super::ALL;

/// Returns the table in Markdown.
pub fn table() -> String {
    let columns = |of: &dyn Fn(Mode) -> String| Mode::ALL.map(|mode| format!(" {} |", of(mode))).concat();
    let mut text =
        format!("| node |{}\n|---|{}\n", columns(&|mode| mode.name().to_owned()), "---|".repeat(Mode::ALL.len()));
    for kind in ALL {
        let cell = |mode| if kind.modes.contains(&mode) { "quiet, found" } else { "–" };
        let _ = writeln!(text, "| {} |{}", kind.name, columns(&|mode| cell(mode).to_owned()));
    }
    text
}
