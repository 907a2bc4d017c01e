use std::sync::atomic::{AtomicU64, Ordering};

/// Increases, and for open objects also decreases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn inc(&self) {
        self.add(1);
    }

    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub fn dec(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct RelayStats {
    pub listeners: Counter,
    pub not_opened: Counter,
    pub connections: Counter,
    pub connections_total: Counter,
    /// Connections that no backend accepted.
    pub failed: Counter,
    /// Connections that a backend refused; another was tried.
    pub refused: Counter,
    /// Connection attempts that timed out; another backend was tried.
    pub timed_out: Counter,
    /// Connections that were idle for too long.
    pub idle: Counter,
    pub full: Counter,
    pub associations: Counter,
    pub associations_total: Counter,
    /// Connections or associations that ended early to make room.
    pub evicted: Counter,
    /// Datagrams that could not be sent.
    pub dropped: Counter,
    pub bytes: [Counter; 2],
}
