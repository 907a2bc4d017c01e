//! Entering a running lab from another terminal.

use std::process::ExitStatus;

use super::NetnsError;

/// A place of a running lab, seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Process id of the lab, in the caller's numbering.
    pub pid: i32,
    /// The place, as [`crate::traffic::probe::Place`] prints it, for example `node/a` or `pod/default/web`.
    pub place: String,
    /// Thread that lives in the place's namespaces, in the caller's numbering.
    pub tid: i32,
}

/// All places of all running labs that this user may enter.
pub fn running() -> Vec<Running> {
    todo!()
}

/// Runs a command in a running lab's place with this terminal. Call before any thread exists.
pub fn exec(place: &Running, argv: &[String]) -> Result<ExitStatus, NetnsError> {
    todo!()
}
