//! wip
use super::*;
/// wip
pub fn render(_t: &Trace) -> String { String::new() }
/// wip
pub fn render_tree(_t: &Trace) -> String { String::new() }
