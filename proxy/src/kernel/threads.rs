use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use tokio::runtime::Handle;

/// Threads besides the workers: for tables, manifests, file watches, and [`FOR_WAITING`].
const BESIDE_WORKERS: usize = 10;
/// Threads for blocking work: a sync of each family, a scrape, and credentials.
const FOR_WAITING: usize = 4;
/// An idle thread stays practically for ever, because tokio panics if it cannot start the first thread.
pub const KEEP: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How long to wait for the other threads to start.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot start {threads} threads: raise the limit of processes (ulimit -u, TasksMax= of the unit, the container's pids limit): {source}"
)]
pub struct TooFewThreads {
    threads: usize,
    source: io::Error,
}

pub fn check(workers: usize) -> Result<(), TooFewThreads> {
    let threads = workers + BESIDE_WORKERS;
    // All threads wait for this lock, so that they exist together.
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let held = gate.lock();
        let start = || Builder::new().spawn_scoped(scope, || drop(gate.lock())).map(drop);
        let started: io::Result<()> = (0..threads).try_for_each(|_| start());
        drop(held);
        started.map_err(|source| TooFewThreads { threads, source })
    })
}

/// Starts the blocking threads, which then stay ([`KEEP`]).
pub fn start_waiting(runtime: &Handle) {
    let started = Arc::new((Mutex::new(0), Condvar::new()));
    for _ in 0..FOR_WAITING {
        let started = Arc::clone(&started);
        runtime.spawn_blocking(move || {
            let (number, changed) = &*started;
            let mut number = number.lock().unwrap_or_else(PoisonError::into_inner);
            *number += 1;
            changed.notify_all();
            // All must exist together; a failed thread delays no other.
            drop(changed.wait_timeout_while(number, PATIENCE, |number| *number < FOR_WAITING));
        });
    }
}
