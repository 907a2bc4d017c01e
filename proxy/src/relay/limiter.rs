//! Limits connections to the available file descriptors, fairly between services. While slots are free, a service may
//! take any number. Then it takes slots from the service with the most, as long as that has more than itself: first
//! those of half-closed connections, then of the longest-idle ones. A service with its fair share waits, or takes a
//! long-idle connection's slot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::model::ObjectKey;

/// The idle time after which half-closed connections may lose their slot; if the new service has no slot, also other
/// connections.
const HALF_CLOSED: Duration = Duration::from_secs(10);
/// The idle time after which other connections may lose their slot.
const OPEN: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Evicts one in eight at once: not every new connection has to search.
const PART: usize = 8;

/// When bytes last passed, and whether one direction has ended.
#[derive(Debug)]
pub struct Activity {
    begin: Instant,
    /// Milliseconds after `begin`.
    last: AtomicU64,
    half: AtomicBool,
    leave: Notify,
}

impl Activity {
    fn new(now: Instant) -> Activity {
        Activity { begin: now, last: AtomicU64::new(0), half: AtomicBool::new(false), leave: Notify::new() }
    }

    pub fn touch(&self, now: Instant) {
        let since = u64::try_from(now.saturating_duration_since(self.begin).as_millis()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
    }

    pub fn half_closed(&self, now: Instant) {
        self.touch(now);
        self.half.store(true, Ordering::Relaxed);
    }

    pub fn is_half_closed(&self) -> bool {
        self.half.load(Ordering::Relaxed)
    }

    pub fn last(&self) -> Instant {
        self.begin + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    pub async fn must_leave(&self) {
        self.leave.notified().await;
    }
}

#[derive(Debug)]
pub struct FairLimiter {
    most: usize,
    slots: Mutex<SlotTable>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct SlotTable {
    open: usize,
    next: u64,
    shares: BTreeMap<ObjectKey, BTreeMap<u64, Arc<Activity>>>,
}

/// The slot of one connection, freed on drop.
#[derive(Debug)]
pub struct ConnectionSlot {
    limiter: Arc<FairLimiter>,
    service: ObjectKey,
    number: u64,
    activity: Arc<Activity>,
}

impl ConnectionSlot {
    pub fn activity(&self) -> &Activity {
        &self.activity
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if self.limiter.slots().remove(&self.service, self.number).is_some() {
            self.limiter.freed.notify_waiters();
        }
    }
}

impl FairLimiter {
    pub fn new(most: usize) -> Arc<FairLimiter> {
        Arc::new(FairLimiter { most, slots: Mutex::default(), freed: Notify::new() })
    }

    fn slots(&self) -> MutexGuard<'_, SlotTable> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn try_acquire(self: &Arc<FairLimiter>, service: &ObjectKey, now: Instant) -> Option<ConnectionSlot> {
        let mut slots = self.slots();
        if slots.open >= self.most {
            slots.evict(service, now);
        }
        if slots.open >= self.most {
            return None;
        }
        let (number, activity) = slots.insert(service, now);
        Some(ConnectionSlot { limiter: Arc::clone(self), service: service.clone(), number, activity })
    }

    pub async fn acquire(self: &Arc<FairLimiter>, service: &ObjectKey) -> ConnectionSlot {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Enabled before the attempt, so that no freed slot is missed.
            freed.as_mut().enable();
            if let Some(slot) = self.try_acquire(service, Instant::now()) {
                return slot;
            }
            let _ = timeout(POLL_INTERVAL, freed).await;
        }
    }
}

impl SlotTable {
    fn insert(&mut self, service: &ObjectKey, now: Instant) -> (u64, Arc<Activity>) {
        let (number, activity) = (self.next, Arc::new(Activity::new(now)));
        self.next += 1;
        self.open += 1;
        self.shares.entry(service.clone()).or_default().insert(number, Arc::clone(&activity));
        (number, activity)
    }

    fn remove(&mut self, service: &ObjectKey, number: u64) -> Option<Arc<Activity>> {
        let share = self.shares.get_mut(service)?;
        let activity = share.remove(&number)?;
        self.open -= 1;
        if share.is_empty() {
            self.shares.remove(service);
        }
        Some(activity)
    }

    /// Frees slots for the service. Their sockets are closed a moment later.
    fn evict(&mut self, service: &ObjectKey, now: Instant) {
        let own = self.shares.get(service).map_or(0, BTreeMap::len);
        let largest = self.shares.iter().max_by_key(|(_, share)| share.len());
        let Some((largest, most)) = largest.map(|(name, share)| (name.clone(), share.len())) else { return };
        if most >= own + 2 {
            // Moving half the difference makes both services equal.
            self.end(((most - own) / 2).div_ceil(PART), |service, _| *service == largest);
        } else {
            let too_long = |activity: &Activity| {
                let limit = if activity.is_half_closed() || own == 0 { HALF_CLOSED } else { OPEN };
                now.saturating_duration_since(activity.last()) >= limit
            };
            self.end(own.div_ceil(PART).max(1), |of, activity| (of == service || own == 0) && too_long(activity));
        }
    }

    fn end(&mut self, count: usize, may: impl Fn(&ObjectKey, &Activity) -> bool) {
        let all = self
            .shares
            .iter()
            .flat_map(|(of, share)| share.iter().map(move |(number, activity)| (of, number, activity)));
        let mut by_worth: Vec<(bool, Instant, u64, ObjectKey)> = all
            .filter(|(of, _, activity)| may(of, activity))
            .map(|(of, number, activity)| (!activity.is_half_closed(), activity.last(), *number, of.clone()))
            .collect();
        by_worth.sort_unstable();
        for (_, _, number, service) in by_worth.into_iter().take(count) {
            if let Some(activity) = self.remove(&service, number) {
                activity.leave.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    fn evicted(slots: &[ConnectionSlot]) -> Vec<usize> {
        let gone =
            |slot: &ConnectionSlot| !slot.limiter.slots().shares.values().any(|share| share.contains_key(&slot.number));
        slots.iter().enumerate().filter(|(_, slot)| gone(slot)).map(|(index, _)| index).collect()
    }

    fn share(limiter: &FairLimiter, name: &str) -> usize {
        limiter.slots().shares.get(&key(name)).map_or(0, BTreeMap::len)
    }

    #[test]
    fn a_service_has_all_slots_until_another_takes_half() {
        let (limiter, now) = (FairLimiter::new(100), Instant::now());
        let (greedy, other) = (key("greedy"), key("other"));
        let held: Vec<ConnectionSlot> = std::iter::from_fn(|| limiter.try_acquire(&greedy, now)).collect();
        assert_eq!(held.len(), 100);
        let theirs: Vec<ConnectionSlot> = std::iter::from_fn(|| limiter.try_acquire(&other, now)).collect();
        assert_eq!((share(&limiter, "greedy"), share(&limiter, "other"), theirs.len()), (50, 50, 50));
        assert!(limiter.try_acquire(&greedy, now).is_none() && limiter.try_acquire(&other, now).is_none());
        let third = limiter.try_acquire(&key("third"), now);
        assert!(third.is_some(), "who has least has the next place");
        drop((held, theirs, third));
        assert_eq!(limiter.slots().open, 0, "who had to leave leaves once");
        assert!(limiter.slots().shares.is_empty());
    }

    #[test]
    fn half_closed_and_then_idle_connections_are_evicted_first() {
        let (limiter, begin) = (FairLimiter::new(6), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let held: Vec<ConnectionSlot> = (0..6).map(|_| limiter.try_acquire(&key("greedy"), begin).unwrap()).collect();
        (0..6).zip([5, 4, 9, 2, 8, 7]).for_each(|(index, second)| held[index].activity().touch(at(second)));
        held[4].activity().half_closed(at(8));
        held[2].activity().half_closed(at(9));
        let mut theirs = Vec::new();
        for gone in [vec![4], vec![2, 4], vec![2, 3, 4]] {
            theirs.push(limiter.try_acquire(&key("other"), at(10)).unwrap());
            assert_eq!(evicted(&held), gone);
        }
        assert!(limiter.try_acquire(&key("other"), at(10)).is_none(), "both have their share");
    }

    #[test]
    fn without_other_services_only_idle_connections_are_evicted() {
        let (limiter, begin) = (FairLimiter::new(3), Instant::now());
        let held: Vec<ConnectionSlot> = (0..3).map(|_| limiter.try_acquire(&key("web"), begin).unwrap()).collect();
        held[1].activity().half_closed(begin + Duration::from_secs(1));
        assert!(limiter.try_acquire(&key("web"), begin + Duration::from_secs(10)).is_none());
        let next = limiter.try_acquire(&key("web"), begin + Duration::from_secs(11));
        assert!(next.is_some());
        assert_eq!(evicted(&held), [1], "half-closed for ten seconds");
        held[0].activity().touch(begin + Duration::from_secs(100));
        assert!(limiter.try_acquire(&key("web"), begin + Duration::from_secs(299)).is_none());
        assert!(limiter.try_acquire(&key("web"), begin + Duration::from_secs(300)).is_some());
        assert_eq!(evicted(&held), [1, 2], "silent for five minutes");
    }

    #[test]
    fn a_service_without_a_slot_takes_that_of_an_idle_connection() {
        let (limiter, begin) = (FairLimiter::new(3), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let held: Vec<ConnectionSlot> =
            ["a", "b", "c"].map(|name| limiter.try_acquire(&key(name), begin).unwrap()).into();
        [2, 1, 3].into_iter().zip(&held).for_each(|(second, slot)| slot.activity().touch(at(second)));
        assert!(limiter.try_acquire(&key("new"), at(10)).is_none());
        let first = limiter.try_acquire(&key("new"), at(11));
        assert!(first.is_some());
        assert_eq!(evicted(&held), [1], "the one that was silent for longest");
        assert!(limiter.try_acquire(&key("new"), at(20)).is_none(), "it has one now, as the others have");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_connection_gets_a_freed_or_idle_slot() {
        let limiter = FairLimiter::new(1);
        let first = limiter.acquire(&key("web")).await;
        let waiting = tokio::spawn({
            let limiter = Arc::clone(&limiter);
            async move { limiter.acquire(&key("web")).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        let second = waiting.await.unwrap();
        second.activity().half_closed(Instant::now());
        let third = limiter.acquire(&key("web")).await;
        second.activity().must_leave().await;
        assert_eq!(evicted(&[second, third]), [0]);
    }
}
