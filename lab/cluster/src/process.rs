//! Programs in the cluster: started, watched, ended.

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

/// Between two looks at whether a process has stopped.
const LOOK: Duration = Duration::from_millis(1);

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
pub enum ProcessEnd {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
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

/// A command's end and output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// How it ended.
    pub ended: ProcessEnd,
    /// Standard output, bytes that are not UTF-8 replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
}

impl ExecOutput {
    /// Whether it exited with status 0.
    pub fn success(&self) -> bool {
        self.ended == ProcessEnd::Exited(0)
    }
}

/// What a process has used (proc(5), `stat` and `status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessUsage {
    /// Processor time, its ended children's included, to the kernel's tick of usually 10 ms.
    pub processor: Duration,
    /// The most memory that it ever had resident, in bytes, without its children's.
    pub peak_memory: u64,
}

/// A running (or ended) program on a node. Dropping the handle kills it and its children.
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
        let pid = child.id().ok_or_else(|| ClusterError::invalid(&name, "ended before it was seen"))?;
        let log = OutputLog::new();
        let (end, ended) = watch::channel(None);
        let (reader, read) = watch::channel(OutputReader::Reads);
        tokio::spawn(mind(child, Arc::clone(&log), end, read));
        Ok(ProcessHandle { name, pid: Pid::from_raw(pid as i32), ended, log, reader })
    }

    /// Its process id as the sandbox sees it.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Sends a signal (for example 15 or 9) to the process; nothing happens when it has ended.
    pub fn signal(&self, signal: i32) -> Result<(), ClusterError> {
        let attempted = || format!("sending signal {signal} to {}", self.name);
        let signal = Signal::try_from(signal).map_err(|e| ClusterError::io(attempted())(e.into()))?;
        if self.is_alive() {
            match kill(self.pid, signal) {
                // It has ended, and the last of its output is still being read.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(ClusterError::io(attempted())(error.into())),
            }
        }
        Ok(())
    }

    /// Has the reader of its output behave so from now on. One that stalls leaves no room for another line; one that is gone never comes back.
    ///
    /// # Errors
    /// When its pipes cannot be filled.
    pub fn set_reader(&self, reader: OutputReader) -> Result<(), ClusterError> {
        self.reader.send_replace(reader);
        match reader {
            OutputReader::Stalls => {
                output::fill(self.pid).map_err(ClusterError::io(format!("filling the log of {}", self.name)))
            }
            OutputReader::Reads | OutputReader::IsGone => Ok(()),
        }
    }

    /// Stops it (SIGSTOP) and waits until it has: a thread at work on another processor goes on for a moment.
    ///
    /// # Errors
    /// When it cannot be sent a signal, or a thread does not stop within `patience`.
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

    /// Whether none of its threads runs, or it has ended.
    fn has_stopped(&self) -> bool {
        let tasks = procfs::process::Process::new(self.pid()).and_then(|process| process.tasks());
        // One that ends meanwhile is not there at the next look.
        let stopped = |task: procfs::process::Task| task.stat().is_ok_and(|stat| matches!(stat.state, 'T' | 'Z' | 'X'));
        tasks.map_or(true, |tasks| tasks.flatten().all(stopped))
    }

    /// Kills it and its children once it waits for a child whose command line contains `child`: `after` that has run so
    /// long or, if that is earlier, at its end. Gives up at the limit.
    pub fn kill_on_child(&self, child: &'static str, after: Duration, limit: Duration) -> KillOnChild {
        KillOnChild::lay(self.pid, child, after, limit)
    }

    /// What it has used so far; `None` when it has ended.
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

    /// What it and its children use at this moment; `None` when it has ended.
    pub fn work(&self) -> Option<TreeUsage> {
        TreeUsage::of(self.pid)
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Waits for the end and for the last of its output.
    pub async fn wait(&self, limit: Duration) -> Result<ProcessEnd, ClusterError> {
        let mut ended = self.ended.clone();
        let late = || ClusterError::TimedOut { waiting_for: format!("the end of {}", self.name), after: limit };
        match timeout(limit, ended.wait_for(Option::is_some)).await {
            Ok(Ok(end)) => end.ok_or_else(late),
            _ => Err(late()),
        }
    }

    /// The last `lines` lines of standard output and error, in the order they came.
    pub fn log_tail(&self, lines: usize) -> String {
        let kept = self.log.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = kept.len().saturating_sub(lines);
        kept.iter().skip(skip).map(|line| format!("{line}\n")).collect()
    }

    /// The number of lines of output so far, and those after the first `seen` of them, as far as they are still kept.
    pub fn log_since(&self, seen: u64) -> (u64, Vec<String>) {
        let kept = self.log.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let all = *self.log.seen.borrow();
        let new = usize::try_from(all.saturating_sub(seen)).unwrap_or(usize::MAX).min(kept.len());
        (all, kept.iter().skip(kept.len() - new).cloned().collect())
    }

    /// Waits until a line of output contains `text`; false when the program ended or the time was over before.
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

/// Collects a child's output and its end.
async fn mind(
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
        // A grandchild may hold the pipe open for ever.
        let _ = timeout(Duration::from_millis(500), reader).await;
    }
    end.send_replace(Some(status.map_or(ProcessEnd::Signaled(0), ProcessEnd::from)));
}

/// Runs a command to its end; at the time limit its process group is killed.
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
