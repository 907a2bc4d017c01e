//! The state file (`stateFile`): what the API said last, for a node that starts while the API is away.

mod disk;
mod format;
mod objects;
mod saver;
mod source;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use source::{StateFileSource, has_usable_file};

use super::access::ClusterIdentity;
use crate::metrics::{AtScrape, as_value};

/// In bytes; a cluster of 10,000 Services with 10 endpoints each needs some 7 MiB.
const LARGEST: u64 = 256 << 20;

/// Whose objects a state file has.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    node: String,
    cluster: ClusterIdentity,
}

#[derive(Debug, Clone)]
pub struct StateFileTiming {
    /// How long the API has to answer before the file's objects are programmed.
    pub head_start: Duration,
    /// The shortest time between two writes.
    pub write_pause: Duration,
    /// The longest pause after failed writes.
    pub longest_pause: Duration,
}

impl Default for StateFileTiming {
    fn default() -> StateFileTiming {
        StateFileTiming {
            head_start: Duration::from_millis(500),
            write_pause: Duration::from_secs(5),
            longest_pause: Duration::from_secs(600),
        }
    }
}

#[derive(Debug, Clone)]
pub struct StateFileSettings {
    pub path: PathBuf,
    /// An older file is ignored.
    pub max_age: Duration,
    pub timing: StateFileTiming,
}

/// What the metrics read.
#[derive(Debug, Clone, Default)]
pub struct StateFileCounts(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    written_at: AtomicU64,
    failed: AtomicU64,
}

pub(super) fn fuzz(bytes: &[u8]) -> bool {
    format::fuzz(bytes)
}

impl StateFileSettings {
    pub fn new(path: PathBuf, max_age: Duration) -> StateFileSettings {
        StateFileSettings { path, max_age, timing: StateFileTiming::default() }
    }
}

impl StateFileCounts {
    /// In seconds since 1970; `None` before the first write of this process.
    pub fn written_at(&self) -> Option<u64> {
        Some(self.0.written_at.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }

    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    pub fn metrics(&self) -> Result<AtScrape, prometheus::Error> {
        let counts = self.clone();
        let read = move || {
            let written_at = counts.written_at().map(|at| (Vec::new(), as_value(at)));
            vec![written_at.into_iter().collect(), vec![(Vec::new(), as_value(counts.failed()))]]
        };
        AtScrape::new(read)
            .gauge("svcproxy_state_file_timestamp_seconds", "Time of the state in the state file", &[])?
            .counter("svcproxy_state_file_write_failures_total", "Failed writes of the state file", &[])
    }
}
