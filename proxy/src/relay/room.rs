//! Room for connections, in equal shares: as many as there are descriptors for, and no service takes the places of another's.
//!
//! Where there is room no service is held to a share. Where there is none, a service takes places from the one that has most, as
//! long as that has more than it has itself: those that are open in one direction only go first, then those that were silent
//! for longest. A service at its share waits for a place, and gets that of a connection that has been silent for long. A service without any
//! place takes that of any service's connection that has been silent for a while.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::model::ObjectKey;

/// Without room a connection that is open in one direction may be silent for so long, and any connection where a service has no place at all.
const HALF_CLOSED: Duration = Duration::from_secs(10);
/// Without room any connection may be silent for so long.
const OPEN: Duration = Duration::from_secs(300);
/// A service that waits looks so often whether some connection has been silent for too long.
const LOOK: Duration = Duration::from_secs(1);
/// What part of the connections that may go does go, so that not every new one costs a look at all.
const PART: usize = 8;

/// When bytes last went by on a connection, and whether one direction has ended.
#[derive(Debug)]
pub struct Activity {
    begin: Instant,
    /// Milliseconds after the begin.
    last: AtomicU64,
    half: AtomicBool,
    leave: Notify,
}

impl Activity {
    fn new(now: Instant) -> Activity {
        Activity { begin: now, last: AtomicU64::new(0), half: AtomicBool::new(false), leave: Notify::new() }
    }

    /// Bytes went by.
    pub fn note(&self, now: Instant) {
        let since = u64::try_from(now.saturating_duration_since(self.begin).as_millis()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
    }

    /// One direction has ended.
    pub fn half_closed(&self, now: Instant) {
        self.note(now);
        self.half.store(true, Ordering::Relaxed);
    }

    /// Whether one direction has ended.
    pub fn is_half_closed(&self) -> bool {
        self.half.load(Ordering::Relaxed)
    }

    /// When bytes last went by.
    pub fn last(&self) -> Instant {
        self.begin + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    /// Resolves when another connection gets the place.
    pub async fn must_leave(&self) {
        self.leave.notified().await;
    }
}

/// All places.
#[derive(Debug)]
pub struct Room {
    most: usize,
    places: Mutex<Places>,
    /// A place has become free.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Places {
    open: usize,
    next: u64,
    shares: BTreeMap<ObjectKey, BTreeMap<u64, Arc<Activity>>>,
}

/// One connection's place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    service: ObjectKey,
    number: u64,
    activity: Arc<Activity>,
}

impl Place {
    /// The connection's activity.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.room.places().remove(&self.service, self.number).is_some() {
            self.room.freed.notify_waiters();
        }
    }
}

impl Room {
    /// For so many connections.
    pub fn new(most: usize) -> Arc<Room> {
        Arc::new(Room { most, places: Mutex::default(), freed: Notify::new() })
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection of this service, if it may have one now.
    pub fn try_enter(self: &Arc<Room>, service: &ObjectKey, now: Instant) -> Option<Place> {
        let mut places = self.places();
        if places.open >= self.most {
            places.make_room(service, now);
        }
        if places.open >= self.most {
            return None;
        }
        let (number, activity) = places.insert(service, now);
        Some(Place { room: Arc::clone(self), service: service.clone(), number, activity })
    }

    /// A place for a connection of this service, as soon as it may have one.
    pub async fn enter(self: &Arc<Room>, service: &ObjectKey) -> Place {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no place that becomes free is missed.
            freed.as_mut().enable();
            if let Some(place) = self.try_enter(service, Instant::now()) {
                return place;
            }
            let _ = timeout(LOOK, freed).await;
        }
    }
}

impl Places {
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

    /// Ends connections in whose place one of this service may stand. Their sockets are closed a moment later.
    fn make_room(&mut self, service: &ObjectKey, now: Instant) {
        let own = self.shares.get(service).map_or(0, BTreeMap::len);
        let largest = self.shares.iter().max_by_key(|(_, share)| share.len());
        let Some((largest, most)) = largest.map(|(name, share)| (name.clone(), share.len())) else { return };
        if most >= own + 2 {
            // Half of the difference makes both equal.
            self.end(((most - own) / 2).div_ceil(PART), |service, _| *service == largest);
        } else {
            let too_long = |activity: &Activity| {
                let limit = if activity.is_half_closed() || own == 0 { HALF_CLOSED } else { OPEN };
                now.saturating_duration_since(activity.last()) >= limit
            };
            self.end(own.div_ceil(PART).max(1), |of, activity| (of == service || own == 0) && too_long(activity));
        }
    }

    /// Ends so many of the connections that `may` go.
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

    /// Who has to leave, by the order of coming.
    fn evicted(places: &[Place]) -> Vec<usize> {
        let gone = |place: &Place| !place.room.places().shares.values().any(|share| share.contains_key(&place.number));
        places.iter().enumerate().filter(|(_, place)| gone(place)).map(|(index, _)| index).collect()
    }

    fn share(room: &Room, name: &str) -> usize {
        room.places().shares.get(&key(name)).map_or(0, BTreeMap::len)
    }

    #[test]
    fn one_service_may_have_all_places_until_another_wants_some_and_then_each_has_half() {
        let (room, now) = (Room::new(100), Instant::now());
        let (greedy, other) = (key("greedy"), key("other"));
        let held: Vec<Place> = std::iter::from_fn(|| room.try_enter(&greedy, now)).collect();
        assert_eq!(held.len(), 100);
        let theirs: Vec<Place> = std::iter::from_fn(|| room.try_enter(&other, now)).collect();
        assert_eq!((share(&room, "greedy"), share(&room, "other"), theirs.len()), (50, 50, 50));
        assert!(room.try_enter(&greedy, now).is_none() && room.try_enter(&other, now).is_none());
        let third = room.try_enter(&key("third"), now);
        assert!(third.is_some(), "who has least has the next place");
        drop((held, theirs, third));
        assert_eq!(room.places().open, 0, "who had to leave leaves once");
        assert!(room.places().shares.is_empty());
    }

    #[test]
    fn half_closed_connections_go_first_and_of_the_others_those_that_were_silent_for_longest() {
        let (room, begin) = (Room::new(6), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let held: Vec<Place> = (0..6).map(|_| room.try_enter(&key("greedy"), begin).unwrap()).collect();
        (0..6).zip([5, 4, 9, 2, 8, 7]).for_each(|(index, second)| held[index].activity().note(at(second)));
        held[4].activity().half_closed(at(8));
        held[2].activity().half_closed(at(9));
        let mut theirs = Vec::new();
        for gone in [vec![4], vec![2, 4], vec![2, 3, 4]] {
            theirs.push(room.try_enter(&key("other"), at(10)).unwrap());
            assert_eq!(evicted(&held), gone);
        }
        assert!(room.try_enter(&key("other"), at(10)).is_none(), "both have their share");
    }

    #[test]
    fn without_others_only_who_was_silent_for_long_gives_its_place_up() {
        let (room, begin) = (Room::new(3), Instant::now());
        let held: Vec<Place> = (0..3).map(|_| room.try_enter(&key("web"), begin).unwrap()).collect();
        held[1].activity().half_closed(begin + Duration::from_secs(1));
        assert!(room.try_enter(&key("web"), begin + Duration::from_secs(10)).is_none());
        let next = room.try_enter(&key("web"), begin + Duration::from_secs(11));
        assert!(next.is_some());
        assert_eq!(evicted(&held), [1], "half-closed for ten seconds");
        held[0].activity().note(begin + Duration::from_secs(100));
        assert!(room.try_enter(&key("web"), begin + Duration::from_secs(299)).is_none());
        assert!(room.try_enter(&key("web"), begin + Duration::from_secs(300)).is_some());
        assert_eq!(evicted(&held), [1, 2], "silent for five minutes");
    }

    #[test]
    fn a_service_without_a_connection_takes_the_place_of_a_silent_one_of_another() {
        let (room, begin) = (Room::new(3), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let held: Vec<Place> = ["a", "b", "c"].map(|name| room.try_enter(&key(name), begin).unwrap()).into();
        [2, 1, 3].into_iter().zip(&held).for_each(|(second, place)| place.activity().note(at(second)));
        assert!(room.try_enter(&key("new"), at(10)).is_none());
        let first = room.try_enter(&key("new"), at(11));
        assert!(first.is_some());
        assert_eq!(evicted(&held), [1], "the one that was silent for longest");
        assert!(room.try_enter(&key("new"), at(20)).is_none(), "it has one now, as the others have");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_place_that_is_left_or_grows_silent() {
        let room = Room::new(1);
        let first = room.enter(&key("web")).await;
        let waiting = tokio::spawn({
            let room = Arc::clone(&room);
            async move { room.enter(&key("web")).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        let second = waiting.await.unwrap();
        second.activity().half_closed(Instant::now());
        let third = room.enter(&key("web")).await;
        second.activity().must_leave().await;
        assert_eq!(evicted(&[second, third]), [0]);
    }
}
