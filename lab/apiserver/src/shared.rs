//! A store that scenario steps and API clients share: each write is logged and wakes the watches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use super::change_log::{ChangeLog, HistoryBounds};
use super::faults::ActiveFaults;
use crate::objects::Store;

/// A handle on the cluster's objects; clones share them.
#[derive(Clone)]
pub struct SharedStore {
    inner: Arc<SharedState>,
}

struct SharedState {
    state: Mutex<ServerState>,
    /// Incremented by everything that may concern a watch.
    ticks: watch::Sender<u64>,
    began: Instant,
}

/// The state under one lock, so that objects and history agree.
pub(super) struct ServerState {
    pub(super) store: Store,
    pub(super) log: ChangeLog,
    pub(super) faults: ActiveFaults,
}

impl SharedStore {
    /// Shares a store and switches it to the system clock; existing objects count as created now.
    pub fn new(store: Store) -> Self {
        SharedStore::with_bounds(store, HistoryBounds::default())
    }

    /// Like [`SharedStore::new`], with other bounds of the history.
    pub fn with_bounds(mut store: Store, bounds: HistoryBounds) -> Self {
        store.use_system_clock();
        store.record_changes();
        let log = ChangeLog::new(bounds, store.version());
        let state = Mutex::new(ServerState { store, log, faults: ActiveFaults::default() });
        SharedStore { inner: Arc::new(SharedState { state, ticks: watch::Sender::new(0), began: Instant::now() }) }
    }

    /// The time from which bookmarks' minutes count.
    pub(super) fn began(&self) -> Instant {
        self.inner.began
    }

    /// Reads the objects. `look` runs under the lock: it must be quick and must not lock again.
    pub fn read<R>(&self, look: impl FnOnce(&Store) -> R) -> R {
        look(&self.lock().store)
    }

    /// Changes the objects; watches see the changes after `change` returns.
    pub fn write<R>(&self, change: impl FnOnce(&mut Store) -> R) -> R {
        self.update(|state| change(&mut state.store))
    }

    /// The version of the newest change.
    pub fn version(&self) -> u64 {
        self.read(Store::version)
    }

    /// Wakes the watches if an object changed.
    pub(super) fn update<R>(&self, change: impl FnOnce(&mut ServerState) -> R) -> R {
        let (result, changed) = {
            let mut state = self.lock();
            let result = change(&mut state);
            let changes = state.store.take_changes();
            let changed = !changes.is_empty();
            state.log.append(changes);
            (result, changed)
        };
        if changed {
            self.wake();
        }
        result
    }

    pub(super) fn wake(&self) {
        self.inner.ticks.send_modify(|ticks| *ticks += 1);
    }

    pub(super) fn inspect<R>(&self, inspect: impl FnOnce(&ServerState) -> R) -> R {
        inspect(&self.lock())
    }

    /// A counter that increases with every change of an object or fault.
    pub fn ticks(&self) -> watch::Receiver<u64> {
        self.inner.ticks.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        // Ignores poisoning: a panic in another thread leaves every object complete.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
