use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A token bucket, as in client-go.
#[derive(Debug)]
pub(super) struct RateLimit {
    period: Duration,
    burst: u32,
    /// When the bucket would be full without further requests.
    full_at: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// As in client-go, there is no limit unless `qps` is positive.
    pub(super) fn new(qps: f32, burst: u32) -> Option<RateLimit> {
        let period = (qps > 0.0).then(|| Duration::try_from_secs_f64(1.0 / f64::from(qps)).ok())??;
        Some(RateLimit { period, burst: burst.max(1), full_at: Mutex::new(None) })
    }

    pub(super) async fn wait(&self) {
        sleep_until(self.take(Instant::now())).await;
    }

    /// Takes a token; returns when it is there.
    fn take(&self, now: Instant) -> Instant {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let full = full_at.unwrap_or(now).max(now) + self.period;
        *full_at = Some(full);
        full.checked_sub(self.period.saturating_mul(self.burst)).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_by_the_rate() {
        let limit = RateLimit::new(5.0, 10).expect("a limit");
        let start = Instant::now();
        let after = |limit: &RateLimit, now| limit.take(now).saturating_duration_since(start);
        assert!((0..10).all(|_| after(&limit, start).is_zero()));
        assert_eq!(after(&limit, start), Duration::from_millis(200));
        assert_eq!(after(&limit, start), Duration::from_millis(400));
        let later = start + Duration::from_secs(60);
        assert!((0..10).all(|_| limit.take(later) <= later), "the bucket is full again");
        assert!([0.0, -1.0, f32::NAN].into_iter().all(|qps| RateLimit::new(qps, 10).is_none()));
        assert!(
            RateLimit::new(f32::MIN_POSITIVE, u32::MAX).is_none_or(|limit| limit.take(start) <= start + limit.period)
        );
    }
}
