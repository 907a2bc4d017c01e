//! When a family's runner has what to do. Pure: a test can ask for any order of events.

use std::time::Duration;

use tokio::time::Instant;

use super::pacer::Pacer;

/// How long the announcements of one change are gathered before a look.
const SETTLE: Duration = Duration::from_millis(20);
/// Between two looks. A program that writes its own rules all the time must not keep us busy.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Looks may take this part of the time: with the legacy variant each reads whole tables.
const LOOK_SHARE: u32 = 10;
/// From a loss to the full sync that mends it: a script that flushes a table and then removes its chains comes to its end first.
const MEND_SETTLE: Duration = Duration::from_millis(250);
/// Between two full syncs that mend what another program took away, if the period of syncs is shorter: a program that flushes for
/// ever gets no more than one a second.
const MEND_PAUSE: Duration = Duration::from_secs(1);
/// The whole state is compared with the kernel's at least so often (upstream's period of full syncs).
const FULL_SYNC: Duration = Duration::from_secs(3600);

/// What to do, and when.
#[derive(Debug)]
pub(super) struct Schedule {
    pacer: Pacer,
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
    /// One sync per `least`, and a look at everything each `period`.
    pub(super) fn new(least: Duration, period: Duration, now: Instant) -> Schedule {
        Schedule {
            pacer: Pacer::new(least, period, now),
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

    /// The next moment at which there is something to do; `due`: a sync is.
    pub(super) fn next(&self, due: bool) -> Instant {
        let sync = due.then(|| self.pacer.next());
        let others = [sync, self.look_at, self.mend_at, self.follow_up_at, self.addresses_at];
        others.into_iter().flatten().fold(self.tick_at, Instant::min)
    }

    /// A sync that is due may begin.
    pub(super) fn may_sync(&self, now: Instant) -> bool {
        self.pacer.next() <= now
    }

    /// A sync has ended; one that was `full` and succeeded has mended everything.
    pub(super) fn synced(&mut self, full: bool, succeeded: bool, now: Instant) {
        if full && succeeded {
            self.mend_at = None;
            self.mended = self.mended.map(|_| now);
        }
        if succeeded { self.pacer.succeeded(now) } else { self.pacer.failed(now) }
    }

    /// Another program wrote to the tables: they are to be looked at.
    pub(super) fn look_soon(&mut self, now: Instant) {
        self.look_at.get_or_insert((now + SETTLE).max(self.no_look_before));
    }

    /// Whether a look is to come: nothing needs to be heard of further writes until then.
    pub(super) fn will_look(&self) -> bool {
        self.look_at.is_some() || self.will_mend()
    }

    /// A look has found something gone: a full sync is due, soon unless there was one for the same reason just before.
    pub(super) fn mend_soon(&mut self, now: Instant) {
        let settled = now + MEND_SETTLE;
        let earliest = self.mended.map_or(settled, |mended| mended + self.mend_pause);
        self.mend_at.get_or_insert(earliest.max(settled));
    }

    /// Whether such a sync is to come: no look would say more until then.
    pub(super) fn will_mend(&self) -> bool {
        self.mend_at.is_some()
    }

    /// Whether its time has come.
    pub(super) fn take_mend(&mut self, now: Instant) -> bool {
        let due = self.mend_at.is_some_and(|at| at <= now);
        if due {
            (self.mend_at, self.mended) = (None, Some(now));
        }
        due
    }

    /// The least time between two such syncs.
    pub(super) fn mend_pause(&self) -> Duration {
        self.mend_pause
    }

    /// Whether it is time for a look.
    pub(super) fn is_look_due(&self, now: Instant) -> bool {
        self.look_at.is_some_and(|at| at <= now)
    }

    /// The tables were looked at.
    pub(super) fn looked(&mut self, begun: Instant, now: Instant) {
        self.look_at = None;
        self.no_look_before = now + LOOK_PAUSE.max((now - begun) * LOOK_SHARE);
    }

    /// The kernel has announced a change of addresses or links: they are to be read.
    pub(super) fn read_addresses_soon(&mut self, now: Instant) {
        self.addresses_at.get_or_insert((now + SETTLE).max(self.no_addresses_before));
    }

    /// Whether such a read is to come: nothing needs to be heard of further changes until then.
    pub(super) fn will_read_addresses(&self) -> bool {
        self.addresses_at.is_some()
    }

    /// Whether it is time for that read.
    pub(super) fn are_addresses_due(&self, now: Instant) -> bool {
        self.addresses_at.is_some_and(|at| at <= now)
    }

    /// Addresses were read. Each pod that comes or goes is a change: reads may take no more of the time than looks do.
    pub(super) fn read_addresses(&mut self, begun: Instant, now: Instant) {
        self.addresses_at = None;
        self.no_addresses_before = now + LOOK_PAUSE.max((now - begun) * LOOK_SHARE);
    }

    /// Whether a period is over; if so, the next one begins.
    pub(super) fn take_tick(&mut self, now: Instant) -> bool {
        let over = self.tick_at <= now;
        if over {
            self.tick_at = now + self.period;
        }
        over
    }

    /// Whether the whole state is to be compared again.
    pub(super) fn take_full(&mut self, now: Instant) -> bool {
        let over = self.full_at <= now;
        if over {
            self.full_at = now + FULL_SYNC;
        }
        over
    }

    /// Whether it is time to look after what goes on beside syncs.
    pub(super) fn take_follow_up(&mut self, now: Instant) -> bool {
        let due = self.follow_up_at.is_some_and(|at| at <= now);
        if due {
            self.follow_up_at = None;
        }
        due
    }

    /// When to look after it again, if at all.
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
        // A hundred writes in a second, each heard of; a look takes 5 ms.
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
