//! Programs on nodes: started, watched, ended.

use std::path::PathBuf;
use std::time::Duration;

use super::ClusterError;

/// A program to start on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSpec {
    /// Path, or name to look up in `PATH`.
    pub program: PathBuf,
    /// Arguments without the program's name.
    pub args: Vec<String>,
    /// Environment variables on top of the lab's own.
    pub env: Vec<(String, String)>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

/// A command's end and output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// How it ended.
    pub ended: Ended,
    /// Standard output, bytes that are not UTF-8 replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
}

/// A running (or ended) program on a node. Dropping the handle kills it.
pub struct ProcessHandle {}

impl ProcessHandle {
    /// Its process id as the sandbox sees it.
    pub fn pid(&self) -> i32 {
        todo!()
    }

    /// Sends a signal (for example 15 or 9); nothing happens when it has ended.
    pub fn signal(&self, signal: i32) -> Result<(), ClusterError> {
        todo!()
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        todo!()
    }

    /// Waits for the end.
    pub async fn wait(&self, timeout: Duration) -> Result<Ended, ClusterError> {
        todo!()
    }

    /// The last `lines` lines of standard output and error, in the order they came.
    pub fn log_tail(&self, lines: usize) -> String {
        todo!()
    }

    /// Waits until a line of output contains `text`; false when the program ended or the time was over before.
    pub async fn wait_for_log(&self, text: &str, timeout: Duration) -> bool {
        todo!()
    }
}
