//! Decides when a family's runner syncs, checks and repairs. Has no clock and no I/O, so tests can replay any order of
//! events.

use std::time::Duration;

use tokio::time::Instant;

use super::pacer::SyncPacer;

/// How long announcements are gathered before a check.
const SETTLE: Duration = Duration::from_millis(20);
/// Pause between two checks. A program that writes its own rules all the time must not keep the proxy busy.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Checks take at most one part in so many of the time: with the legacy variant each reads whole tables.
const LOOK_SHARE: u32 = 10;
/// Delay from a detected deletion to the full sync that repairs it: a script that flushes a table and then deletes its
/// chains finishes first.
const MEND_SETTLE: Duration = Duration::from_millis(250);
/// Least pause between two repairs, if the minimum sync period is shorter: a program that flushes forever causes at
/// most one repair a second.
const MEND_PAUSE: Duration = Duration::from_secs(1);
/// Period of full syncs, as in kube-proxy.
const FULL_SYNC: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Schedule {
    pacer: SyncPacer,
    period: Duration,
    tick_at: Instant,
    full_at: Instant,
    look_at: Option<Instant>,
    no_look_before: Instant,
    mend_pause: Duration,
    mend_at: Option<Instant>,
    mended: Option<Instant>,
    follow_up_at: Option<Instant>,
    addresses_at: Option<Instant>,
    no_addresses_before: Instant,
}

impl Schedule {
    /// `least`: time between two syncs; `period`: time between two checks of everything.
    pub(super) fn new(least: Duration, period: Duration, now: Instant) -> Schedule {
        Schedule {
            pacer: SyncPacer::new(least, period, now),
            period,
            tick_at: now + period,
            full_at: now + FULL_SYNC,
            look_at: None,
            no_look_before: now,
            mend_pause: least.max(MEND_PAUSE),
            mend_at: None,
            mended: None,
            follow_up_at: None,
            addresses_at: None,
            no_addresses_before: now,
        }
    }

    /// The earliest time at which something is due; `due`: whether a sync is.
    pub(super) fn next(&self, due: bool) -> Instant {
        let sync = due.then(|| self.pacer.next());
        let others = [sync, self.look_at, self.mend_at, self.follow_up_at, self.addresses_at];
        others.into_iter().flatten().fold(self.tick_at, Instant::min)
    }

    pub(super) fn may_sync(&self, now: Instant) -> bool {
        self.pacer.next() <= now
    }

    /// Records the end of a sync. A successful full sync also repairs every deletion.
    pub(super) fn synced(&mut self, full: bool, succeeded: bool, now: Instant) {
        if full && succeeded {
            self.mend_at = None;
            self.mended = self.mended.map(|_| now);
        }
        if succeeded { self.pacer.succeeded(now) } else { self.pacer.failed(now) }
    }

    /// Another program wrote to the tables: schedules a check.
    pub(super) fn look_soon(&mut self, now: Instant) {
        self.look_at.get_or_insert((now + SETTLE).max(self.no_look_before));
    }

    /// Whether a check is scheduled; until then further writes can be ignored.
    pub(super) fn will_look(&self) -> bool {
        self.look_at.is_some() || self.will_mend()
    }

    /// Schedules a full sync after a deletion: soon, unless the last repair was less than the repair pause ago.
    pub(super) fn mend_soon(&mut self, now: Instant) {
        let settled = now + MEND_SETTLE;
        let earliest = self.mended.map_or(settled, |mended| mended + self.mend_pause);
        self.mend_at.get_or_insert(earliest.max(settled));
    }

    /// Whether a repair is scheduled; until then a check finds nothing new.
    pub(super) fn will_mend(&self) -> bool {
        self.mend_at.is_some()
    }

    /// Whether a repair is due; if so, marks it as begun.
    pub(super) fn take_mend(&mut self, now: Instant) -> bool {
        let due = self.mend_at.is_some_and(|at| at <= now);
        if due {
            (self.mend_at, self.mended) = (None, Some(now));
        }
        due
    }

    /// The least time between two repairs.
    pub(super) fn mend_pause(&self) -> Duration {
        self.mend_pause
    }

    pub(super) fn is_look_due(&self, now: Instant) -> bool {
        self.look_at.is_some_and(|at| at <= now)
    }

    /// Records a check.
    pub(super) fn looked(&mut self, begun: Instant, now: Instant) {
        self.look_at = None;
        self.no_look_before = now + LOOK_PAUSE.max((now - begun) * LOOK_SHARE);
    }

    /// The kernel announced a change of addresses or links: schedules reading them.
    pub(super) fn read_addresses_soon(&mut self, now: Instant) {
        self.addresses_at.get_or_insert((now + SETTLE).max(self.no_addresses_before));
    }

    /// Whether a read is scheduled; until then further announcements can be ignored.
    pub(super) fn will_read_addresses(&self) -> bool {
        self.addresses_at.is_some()
    }

    pub(super) fn are_addresses_due(&self, now: Instant) -> bool {
        self.addresses_at.is_some_and(|at| at <= now)
    }

    /// Records a read of the addresses. Each pod that is added or removed is a change, so reads are limited to the same
    /// share of time as checks.
    pub(super) fn read_addresses(&mut self, begun: Instant, now: Instant) {
        self.addresses_at = None;
        self.no_addresses_before = now + LOOK_PAUSE.max((now - begun) * LOOK_SHARE);
    }

    /// Whether a period is over; if so, begins the next.
    pub(super) fn take_tick(&mut self, now: Instant) -> bool {
        let over = self.tick_at <= now;
        if over {
            self.tick_at = now + self.period;
        }
        over
    }

    /// Whether a periodic full sync is due; if so, schedules the next.
    pub(super) fn take_full(&mut self, now: Instant) -> bool {
        let over = self.full_at <= now;
        if over {
            self.full_at = now + FULL_SYNC;
        }
        over
    }

    /// Whether the work besides syncs is due; if so, unschedules it.
    pub(super) fn take_follow_up(&mut self, now: Instant) -> bool {
        let due = self.follow_up_at.is_some_and(|at| at <= now);
        if due {
            self.follow_up_at = None;
        }
        due
    }

    /// Schedules the work besides syncs.
    pub(super) fn follow_up(&mut self, at: Option<Instant>) {
        self.follow_up_at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn writes_of_others_postpone_no_sync_and_ask_for_few_looks() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Duration::ZERO, 30 * SECOND, start);
        let (mut looks, mut now) = (0, start);
        // A hundred writes in a second, all announced; a check takes 5 ms.
        for _ in 0..100 {
            now += Duration::from_millis(10);
            schedule.look_soon(now);
            assert!(schedule.next(true) <= now && schedule.may_sync(now), "a sync waits for nothing");
            if schedule.is_look_due(now) {
                schedule.looked(now, now + Duration::from_millis(5));
                looks += 1;
            }
        }
        assert_eq!(looks, 4);
    }

    #[test]
    fn a_program_that_flushes_for_ever_is_mended_soon_and_then_at_the_pace_of_syncs() {
        for (least, mends) in [(Duration::ZERO, 10), (SECOND, 10), (5 * SECOND, 2)] {
            let start = Instant::now();
            let mut schedule = Schedule::new(least, 30 * SECOND, start);
            let mut times = Vec::new();
            for step in 0..1000 {
                let now = start + Duration::from_millis(10) * step;
                schedule.mend_soon(now);
                assert!(schedule.next(false) <= now + least.max(SECOND) && schedule.will_look());
                if schedule.take_mend(now) {
                    schedule.synced(true, true, now + Duration::from_millis(1));
                    times.push(now - start);
                }
            }
            assert_eq!(times[0], MEND_SETTLE);
            assert!(times.len() <= mends && times.len() + 2 >= mends, "{least:?}: {times:?}");
        }
    }

    #[test]
    fn a_full_sync_for_another_reason_mends_as_well() {
        let start = Instant::now();
        let mut schedule = Schedule::new(SECOND, 30 * SECOND, start);
        schedule.mend_soon(start);
        assert!(!schedule.take_mend(start) && schedule.take_mend(start + MEND_SETTLE) && !schedule.will_mend());
        schedule.mend_soon(start);
        schedule.synced(false, true, start);
        assert!(schedule.will_mend(), "a partial one mends nothing");
        schedule.synced(true, false, start);
        assert!(schedule.will_mend(), "nor one that failed");
        schedule.synced(true, true, start);
        assert!(!schedule.will_mend());
    }

    #[test]
    fn a_look_that_takes_long_is_rare() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Duration::ZERO, 30 * SECOND, start);
        schedule.look_soon(start);
        assert!(!schedule.is_look_due(start), "what one program writes is gathered");
        schedule.looked(start, start + SECOND);
        schedule.look_soon(start + SECOND);
        assert!(!schedule.is_look_due(start + 10 * SECOND) && schedule.is_look_due(start + 11 * SECOND));
    }

    #[test]
    fn addresses_that_change_all_the_time_are_read_as_rarely_as_tables() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Duration::ZERO, 30 * SECOND, start);
        schedule.read_addresses_soon(start);
        assert_eq!(schedule.next(false), start + SETTLE, "long before the period is over");
        assert!(!schedule.are_addresses_due(start) && schedule.are_addresses_due(start + SETTLE));
        schedule.read_addresses(start, start + SECOND);
        assert!(!schedule.will_read_addresses());
        schedule.read_addresses_soon(start + SECOND);
        assert!(schedule.will_read_addresses() && !schedule.are_addresses_due(start + 10 * SECOND));
        assert!(schedule.are_addresses_due(start + 11 * SECOND));
    }

    #[test]
    fn the_first_of_all_that_is_to_do_is_next() {
        let start = Instant::now();
        let mut schedule = Schedule::new(SECOND, 30 * SECOND, start);
        assert_eq!(schedule.next(false), start + 30 * SECOND);
        schedule.synced(false, false, start);
        assert_eq!(schedule.next(true), start + Duration::from_millis(100), "a failed sync is repeated");
        schedule.follow_up(Some(start + Duration::from_millis(50)));
        assert_eq!(schedule.next(true), start + Duration::from_millis(50));
        assert!(schedule.take_follow_up(start + SECOND) && !schedule.take_follow_up(start + SECOND));
        assert!(schedule.take_tick(start + 30 * SECOND) && !schedule.take_tick(start + 30 * SECOND));
        assert!(!schedule.take_full(start + 30 * SECOND) && schedule.take_full(start + FULL_SYNC));
    }
}
