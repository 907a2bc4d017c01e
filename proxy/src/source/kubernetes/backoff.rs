use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The wait doubles with each failure. As in client-go's reflectors up to as much is added at random, so that nodes do not
/// reconnect together.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, next: first }
    }

    pub(super) fn wait(&mut self) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.longest);
        step + step.mul_f64(chance())
    }

    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

pub(super) fn chance() -> f64 {
    let drawn = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(drawn >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_reset() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, longest);
        for step in [100, 200, 400, 800] {
            let wait = backoff.wait().as_millis();
            assert!((step..=step * 2).contains(&wait), "{step}: {wait}");
        }
        assert!((longest..=longest * 2).contains(&backoff.wait()));
        backoff.reset();
        assert!(backoff.wait() <= first * 2);
        assert!((0..100).map(|_| chance()).all(|c| (0.0..=1.0).contains(&c)));
        assert!(chance() != chance() || chance() != chance());
    }
}
