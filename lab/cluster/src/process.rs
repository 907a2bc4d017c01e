//! Programs on nodes.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use svclab_netns::namespace::Namespace;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::ClusterError;
pub use super::kill_on_child::KillOnChild;
pub use super::output::OutputReader;
use super::output::{self, OutputLog, collect};
pub use super::tree_usage::TreeUsage;

const LOOK: Duration = Duration::from_millis(1);

/// A program to start on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSpec {
    /// Path, or name to look up in `PATH`.
    pub program: PathBuf,
    /// Arguments without the program's name.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    /// Exit status.
    Exited(i32),
    /// Terminating signal.
    Signaled(i32),
}

impl From<ExitStatus> for ProcessEnd {
    fn from(status: ExitStatus) -> ProcessEnd {
        match status.code() {
            Some(code) => ProcessEnd::Exited(code),
            None => ProcessEnd::Signaled(status.signal().unwrap_or(0)),
        }
    }
}

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// How the command ended.
    pub ended: ProcessEnd,
    /// Standard output with invalid UTF-8 replaced.
    pub stdout: String,
    /// Standard error with invalid UTF-8 replaced.
    pub stderr: String,
}

impl ExecOutput {
    /// Whether the exit status was 0.
    pub fn success(&self) -> bool {
        self.ended == ProcessEnd::Exited(0)
    }
}

/// Resource usage of a process (proc(5), `stat` and `status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessUsage {
    /// CPU time with ended children, in kernel ticks (usually 10 ms).
    pub processor: Duration,
    /// Peak resident memory without children, in bytes.
    pub peak_memory: u64,
}

/// A program on a node; dropping the handle kills the process group.
pub struct ProcessHandle {
    name: String,
    pid: Pid,
    ended: watch::Receiver<Option<ProcessEnd>>,
    log: Arc<OutputLog>,
    reader: watch::Sender<OutputReader>,
}

impl ProcessHandle {
    pub(super) async fn start(namespace: &Namespace, process: &ProcessSpec) -> Result<ProcessHandle, ClusterError> {
        let name = format!("{} on {}", process.program.display(), namespace.name());
        let mut command = Command::new(&process.program);
        command
            .args(&process.args)
            .envs(process.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let child = namespace.spawn(command).await.map_err(ClusterError::kernel(format!("starting {name}")))?;
        let pid = child.id().ok_or_else(|| ClusterError::invalid(&name, "ended immediately"))?;
        let log = OutputLog::new();
        let (end, ended) = watch::channel(None);
        let (reader, read) = watch::channel(OutputReader::Reads);
        tokio::spawn(supervise(child, Arc::clone(&log), end, read));
        Ok(ProcessHandle { name, pid: Pid::from_raw(pid as i32), ended, log, reader })
    }

    /// Returns the process id in the sandbox.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Sends a signal unless the process has ended.
    pub fn signal(&self, signal: i32) -> Result<(), ClusterError> {
        let attempted = || format!("sending signal {signal} to {}", self.name);
        let signal = Signal::try_from(signal).map_err(|e| ClusterError::io(attempted())(e.into()))?;
        if self.is_alive() {
            match kill(self.pid, signal) {
                // The process has ended, but its output is not read yet.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(ClusterError::io(attempted())(error.into())),
            }
        }
        Ok(())
    }

    /// Sets the reader's state. `Stalls` also fills the pipes, so that the next write blocks; `IsGone` is final.
    pub fn set_reader(&self, reader: OutputReader) -> Result<(), ClusterError> {
        self.reader.send_replace(reader);
        match reader {
            OutputReader::Stalls => {
                output::fill(self.pid).map_err(ClusterError::io(format!("filling the log of {}", self.name)))
            }
            OutputReader::Reads | OutputReader::IsGone => Ok(()),
        }
    }

    /// Sends SIGSTOP and waits until all threads have stopped.
    ///
    /// # Errors
    /// A thread does not stop within `patience`.
    pub async fn stop(&self, patience: Duration) -> Result<(), ClusterError> {
        self.signal(Signal::SIGSTOP as i32)?;
        let deadline = Instant::now() + patience;
        while !self.has_stopped() {
            if Instant::now() > deadline {
                let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
                return Err(ClusterError::io(format!("stopping {}", self.name))(late));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn has_stopped(&self) -> bool {
        let tasks = procfs::process::Process::new(self.pid()).and_then(|process| process.tasks());
        // A thread that ends while this waits counts as stopped.
        let stopped = |task: procfs::process::Task| task.stat().is_ok_and(|stat| matches!(stat.state, 'T' | 'Z' | 'X'));
        tasks.map_or(true, |tasks| tasks.flatten().all(stopped))
    }

    /// Kills the process group during a matching child: `after` its start, or at its end if that is earlier.
    pub fn kill_on_child(&self, child: &'static str, after: Duration, limit: Duration) -> KillOnChild {
        KillOnChild::start(self.pid, child, after, limit)
    }

    /// Returns the usage so far; `None` after the end.
    pub fn usage(&self) -> Option<ProcessUsage> {
        let process = procfs::process::Process::new(self.pid()).ok()?;
        let (stat, status) = (process.stat().ok()?, process.status().ok()?);
        let children = u64::try_from(stat.cutime + stat.cstime).unwrap_or_default();
        let ticks = stat.utime + stat.stime + children;
        Some(ProcessUsage {
            processor: Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64),
            peak_memory: status.vmhwm? * 1024,
        })
    }

    /// Returns the usage of the process and its descendants; `None` after the end.
    pub fn tree_usage(&self) -> Option<TreeUsage> {
        TreeUsage::of(self.pid)
    }

    /// Whether the process runs.
    pub fn is_alive(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Waits for the end of process and output.
    pub async fn wait(&self, limit: Duration) -> Result<ProcessEnd, ClusterError> {
        let mut ended = self.ended.clone();
        let late = || ClusterError::TimedOut { waiting_for: format!("the end of {}", self.name), after: limit };
        match timeout(limit, ended.wait_for(Option::is_some)).await {
            Ok(Ok(end)) => end.ok_or_else(late),
            _ => Err(late()),
        }
    }

    /// Returns the last `lines` lines of output.
    pub fn log_tail(&self, lines: usize) -> String {
        let kept = self.log.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = kept.len().saturating_sub(lines);
        kept.iter().skip(skip).map(|line| format!("{line}\n")).collect()
    }

    /// Returns the number of lines so far, and the stored lines after the first `seen`.
    pub fn log_since(&self, seen: u64) -> (u64, Vec<String>) {
        let kept = self.log.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let all = *self.log.seen.borrow();
        let new = usize::try_from(all.saturating_sub(seen)).unwrap_or(usize::MAX).min(kept.len());
        (all, kept.iter().skip(kept.len() - new).cloned().collect())
    }

    /// Waits for a line that contains `text`; `false` at the process's end or after `limit`.
    pub async fn wait_for_log(&self, text: &str, limit: Duration) -> bool {
        let mut seen = self.log.seen.subscribe();
        let mut ended = self.ended.clone();
        let wait = async {
            while !self.log.contains(text) {
                tokio::select! {
                    changed = seen.changed() => if changed.is_err() { return false },
                    _ = ended.wait_for(Option::is_some) => return self.log.contains(text),
                }
            }
            true
        };
        timeout(limit, wait).await.unwrap_or(false)
    }
}

impl Drop for ProcessHandle {
    fn drop(&mut self) {
        if self.is_alive() {
            let _ = killpg(self.pid, Signal::SIGKILL);
        }
    }
}

async fn supervise(
    mut child: Child,
    log: Arc<OutputLog>,
    end: watch::Sender<Option<ProcessEnd>>,
    reader: watch::Receiver<OutputReader>,
) {
    let readers: Vec<JoinHandle<()>> = [
        child.stdout.take().map(|out| tokio::spawn(collect(out, Arc::clone(&log), reader.clone()))),
        child.stderr.take().map(|err| tokio::spawn(collect(err, Arc::clone(&log), reader.clone()))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let status = child.wait().await;
    for reader in readers {
        // Limits the wait: a grandchild may keep the pipe open.
        let _ = timeout(Duration::from_millis(500), reader).await;
    }
    end.send_replace(Some(status.map_or(ProcessEnd::Signaled(0), ProcessEnd::from)));
}

/// Runs a command; kills its process group after `limit`.
pub(super) async fn exec(namespace: &Namespace, argv: &[String], limit: Duration) -> Result<ExecOutput, ClusterError> {
    let place = namespace.name();
    let (program, args) = argv.split_first().ok_or_else(|| ClusterError::invalid(place, "no command given"))?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let attempted = format!("running {program} in {place}");
    let child = namespace.spawn(command).await.map_err(ClusterError::kernel(&attempted))?;
    let group = child.id().map(|id| Pid::from_raw(id as i32));
    match timeout(limit, child.wait_with_output()).await {
        Ok(output) => {
            let output = output.map_err(ClusterError::io(&attempted))?;
            Ok(ExecOutput {
                ended: output.status.into(),
                stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            })
        }
        Err(_) => {
            if let Some(group) = group {
                let _ = killpg(group, Signal::SIGKILL);
            }
            Err(ClusterError::TimedOut { waiting_for: attempted, after: limit })
        }
    }
}
