//! Decides when a family's runner syncs, checks and repairs. Without clock and I/O, so tests can replay any order of
//! events.

use std::time::Duration;

use tokio::time::Instant;

use super::pacer::SyncPacer;

/// The kernel's announcements within this time cause one check.
const SETTLE: Duration = Duration::from_millis(20);
/// The least pause between checks: a program may write its own rules all the time.
const CHECK_PAUSE: Duration = Duration::from_millis(250);
/// Checks take at most a tenth of the time: the legacy variant reads whole tables.
const CHECK_SHARE: u32 = 10;
/// The wait before a repair: a script that flushes a table may go on to delete its chains.
const REPAIR_SETTLE: Duration = Duration::from_millis(250);
/// The least pause between repairs: a program may flush forever.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);
/// The interval of full syncs, as in kube-proxy.
const FULL_SYNC: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Schedule {
    pacer: SyncPacer,
    period: Duration,
    tick_at: Instant,
    full_at: Instant,
    check_at: Option<Instant>,
    no_check_before: Instant,
    repair_pause: Duration,
    repair_at: Option<Instant>,
    repaired: Option<Instant>,
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
            check_at: None,
            no_check_before: now,
            repair_pause: least.max(REPAIR_PAUSE),
            repair_at: None,
            repaired: None,
            follow_up_at: None,
            addresses_at: None,
            no_addresses_before: now,
        }
    }

    pub(super) fn next(&self, due: bool) -> Instant {
        let sync = due.then(|| self.pacer.next());
        let others = [sync, self.check_at, self.repair_at, self.follow_up_at, self.addresses_at];
        others.into_iter().flatten().fold(self.tick_at, Instant::min)
    }

    pub(super) fn may_sync(&self, now: Instant) -> bool {
        self.pacer.next() <= now
    }

    /// Records a sync; a successful full one repairs every deletion.
    pub(super) fn synced(&mut self, full: bool, succeeded: bool, now: Instant) {
        if full && succeeded {
            self.repair_at = None;
            self.repaired = self.repaired.map(|_| now);
        }
        if succeeded { self.pacer.succeeded(now) } else { self.pacer.failed(now) }
    }

    pub(super) fn check_soon(&mut self, now: Instant) {
        self.check_at.get_or_insert((now + SETTLE).max(self.no_check_before));
    }

    /// While a check is scheduled, further writes can be ignored.
    pub(super) fn is_check_scheduled(&self) -> bool {
        self.check_at.is_some() || self.is_repair_scheduled()
    }

    pub(super) fn repair_soon(&mut self, now: Instant) {
        let settled = now + REPAIR_SETTLE;
        let earliest = self.repaired.map_or(settled, |repaired| repaired + self.repair_pause);
        self.repair_at.get_or_insert(earliest.max(settled));
    }

    pub(super) fn is_repair_scheduled(&self) -> bool {
        self.repair_at.is_some()
    }

    pub(super) fn take_repair(&mut self, now: Instant) -> bool {
        let due = take_due(&mut self.repair_at, now);
        if due {
            self.repaired = Some(now);
        }
        due
    }

    pub(super) fn repair_pause(&self) -> Duration {
        self.repair_pause
    }

    pub(super) fn is_check_due(&self, now: Instant) -> bool {
        self.check_at.is_some_and(|at| at <= now)
    }

    pub(super) fn checked(&mut self, begun: Instant, now: Instant) {
        self.check_at = None;
        self.no_check_before = after_pause(begun, now);
    }

    pub(super) fn read_addresses_soon(&mut self, now: Instant) {
        self.addresses_at.get_or_insert((now + SETTLE).max(self.no_addresses_before));
    }

    pub(super) fn is_read_scheduled(&self) -> bool {
        self.addresses_at.is_some()
    }

    pub(super) fn are_addresses_due(&self, now: Instant) -> bool {
        self.addresses_at.is_some_and(|at| at <= now)
    }

    /// Each added or removed pod changes addresses, so reads of them are limited as checks are.
    pub(super) fn read_addresses(&mut self, begun: Instant, now: Instant) {
        self.addresses_at = None;
        self.no_addresses_before = after_pause(begun, now);
    }

    pub(super) fn take_tick(&mut self, now: Instant) -> bool {
        take_period(&mut self.tick_at, self.period, now)
    }

    pub(super) fn take_full(&mut self, now: Instant) -> bool {
        take_period(&mut self.full_at, FULL_SYNC, now)
    }

    pub(super) fn take_follow_up(&mut self, now: Instant) -> bool {
        take_due(&mut self.follow_up_at, now)
    }

    pub(super) fn follow_up(&mut self, at: Option<Instant>) {
        self.follow_up_at = at;
    }
}

fn take_due(at: &mut Option<Instant>, now: Instant) -> bool {
    at.take_if(|at| *at <= now).is_some()
}

fn take_period(end: &mut Instant, period: Duration, now: Instant) -> bool {
    let over = *end <= now;
    if over {
        *end = now + period;
    }
    over
}

fn after_pause(begun: Instant, now: Instant) -> Instant {
    now + CHECK_PAUSE.max((now - begun) * CHECK_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn writes_of_others_delay_no_sync_and_cause_few_checks() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Duration::ZERO, 30 * SECOND, start);
        let (mut looks, mut now) = (0, start);
        // A hundred writes in a second, all announced; a check takes 5 ms.
        for _ in 0..100 {
            now += Duration::from_millis(10);
            schedule.check_soon(now);
            assert!(schedule.next(true) <= now && schedule.may_sync(now), "a sync waits for nothing");
            if schedule.is_check_due(now) {
                schedule.checked(now, now + Duration::from_millis(5));
                looks += 1;
            }
        }
        assert_eq!(looks, 4);
    }

    #[test]
    fn endless_flushes_are_repaired_at_the_pace_of_syncs() {
        for (least, mends) in [(Duration::ZERO, 10), (SECOND, 10), (5 * SECOND, 2)] {
            let start = Instant::now();
            let mut schedule = Schedule::new(least, 30 * SECOND, start);
            let mut times = Vec::new();
            for step in 0..1000 {
                let now = start + Duration::from_millis(10) * step;
                schedule.repair_soon(now);
                assert!(schedule.next(false) <= now + least.max(SECOND) && schedule.is_check_scheduled());
                if schedule.take_repair(now) {
                    schedule.synced(true, true, now + Duration::from_millis(1));
                    times.push(now - start);
                }
            }
            assert_eq!(times[0], REPAIR_SETTLE);
            assert!(times.len() <= mends && times.len() + 2 >= mends, "{least:?}: {times:?}");
        }
    }

    #[test]
    fn any_successful_full_sync_repairs() {
        let start = Instant::now();
        let mut schedule = Schedule::new(SECOND, 30 * SECOND, start);
        schedule.repair_soon(start);
        assert!(
            !schedule.take_repair(start)
                && schedule.take_repair(start + REPAIR_SETTLE)
                && !schedule.is_repair_scheduled()
        );
        schedule.repair_soon(start);
        schedule.synced(false, true, start);
        assert!(schedule.is_repair_scheduled(), "a partial one mends nothing");
        schedule.synced(true, false, start);
        assert!(schedule.is_repair_scheduled(), "nor one that failed");
        schedule.synced(true, true, start);
        assert!(!schedule.is_repair_scheduled());
    }

    #[test]
    fn slow_checks_are_rare() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Duration::ZERO, 30 * SECOND, start);
        schedule.check_soon(start);
        assert!(!schedule.is_check_due(start), "what one program writes is gathered");
        schedule.checked(start, start + SECOND);
        schedule.check_soon(start + SECOND);
        assert!(!schedule.is_check_due(start + 10 * SECOND) && schedule.is_check_due(start + 11 * SECOND));
    }

    #[test]
    fn addresses_that_change_all_the_time_are_read_rarely() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Duration::ZERO, 30 * SECOND, start);
        schedule.read_addresses_soon(start);
        assert_eq!(schedule.next(false), start + SETTLE, "long before the period is over");
        assert!(!schedule.are_addresses_due(start) && schedule.are_addresses_due(start + SETTLE));
        schedule.read_addresses(start, start + SECOND);
        assert!(!schedule.is_read_scheduled());
        schedule.read_addresses_soon(start + SECOND);
        assert!(schedule.is_read_scheduled() && !schedule.are_addresses_due(start + 10 * SECOND));
        assert!(schedule.are_addresses_due(start + 11 * SECOND));
    }

    #[test]
    fn the_earliest_job_is_next() {
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
