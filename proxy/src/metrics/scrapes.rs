//! Concurrent scrapes share one collection of the metrics.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::watch;

use super::Metrics;

/// The time for a scrape: less than Prometheus' default timeout of 10 seconds.
const PATIENCE: Duration = Duration::from_secs(9);

type ScrapeText = Result<Bytes, String>;

#[derive(Debug, thiserror::Error)]
pub(super) enum ScrapeError {
    #[error("the metrics are still being gathered after {PATIENCE:?}; a later scrape waits for the same ones")]
    Late,
    #[error("the metrics could not be gathered: {0}")]
    Failed(String),
}

/// A scrape that joins a collection may get values from shortly before its request.
#[derive(Debug)]
pub(super) struct Scrapes {
    metrics: Arc<Metrics>,
    under_way: Arc<Mutex<RunningScrape>>,
}

type RunningScrape = Weak<watch::Sender<Option<ScrapeText>>>;

impl Scrapes {
    pub(super) fn new(metrics: Arc<Metrics>) -> Scrapes {
        Scrapes { metrics, under_way: Arc::default() }
    }

    /// Dropping the future leaves the shared collection running.
    pub(super) async fn text(&self) -> Result<Bytes, ScrapeError> {
        let mut gathered = self.join();
        let waited = tokio::time::timeout(PATIENCE, gathered.wait_for(Option::is_some)).await;
        match waited.map_err(|_| ScrapeError::Late)? {
            Ok(gathered) => match &*gathered {
                Some(gathered) => gathered.clone().map_err(ScrapeError::Failed),
                None => Err(ScrapeError::Late),
            },
            Err(_) => Err(ScrapeError::Failed("the thread has ended early".to_owned())),
        }
    }

    /// Collects on a blocking thread: reading the kernel's counters is slow.
    fn join(&self) -> watch::Receiver<Option<ScrapeText>> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = under_way.upgrade() {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(None);
        let (sender, metrics) = (Arc::new(sender), Arc::clone(&self.metrics));
        *under_way = Arc::downgrade(&sender);
        let finished = Arc::clone(&self.under_way);
        tokio::task::spawn_blocking(move || {
            let gathered = metrics.text().map(Bytes::from).map_err(|error| error.to_string());
            *finished.lock().unwrap_or_else(PoisonError::into_inner) = Weak::new();
            sender.send_replace(Some(gathered));
        });
        receiver
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::AtScrape;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    fn counted() -> (Arc<Scrapes>, Arc<AtomicUsize>, mpsc::Sender<()>) {
        let (go_on, wait) = mpsc::channel();
        let (readings, wait) = (Arc::new(AtomicUsize::new(0)), Mutex::new(wait));
        let counter = Arc::clone(&readings);
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let read = move || {
            let reading = counter.fetch_add(1, Ordering::SeqCst) + 1;
            wait.lock().unwrap().recv().unwrap();
            vec![vec![(Vec::new(), reading as f64)]]
        };
        let metrics = Metrics::new(&[]).unwrap();
        metrics.register(AtScrape::new(read).gauge("reading", "R.", &[]).unwrap()).unwrap();
        (Arc::new(Scrapes::new(Arc::new(metrics))), readings, go_on)
    }

    async fn until(condition: impl Fn() -> bool) {
        let all = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
    }

    fn waiting(scrapes: &Scrapes) -> usize {
        scrapes.under_way.lock().unwrap().upgrade().map_or(0, |sender| sender.receiver_count())
    }

    #[tokio::test]
    async fn concurrent_scrapes_share_one_collection() {
        let (scrapes, readings, go_on) = counted();
        let ask = || {
            let scrapes = Arc::clone(&scrapes);
            tokio::spawn(async move { scrapes.text().await })
        };
        let asked: Vec<_> = (0..50).map(|_| ask()).collect();
        until(|| waiting(&scrapes) == 50).await;
        asked.iter().skip(1).for_each(|one| one.abort());
        until(|| waiting(&scrapes) == 1).await;
        let later = ask();
        until(|| waiting(&scrapes) == 2).await;
        until(|| readings.load(Ordering::SeqCst) > 0).await;
        assert_eq!(readings.load(Ordering::SeqCst), 1);
        go_on.send(()).unwrap();
        let first = asked.into_iter().next().unwrap().await.unwrap().unwrap();
        assert!(first.windows(11).any(|part| part == b"\nreading 1\n"), "{first:?}");
        assert_eq!(later.await.unwrap().unwrap(), first);
        go_on.send(()).unwrap();
        until(|| waiting(&scrapes) == 0).await;
        let next = ask().await.unwrap().unwrap();
        assert!(next.windows(11).any(|part| part == b"\nreading 2\n"), "what is old is not handed out: {next:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_scrape_times_out() {
        let (scrapes, readings, go_on) = counted();
        for _ in 0..3 {
            // A paused clock does not advance while a blocking task runs.
            let pushed = async {
                tokio::task::yield_now().await;
                tokio::time::advance(2 * PATIENCE).await;
            };
            let (text, ()) = tokio::join!(scrapes.text(), pushed);
            assert!(matches!(text, Err(ScrapeError::Late)), "{text:?}");
        }
        assert!(readings.load(Ordering::SeqCst) <= 1, "its thread may not have begun");
        go_on.send(()).unwrap();
    }
}
