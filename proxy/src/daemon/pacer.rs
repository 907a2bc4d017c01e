use std::time::Duration;

use tokio::time::Instant;

use crate::habits::{self, Habit};

/// Consecutive syncs without a wait, as in kube-proxy's bounded-frequency runner.
const BURST: u32 = 2;
/// The pause after the first failure; doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct SyncPacer {
    period: Duration,
    longest_retry: Duration,
    /// When the token bucket would be full without further syncs.
    full_at: Instant,
    retry: Option<(Duration, Instant)>,
}

impl SyncPacer {
    /// Allows one sync per `period`; after failures at least one attempt per `longest_retry`.
    pub fn new(period: Duration, longest_retry: Duration, now: Instant) -> SyncPacer {
        SyncPacer { period, longest_retry, full_at: now, retry: None }
    }

    pub fn next(&self) -> Instant {
        let credit = self.period * (BURST - 1);
        let by_rate = self.full_at.checked_sub(credit).unwrap_or(self.full_at);
        self.retry.map_or(by_rate, |(_, at)| at.max(by_rate))
    }

    pub fn succeeded(&mut self, now: Instant) {
        self.retry = None;
        self.take(now);
    }

    pub fn failed(&mut self, now: Instant) {
        let first = if habits::has(Habit::GivesUp) { Duration::from_secs(3600) } else { FIRST_RETRY };
        let wait = self.retry.map_or(first, |(wait, _)| (wait * 2).min(self.longest_retry));
        self.retry = Some((wait, now + wait));
        self.take(now);
    }

    fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_of_two_then_one_per_period() {
        let start = Instant::now();
        let mut pacer = SyncPacer::new(SECOND, 30 * SECOND, start);
        assert!(pacer.next() <= start);
        pacer.succeeded(start);
        assert!(pacer.next() <= start);
        pacer.succeeded(start);
        assert_eq!(pacer.next(), start + SECOND);
        pacer.succeeded(start + SECOND);
        assert_eq!(pacer.next(), start + 2 * SECOND);
    }

    #[test]
    fn waits_double_after_failures_and_reset_after_a_success() {
        let start = Instant::now();
        let mut pacer = SyncPacer::new(Duration::ZERO, SECOND, start);
        let waits: Vec<u128> = (0..6)
            .map(|_| {
                pacer.failed(start);
                (pacer.next() - start).as_millis()
            })
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        pacer.succeeded(start);
        assert!(pacer.next() <= start);
    }
}
