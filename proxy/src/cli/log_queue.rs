//! A bounded queue of log lines with its own writer thread: a stalled reader or a full disk blocks no other thread.
//! `tracing-appender` bounds lines, not bytes, and does not report dropped lines.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing::warn;

use crate::kernel::capabilities;
use crate::mutants;

const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug, Clone)]
pub(super) struct LogQueue {
    lines: Sender<Vec<u8>>,
    counts: Arc<QueueCounts>,
    limit: usize,
}

#[derive(Debug, Default)]
struct QueueCounts {
    /// Bytes not written yet.
    waiting: AtomicUsize,
    /// Lines lost to a full queue or a failed write.
    dropped: AtomicU64,
    closed: AtomicBool,
}

impl LogQueue {
    pub(super) fn to_stderr(limit: usize) -> LogQueue {
        let missing = |dropped| {
            warn!(dropped, "log lines are missing: their reader stalled, or writing them failed");
        };
        LogQueue::new(limit, write_stderr, missing)
    }

    /// When the queue drains, calls `missing` with the total of dropped lines if that has grown.
    fn new(
        limit: usize,
        write: impl Fn(&[u8]) -> io::Result<()> + Send + 'static,
        missing: impl Fn(u64) + Send + 'static,
    ) -> LogQueue {
        let (lines, received) = channel();
        let counts = Arc::new(QueueCounts::default());
        let counted = Arc::clone(&counts);
        // Without a thread the channel has no receiver, and `add` writes the line itself.
        let _ = Builder::new().name("log".to_owned()).spawn(move || {
            capabilities::keep_none();
            write_lines(&received, &counted, write, missing);
        });
        LogQueue { lines, counts, limit }
    }

    /// Never blocks if the log thread runs.
    pub(super) fn push(&self, line: Vec<u8>) {
        if mutants::skips(mutants::Duty::LogQueue) {
            let _ = write_stderr(&line);
        } else if !self.counts.closed.load(Ordering::SeqCst) {
            self.add(line);
        }
    }

    pub(super) fn push_last(&self, line: Vec<u8>) {
        self.counts.closed.store(true, Ordering::SeqCst);
        self.add(line);
    }

    fn add(&self, line: Vec<u8>) {
        let size = line.len();
        let waiting = self.counts.waiting.fetch_add(size, Ordering::SeqCst);
        // An empty queue accepts a line that is longer than the limit.
        let written = if waiting == 0 || waiting.saturating_add(size) <= self.limit {
            let Err(SendError(line)) = self.lines.send(line) else { return };
            write_stderr(&line).is_ok()
        } else {
            false
        };
        self.counts.waiting.fetch_sub(size, Ordering::SeqCst);
        self.counts.dropped.fetch_add(u64::from(!written), Ordering::SeqCst);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::SeqCst)
    }

    pub(super) fn flush(&self, patience: Duration) {
        let begun = Instant::now();
        while self.counts.waiting.load(Ordering::SeqCst) > 0 && begun.elapsed() < patience {
            thread::sleep(PAUSE);
        }
    }
}

impl io::Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_lines(
    lines: &Receiver<Vec<u8>>,
    counts: &QueueCounts,
    write: impl Fn(&[u8]) -> io::Result<()>,
    missing: impl Fn(u64),
) {
    let mut told = 0;
    for line in lines {
        let written = write(&line);
        let drained = counts.waiting.fetch_sub(line.len(), Ordering::SeqCst) == line.len();
        let dropped = counts.dropped.fetch_add(u64::from(written.is_err()), Ordering::SeqCst);
        if written.is_ok() && drained && dropped > told {
            told = dropped;
            missing(dropped);
        }
    }
}

/// Writes without the lock of [`io::Stderr`], which a thread that blocks in a write would hold.
fn write_stderr(mut rest: &[u8]) -> io::Result<()> {
    let stderr = io::stderr();
    while !rest.is_empty() {
        match nix::unistd::write(&stderr, rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            // Another process that shares the pipe or terminal may have made it non-blocking.
            Err(Errno::EAGAIN) => {
                let mut writable = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
                poll(&mut writable, PollTimeout::NONE)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::sync_channel;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_stalled_reader_loses_lines_which_are_reported_once() {
        let (permits, permitted) = sync_channel(100);
        let (writes, written) = channel();
        let (tell, told) = channel();
        let write = move |line: &[u8]| {
            writes.send(String::from_utf8_lossy(line).into_owned()).unwrap();
            permitted.recv().map_err(io::Error::other)
        };
        let queue = LogQueue::new(3, write, move |dropped| tell.send(dropped).unwrap());
        queue.push(b"a".to_vec());
        assert_eq!(written.recv_timeout(PATIENCE).unwrap(), "a");
        ["b", "c", "d", "e"].into_iter().for_each(|line| queue.push(line.into()));
        assert_eq!(queue.dropped(), 2, "the line that is being written counts");
        queue.flush(Duration::ZERO);
        (0..4).for_each(|_| permits.send(()).unwrap());
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), 2);
        queue.push(b"f".to_vec());
        queue.flush(PATIENCE);
        queue.push_last(b"g".to_vec());
        queue.push(b"h".to_vec());
        permits.send(()).unwrap();
        queue.flush(PATIENCE);
        assert_eq!(written.try_iter().collect::<String>(), "bcfg");
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn failed_writes_are_reported_after_a_successful_one() {
        let fails = Arc::new(Mutex::new(true));
        let (tell, told) = channel();
        let failing = Arc::clone(&fails);
        let write = move |_: &[u8]| if *failing.lock().unwrap() { Err(Errno::ENOSPC.into()) } else { Ok(()) };
        let queue = LogQueue::new(1 << 20, write, move |dropped| tell.send(dropped).unwrap());
        (0..3).for_each(|_| queue.push(b"x".to_vec()));
        while queue.dropped() < 3 {
            thread::yield_now();
        }
        *fails.lock().unwrap() = false;
        queue.push(b"x".to_vec());
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), 3);
    }
}
