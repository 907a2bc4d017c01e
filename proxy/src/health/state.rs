//! Whether the proxy keeps up with changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::model::{Family, ResourceVersions};

#[derive(Debug, Clone)]
pub struct HealthState {
    shared: Arc<Mutex<SharedHealth>>,
    patience: Duration,
}

#[derive(Debug)]
struct SharedHealth {
    families: BTreeMap<Family, FamilyHealth>,
    /// The versions at which all families last agreed.
    common: AppliedVersions,
    node_eligible: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FamilyHealth {
    /// When the oldest change that is not in the kernel arrived. Monotonic.
    pub waiting_since: Option<Instant>,
    /// Start of the current sync or check.
    pub busy_since: Option<Instant>,
    pub synced: Option<SystemTime>,
    pub applied: AppliedVersions,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppliedVersions {
    pub manifests: Option<String>,
    pub api: ResourceVersions,
    /// The objects are those of a state file, as of this time.
    pub recalled: Option<SystemTime>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthSnapshot {
    /// Whether no change waits too long (kube-proxy's rule for `/livez`) and nothing hangs.
    pub alive: bool,
    pub synced: bool,
    pub node_eligible: bool,
    /// When the family that is behind was last up to date.
    pub last_updated: Option<SystemTime>,
    /// The versions that all families have applied.
    pub applied: AppliedVersions,
    /// The time of the state file whose objects a family has.
    pub recalled: Option<SystemTime>,
    pub families: BTreeMap<Family, FamilyHealth>,
    pub late: BTreeSet<Family>,
}

impl HealthState {
    /// As in kube-proxy a change may wait for twice the sync period.
    pub fn new(sync_period: Duration, families: &[Family]) -> HealthState {
        let families = families.iter().map(|family| (*family, FamilyHealth::default())).collect();
        let shared = SharedHealth { families, common: AppliedVersions::default(), node_eligible: true };
        HealthState { shared: Arc::new(Mutex::new(shared)), patience: sync_period * 2 }
    }

    pub fn proxies(&self, families: &[Family]) {
        self.lock().families.retain(|family, _| families.contains(family));
    }

    pub fn queued(&self, family: Family) {
        self.queued_at(Instant::now(), family);
    }

    pub fn synced(&self, family: Family, applied: &AppliedVersions) {
        self.synced_at(SystemTime::now(), family, applied);
    }

    /// Marks an operation that may hang, until the value is dropped.
    pub fn busy(&self, family: Family) -> BusyMark {
        self.busy_at(Instant::now(), family)
    }

    pub fn set_node_eligible(&self, eligible: bool) {
        self.lock().node_eligible = eligible;
    }

    pub fn snapshot(&self) -> HealthSnapshot {
        self.snapshot_at(Instant::now())
    }

    fn queued_at(&self, now: Instant, family: Family) {
        self.lock().families.entry(family).or_default().waiting_since.get_or_insert(now);
    }

    fn busy_at(&self, now: Instant, family: Family) -> BusyMark {
        self.lock().families.entry(family).or_default().busy_since = Some(now);
        BusyMark { health: self.clone(), family }
    }

    fn synced_at(&self, now: SystemTime, family: Family, applied: &AppliedVersions) {
        let mut shared = self.lock();
        let health = shared.families.entry(family).or_default();
        *health = FamilyHealth { waiting_since: None, synced: Some(now), applied: applied.clone(), ..health.clone() };
        if shared.families.values().all(|family| family.applied == *applied) {
            shared.common = applied.clone();
        }
    }

    fn snapshot_at(&self, now: Instant) -> HealthSnapshot {
        let shared = self.lock();
        let families = || shared.families.values();
        let late = |family: &FamilyHealth| {
            let since = [family.waiting_since, family.busy_since].into_iter().flatten().min();
            let waited = since.map(|since| now.saturating_duration_since(since));
            waited.is_some_and(|waited| waited >= self.patience)
        };
        HealthSnapshot {
            alive: !families().any(late),
            synced: families().all(|family| family.synced.is_some()),
            node_eligible: shared.node_eligible,
            last_updated: families().map(|family| family.synced).min().flatten(),
            applied: shared.common.clone(),
            recalled: families().find_map(|family| family.applied.recalled),
            families: shared.families.clone(),
            late: shared.families.iter().filter(|(_, one)| late(one)).map(|(family, _)| *family).collect(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SharedHealth> {
        // A panic under the lock leaves these plain values valid.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct BusyMark {
    health: HealthState,
    family: Family,
}

impl Drop for BusyMark {
    fn drop(&mut self) {
        self.health.lock().families.entry(self.family).or_default().busy_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An arbitrary time.
    const CLOCK: SystemTime = SystemTime::UNIX_EPOCH;

    fn applied(version: &str) -> AppliedVersions {
        AppliedVersions { manifests: Some(version.to_owned()), ..AppliedVersions::default() }
    }

    #[test]
    fn a_change_may_wait_for_two_sync_periods() {
        let state = HealthState::new(Duration::from_secs(30), &[Family::V4]);
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let health = state.snapshot_at(begun);
        assert!(health.alive && !health.synced, "before the first sync");
        state.synced_at(CLOCK, Family::V4, &applied("7"));
        let health = state.snapshot_at(after(3600));
        assert!(health.alive && health.synced, "nothing waits");
        state.queued_at(after(10), Family::V4);
        state.queued_at(after(60), Family::V4);
        assert!(state.snapshot_at(after(69)).alive);
        assert!(!state.snapshot_at(after(70)).alive, "the older change counts");
        state.synced_at(CLOCK + Duration::from_secs(72), Family::V4, &applied("8"));
        let health = state.snapshot_at(after(200));
        assert!(health.alive);
        assert_eq!(health.applied, applied("8"));
    }

    #[test]
    fn a_hanging_sync_is_not_alive() {
        let state = HealthState::new(Duration::from_secs(30), &Family::ALL);
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        Family::ALL
            .into_iter()
            .for_each(|family| state.synced_at(CLOCK + Duration::from_secs(0), family, &applied("7")));
        let busy = state.busy_at(after(100), Family::V6);
        assert!(state.snapshot_at(after(159)).alive);
        assert!(!state.snapshot_at(after(160)).alive);
        drop(busy);
        assert!(state.snapshot_at(after(160)).alive);
    }

    #[test]
    fn a_family_that_is_not_proxied_does_not_count() {
        let state = HealthState::new(Duration::from_secs(30), &Family::ALL);
        drop(state.busy(Family::V6));
        state.proxies(&[Family::V4]);
        state.synced(Family::V4, &applied("1"));
        let health = state.snapshot();
        assert!(health.synced && health.applied == applied("1") && health.families.len() == 1, "{health:?}");
    }

    #[test]
    fn the_slower_family_decides() {
        let state = HealthState::new(Duration::from_secs(30), &Family::ALL);
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        state.synced_at(CLOCK + Duration::from_secs(1), Family::V4, &applied("7"));
        let health = state.snapshot_at(after(1));
        assert!(!health.synced);
        assert_eq!((health.last_updated, health.applied), (None, AppliedVersions::default()));
        state.synced_at(CLOCK + Duration::from_secs(2), Family::V6, &applied("7"));
        let health = state.snapshot_at(after(2));
        assert!(health.synced);
        assert_eq!((health.last_updated, health.applied), (Some(CLOCK + Duration::from_secs(1)), applied("7")));
        state.queued_at(after(3), Family::V6);
        state.synced_at(CLOCK + Duration::from_secs(90), Family::V4, &applied("8"));
        let health = state.snapshot_at(after(90));
        assert!(!health.alive, "IPv6 is late, whatever IPv4 does");
        assert_eq!(health.applied, applied("7"));
        assert_eq!(health.families[&Family::V4].applied, applied("8"));
        assert_eq!(health.families[&Family::V6].applied, applied("7"));
    }
}
