//! What relays count.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that goes up, and for what is open down again.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// One less.
    pub fn dec(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of one family.
#[derive(Debug, Default)]
pub struct Stats {
    /// Listening ports.
    pub listeners: Count,
    /// Tries to listen that failed.
    pub not_opened: Count,
    /// TCP connections that are open.
    pub connections: Count,
    /// TCP connections so far.
    pub connections_total: Count,
    /// Connections that no backend took.
    pub failed: Count,
    /// Backends that refused a connection, and another was tried.
    pub refused: Count,
    /// Backends that did not answer in time, and another was tried.
    pub timed_out: Count,
    /// Connections that ended because nothing was sent for too long.
    pub idle: Count,
    /// Times that no more connections could be accepted.
    pub full: Count,
    /// UDP associations that are open.
    pub associations: Count,
    /// UDP associations so far.
    pub associations_total: Count,
    /// Connections and associations that ended before their time, to make room.
    pub evicted: Count,
    /// Datagrams that had nowhere to go.
    pub dropped: Count,
    /// Bytes relayed, by protocol: TCP, UDP.
    pub bytes: [Count; 2],
}
