use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, PoisonError};

use nix::libc;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::watch;

const KEPT_LINES: usize = 10_000;

/// The state of the reader of a program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputReader {
    /// Reads every line.
    Reads,
    /// Reads nothing for now.
    Stalls,
    /// Has closed its end of the pipe.
    IsGone,
}

pub(super) struct OutputLog {
    pub(super) lines: Mutex<VecDeque<String>>,
    pub(super) seen: watch::Sender<u64>,
}

impl OutputLog {
    pub(super) fn new() -> Arc<OutputLog> {
        Arc::new(OutputLog { lines: Mutex::default(), seen: watch::channel(0).0 })
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
        // Counts under the lock, so that lines and counter agree.
        self.seen.send_modify(|seen| *seen += 1);
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().any(|line| line.contains(text))
    }
}

/// Reads lines as `reader` allows.
pub(super) async fn collect(
    output: impl AsyncRead + Unpin,
    log: Arc<OutputLog>,
    mut reader: watch::Receiver<OutputReader>,
) {
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        let now = *reader.borrow_and_update();
        tokio::select! {
            biased;
            changed = reader.changed() => if changed.is_err() { return },
            // `line` keeps a partial line across interruptions.
            read = lines.read_until(b'\n', &mut line), if now == OutputReader::Reads => {
                if !matches!(read, Ok(1..)) {
                    return;
                }
                // `fill` writes empty lines.
                if line != b"\n" {
                    log.push(String::from_utf8_lossy(&line).trim_end().to_owned());
                }
                line.clear();
            }
            () = std::future::ready(()), if now == OutputReader::IsGone => return,
        }
    }
}

/// Fills both pipes, so that the next write blocks.
pub(super) fn fill(pid: Pid) -> io::Result<()> {
    for output in [1, 2] {
        let mut options = std::fs::OpenOptions::new();
        let mut pipe = options.write(true).custom_flags(libc::O_NONBLOCK).open(format!("/proc/{pid}/fd/{output}"))?;
        loop {
            match pipe.write(b"\n") {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
