//! Whether the proxy keeps up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::source::ResourceVersions;

/// Shared by the sync loop, which writes, and the HTTP servers, which read.
#[derive(Debug, Clone)]
pub struct HealthState {
    shared: Arc<Mutex<Shared>>,
    patience: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    /// When the oldest change came in that is not in the kernel yet.
    waiting_since: Option<SystemTime>,
    /// When the kernel was last known to be up to date.
    synced: Option<SystemTime>,
    version: Option<String>,
    versions: ResourceVersions,
}

/// One look at the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The proxy keeps up: a first sync was done, and no change waits too long.
    pub healthy: bool,
    /// When the kernel was last known to be up to date.
    pub last_updated: Option<SystemTime>,
    /// The newest resource version of the manifests that is in the kernel.
    pub applied_resource_version: Option<String>,
    /// The newest resource version of each kind of the API's objects that is in the kernel.
    pub applied_resource_versions: ResourceVersions,
}

impl HealthState {
    /// A change may wait for twice the sync period, as upstream has it.
    pub fn new(sync_period: Duration) -> HealthState {
        HealthState { shared: Arc::default(), patience: sync_period * 2 }
    }

    /// A change came in.
    pub fn queued(&self) {
        self.queued_at(SystemTime::now());
    }

    /// Everything that came in is in the kernel, up to these versions.
    pub fn synced(&self, version: Option<String>, versions: ResourceVersions) {
        self.synced_at(SystemTime::now(), version, versions);
    }

    /// How it stands.
    pub fn look(&self) -> Health {
        self.look_at(SystemTime::now())
    }

    fn queued_at(&self, now: SystemTime) {
        self.lock().waiting_since.get_or_insert(now);
    }

    fn synced_at(&self, now: SystemTime, version: Option<String>, versions: ResourceVersions) {
        *self.lock() = Shared { waiting_since: None, synced: Some(now), version, versions };
    }

    fn look_at(&self, now: SystemTime) -> Health {
        let shared = self.lock();
        let waited = shared.waiting_since.and_then(|since| now.duration_since(since).ok());
        Health {
            healthy: shared.synced.is_some() && waited.is_none_or(|waited| waited <= self.patience),
            last_updated: shared.synced,
            applied_resource_version: shared.version.clone(),
            applied_resource_versions: shared.versions.clone(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        // A panic while it was held cannot leave plain values half-written.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_may_wait_for_two_sync_periods() {
        let state = HealthState::new(Duration::from_secs(30));
        let start = SystemTime::UNIX_EPOCH;
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!state.look_at(start).healthy, "before the first sync");
        state.synced_at(start, Some("7".into()), ResourceVersions::default());
        assert!(state.look_at(after(3600)).healthy, "nothing waits");
        state.queued_at(after(10));
        state.queued_at(after(60));
        assert!(state.look_at(after(70)).healthy);
        assert!(!state.look_at(after(71)).healthy, "the older change counts");
        state.synced_at(after(72), Some("8".into()), ResourceVersions::default());
        let health = state.look_at(after(200));
        assert!(health.healthy);
        assert_eq!(health.applied_resource_version.as_deref(), Some("8"));
    }
}
