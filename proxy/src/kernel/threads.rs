//! How many threads this process can have: a limit of processes (`RLIMIT_NPROC`, or a control group's `pids.max`) counts threads.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use tokio::runtime::Handle;

/// Threads that the proxy starts after the check besides those of async tasks: for the tables, manifests, watches of files, and
/// [`FOR_WAITING`].
const BESIDE_WORKERS: usize = 10;
/// Threads for work that may block: a sync of each family, a scrape, credentials.
const FOR_WAITING: usize = 4;
/// How long threads without work stay: for ever. tokio panics where it needs a first one and gets none.
pub const KEEP: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How long a thread waits for the others to be started.
const PATIENCE: Duration = Duration::from_secs(1);

/// A limit with which the proxy would fail now and then.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot start {threads} threads: raise the limit of processes (ulimit -u, TasksMax= of the unit, the container's pids limit): {source}"
)]
pub struct TooFewThreads {
    threads: usize,
    source: io::Error,
}

/// Checks that the threads which the proxy needs can be started, with so many for async tasks.
///
/// # Errors
/// When one cannot.
pub fn check(workers: usize) -> Result<(), TooFewThreads> {
    let threads = workers + BESIDE_WORKERS;
    // They all wait for this lock, so that all exist at a time.
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let held = gate.lock();
        let start = || Builder::new().spawn_scoped(scope, || drop(gate.lock())).map(drop);
        let started: io::Result<()> = (0..threads).try_for_each(|_| start());
        drop(held);
        started.map_err(|source| TooFewThreads { threads, source })
    })
}

/// Starts the runtime's threads for work that may block. With [`KEEP`] they stay, and what finds them all at work waits.
pub fn start_waiting(runtime: &Handle) {
    let started = Arc::new((Mutex::new(0), Condvar::new()));
    for _ in 0..FOR_WAITING {
        let started = Arc::clone(&started);
        runtime.spawn_blocking(move || {
            let (number, changed) = &*started;
            let mut number = number.lock().unwrap_or_else(PoisonError::into_inner);
            *number += 1;
            changed.notify_all();
            // So that all exist at a time. Where one cannot be started, the others do not wait for it.
            drop(changed.wait_timeout_while(number, PATIENCE, |number| *number < FOR_WAITING));
        });
    }
}
