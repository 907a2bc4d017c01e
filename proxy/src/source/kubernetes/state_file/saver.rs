//! Writes the state file on a thread of its own: a slow or full disk delays no sync.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tracing::{info, warn};

use super::format::{self, SavedState};
use super::objects::EncodedObjects;
use super::{Origin, StateFileCounts, StateFileSettings, disk};
use crate::model::{Batch, Change};

/// At the end the last write has this time.
const END: Duration = Duration::from_millis(400);
/// How often, as a part of `max_age`, a file is written again although nothing changed.
const REFRESHES: u32 = 24;

pub(super) type FindOrigin = Box<dyn Fn() -> Option<Origin> + Send>;

/// Ends with the last state written.
#[derive(Debug)]
pub(super) struct StateSaver(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<SaverState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SaverState {
    objects: EncodedObjects,
    /// Whether these are all objects of the API: a part is never written.
    is_complete: bool,
    is_dirty: bool,
    confirmed: Option<SystemTime>,
    /// `confirmed` of the file.
    written: Option<SystemTime>,
    ends: bool,
    has_ended: bool,
}

impl SaverState {
    fn is_due(&self) -> bool {
        self.is_complete && self.is_dirty
    }
}

impl StateSaver {
    pub(super) fn start(
        settings: StateFileSettings,
        counts: StateFileCounts,
        origin: FindOrigin,
    ) -> std::io::Result<StateSaver> {
        let shared = Arc::new(Shared::default());
        let thread = SaverThread { shared: Arc::clone(&shared), settings, counts, origin, failures: 0 };
        std::thread::Builder::new().name("state-file".to_owned()).spawn(move || thread.run())?;
        Ok(StateSaver(shared))
    }

    /// Records a batch of the API, which came at `now`.
    pub(super) fn record(&self, batch: &Batch, now: SystemTime, max_age: Duration) {
        let mut state = self.0.lock();
        for change in &batch.changes {
            state.is_dirty |= state.objects.apply(change);
        }
        state.is_dirty |= !state.is_complete && !batch.partial;
        state.is_complete |= !batch.partial;
        state.confirmed = Some(now);
        // A file from the future is one from before the clock was set back.
        let is_old = |written| now.duration_since(written).map_or(true, |age| age >= max_age / REFRESHES);
        state.is_dirty |= state.written.is_some_and(is_old);
        if state.is_due() {
            self.0.changed.notify_all();
        }
    }

    /// Returns the changes from `before` to what the API has said.
    pub(super) fn since(&self, before: &EncodedObjects) -> Vec<Change> {
        self.0.lock().objects.since(before)
    }
}

impl Drop for StateSaver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ends = true;
        self.0.changed.notify_all();
        let waits = self.0.changed.wait_timeout_while(state, END, |state| !state.has_ended);
        drop(waits.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SaverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct SaverThread {
    shared: Arc<Shared>,
    settings: StateFileSettings,
    counts: StateFileCounts,
    origin: FindOrigin,
    failures: u32,
}

impl SaverThread {
    fn run(mut self) {
        loop {
            let state = self.shared.lock();
            let idle = |state: &mut SaverState| !state.is_due() && !state.ends;
            let mut state = self.shared.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
            let ends = state.ends;
            if let Some(content) = self.take(&mut state) {
                drop(state);
                self.write(content);
                state = self.shared.lock();
            }
            if ends {
                state.has_ended = true;
                self.shared.changed.notify_all();
                return;
            }
            let pause = self.pause();
            let waits = self.shared.changed.wait_timeout_while(state, pause, |state| !state.ends);
            drop(waits.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Returns what is to be written. It is encoded without the lock: a hash of many MiB would delay changes.
    fn take(&self, state: &mut SaverState) -> Option<SavedState> {
        let confirmed = state.confirmed.filter(|_| state.is_due())?;
        let origin = (self.origin)()?;
        state.is_dirty = false;
        // The clone shares the objects' bytes.
        Some(SavedState { origin, confirmed, objects: state.objects.clone(), refused: 0 })
    }

    fn write(&mut self, content: SavedState) {
        let (path, confirmed) = (&self.settings.path, content.confirmed);
        match disk::replace(path, &format::encode(&content)) {
            Ok(()) => {
                if self.failures > 0 {
                    info!("the state file {} is written again", path.display());
                }
                self.failures = 0;
                self.shared.lock().written = Some(confirmed);
                let at = confirmed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
                self.counts.0.written_at.store(at, Ordering::Relaxed);
            }
            Err(error) => {
                if self.failures == 0 {
                    warn!("cannot write the state file {}: {error}; retrying at growing intervals", path.display());
                }
                self.failures = self.failures.saturating_add(1);
                self.counts.0.failed.fetch_add(1, Ordering::Relaxed);
                self.shared.lock().is_dirty = true;
            }
        }
    }

    fn pause(&self) -> Duration {
        let timing = &self.settings.timing;
        let factor = 2u32.saturating_pow(self.failures.min(16));
        timing.write_pause.saturating_mul(factor).min(timing.longest_pause).max(timing.write_pause)
    }
}
