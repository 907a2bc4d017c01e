//! One store for scenario steps and API clients: every write ends up in the log and wakes the watches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use super::change_log::{ChangeLog, HistoryBounds};
use super::faults::ActiveFaults;
use crate::objects::Store;

/// A handle on the cluster's objects; clones are the same objects.
#[derive(Clone)]
pub struct SharedStore {
    inner: Arc<SharedState>,
}

struct SharedState {
    state: Mutex<ServerState>,
    /// Counts everything that a watch may have to react to.
    ticks: watch::Sender<u64>,
    /// When it was made.
    began: Instant,
}

/// What the lock guards: objects and log never disagree.
pub(super) struct ServerState {
    pub(super) store: Store,
    pub(super) log: ChangeLog,
    pub(super) faults: ActiveFaults,
}

impl SharedStore {
    /// Takes `store` over. Its objects count as made now, and its timestamps are the machine's from now on.
    pub fn new(store: Store) -> Self {
        SharedStore::with_bounds(store, HistoryBounds::default())
    }

    /// Like [`SharedStore::new`], with a history of another size.
    pub fn with_bounds(mut store: Store, bounds: HistoryBounds) -> Self {
        store.use_system_clock();
        store.record_changes();
        let log = ChangeLog::new(bounds, store.version());
        let state = Mutex::new(ServerState { store, log, faults: ActiveFaults::default() });
        SharedStore { inner: Arc::new(SharedState { state, ticks: watch::Sender::new(0), began: Instant::now() }) }
    }

    /// The moment that watches count whole minutes from.
    pub(super) fn began(&self) -> Instant {
        self.inner.began
    }

    /// Looks at the objects. The store is locked meanwhile: be quick, and call nothing that locks it again.
    pub fn read<R>(&self, look: impl FnOnce(&Store) -> R) -> R {
        look(&self.lock().store)
    }

    /// Changes the objects; watches see each change once `change` is back.
    pub fn write<R>(&self, change: impl FnOnce(&mut Store) -> R) -> R {
        self.with(|state| change(&mut state.store))
    }

    /// The version of the newest change.
    pub fn version(&self) -> u64 {
        self.read(Store::version)
    }

    /// Changes anything behind the lock, then tells the watches if an object changed.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut ServerState) -> R) -> R {
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

    /// Makes every watch and connection look again.
    pub(super) fn wake(&self) {
        self.inner.ticks.send_modify(|ticks| *ticks += 1);
    }

    /// Looks at anything behind the lock.
    pub(super) fn look<R>(&self, look: impl FnOnce(&ServerState) -> R) -> R {
        look(&self.lock())
    }

    /// Changes its value with everything that may have changed an object.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.ticks()
    }

    pub(super) fn ticks(&self) -> watch::Receiver<u64> {
        self.inner.ticks.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        // A panic elsewhere leaves objects that are each whole.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
