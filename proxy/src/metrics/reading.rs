use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::warn;

use super::Samples;

/// The time for one reading: a scrape has at most two, and Prometheus waits 10 seconds by default.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

/// One reading at a time, on its own thread. Callers wait for `patience`, then use the previous samples.
pub(super) struct BackgroundReading {
    shared: Arc<SharedReading>,
    patience: Duration,
}

struct SharedReading {
    read: Box<dyn Fn() -> Vec<Samples> + Send + Sync>,
    state: Mutex<ReadingState>,
    ended: Condvar,
}

#[derive(Default)]
struct ReadingState {
    under_way: bool,
    last: Vec<Samples>,
}

impl BackgroundReading {
    /// `read` must end eventually.
    pub(super) fn new(
        read: impl Fn() -> Vec<Samples> + Send + Sync + 'static,
        patience: Duration,
    ) -> BackgroundReading {
        let shared = SharedReading { read: Box::new(read), state: Mutex::default(), ended: Condvar::new() };
        BackgroundReading { shared: Arc::new(shared), patience }
    }

    pub(super) fn samples(&self) -> Vec<Samples> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.under_way {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("scrape".to_owned()).spawn(move || shared.work());
            state.under_way =
                thread.inspect_err(|error| warn!(%error, "cannot start a thread that reads counters")).is_ok();
        }
        let ended = &self.shared.ended;
        let waited = ended.wait_timeout_while(state, self.patience, |state| state.under_way);
        waited.unwrap_or_else(PoisonError::into_inner).0.last.clone()
    }
}

impl SharedReading {
    fn work(&self) {
        let last = (self.read)();
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = ReadingState { under_way: false, last };
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[test]
    fn a_hanging_reading_keeps_the_previous_samples() {
        let (go_on, wait) = mpsc::channel::<f64>();
        let (begun, wait) = (Arc::new(AtomicUsize::new(0)), Mutex::new(wait));
        let counter = Arc::clone(&begun);
        let read = move || {
            counter.fetch_add(1, Ordering::SeqCst);
            vec![vec![(Vec::new(), wait.lock().unwrap().recv().unwrap())]]
        };
        let mut reading = BackgroundReading::new(read, Duration::from_secs(60));
        go_on.send(1.0).unwrap();
        assert_eq!(reading.samples(), [[(Vec::new(), 1.0)]]);
        reading.patience = Duration::from_millis(1);
        for _ in 0..20 {
            assert_eq!(reading.samples(), [[(Vec::new(), 1.0)]], "the next one hangs");
        }
        go_on.send(2.0).unwrap();
        reading.patience = Duration::from_secs(60);
        go_on.send(2.0).unwrap();
        assert_eq!(reading.samples(), [[(Vec::new(), 2.0)]]);
        assert!(begun.load(Ordering::SeqCst) <= 3);
    }
}
