//! The sandbox: new user, mount, network, PID, IPC and UTS namespaces around the whole run.

/// Private tmpfs directory inside the sandbox for working files; gone with the last process.
pub const WORK_DIR: &str = "/run/svclab";

/// Why this machine cannot run the lab: one sentence that says what is missing and how to get it (exit status 3).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SandboxError(pub String);

/// Proof that the process is inside the sandbox.
#[derive(Debug)]
pub struct Inside {
    _private: (),
}

/// Puts the rest of the program into the sandbox: call first thing in `main`, before any thread exists.
///
/// The outer process starts the same program again inside, forwards SIGINT, SIGTERM and SIGHUP to it, and exits with its
/// status: there this function does not return. It returns in the inner process, which is PID 1 of its own PID
/// namespace, so that whatever kills it or the outer process ends everything that was started.
pub fn enter() -> Result<Inside, SandboxError> {
    todo!()
}
