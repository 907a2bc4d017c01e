use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tracing::warn;

const WARN_AGAIN: Duration = Duration::from_secs(60);

/// At the limit, a new connection replaces one of the listener with the most connections, preferably the longest idle.
#[derive(Debug, Clone)]
pub struct ConnectionLimit(Arc<SharedLimit>);

#[derive(Debug)]
struct SharedLimit {
    purpose: &'static str,
    most: usize,
    places: Arc<Semaphore>,
    connections: Mutex<OpenConnections>,
    warned: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    clock: u64,
    taken: BTreeMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    listener: u64,
    /// Logical time of the last event: accepted, request begun, or request ended.
    since: u64,
    /// False while a reply is written: a client that does not read is not busy.
    answering: bool,
    task: Option<AbortHandle>,
}

impl ConnectionLimit {
    pub fn new(purpose: &'static str, most: usize) -> ConnectionLimit {
        let places = Arc::new(Semaphore::new(most));
        ConnectionLimit(Arc::new(SharedLimit {
            purpose,
            most,
            places,
            connections: Mutex::default(),
            warned: Mutex::default(),
        }))
    }

    pub(super) fn listener(&self) -> u64 {
        self.connections().tick()
    }

    /// Waits for a free slot; at the limit, first closes another connection.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        let places = Arc::clone(&self.0.places);
        if let Ok(free) = Arc::clone(&places).try_acquire_owned() {
            return Some(free);
        }
        if self.close_one() {
            self.warn(&format!(
                "as many connections to {} as there may be ({}): old ones end for new ones",
                self.0.purpose, self.0.most
            ));
        }
        places.acquire_owned().await.ok()
    }

    /// Closes a connection after an accept failed for lack of descriptors or memory.
    pub(super) fn shortage(&self, error: &io::Error) {
        self.close_one();
        self.warn(&format!("cannot accept a connection to {}: {error}", self.0.purpose));
    }

    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        place: OwnedSemaphorePermit,
        listener: u64,
        tasks: &mut JoinSet<()>,
        connection: impl FnOnce(Arc<ConnectionSlot>) -> F,
    ) {
        let number = {
            let mut connections = self.connections();
            let number = connections.tick();
            connections.taken.insert(number, OpenConnection { listener, since: number, answering: false, task: None });
            number
        };
        // No lock is held: a task may end within `spawn`, and then removes its entry.
        let task = tasks.spawn(connection(Arc::new(ConnectionSlot { limit: self.clone(), number, _place: place })));
        if let Some(taken) = self.connections().taken.get_mut(&number) {
            taken.task = Some(task);
        }
    }

    fn close_one(&self) -> bool {
        let ended = {
            let mut connections = self.connections();
            connections.next_to_close().and_then(|number| connections.taken.remove(&number))
        };
        ended.and_then(|taken| taken.task).inspect(AbortHandle::abort).is_some()
    }

    fn warn(&self, line: &str) {
        let mut warned = self.0.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() >= WARN_AGAIN) {
            *warned = Some(Instant::now());
            warn!("{line}");
        }
    }

    fn connections(&self) -> MutexGuard<'_, OpenConnections> {
        self.0.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn next_to_close(&self) -> Option<u64> {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for taken in self.taken.values() {
            *counts.entry(taken.listener).or_default() += 1;
        }
        let (crowded, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let of_crowded = self.taken.iter().filter(|(_, taken)| taken.listener == crowded && taken.task.is_some());
        of_crowded.min_by_key(|(_, taken)| (taken.answering, taken.since)).map(|(number, _)| *number)
    }
}

#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limit: ConnectionLimit,
    number: u64,
    _place: OwnedSemaphorePermit,
}

impl ConnectionSlot {
    pub(super) fn begin(self: Arc<Self>) -> RequestInProgress {
        self.set(true);
        RequestInProgress(self)
    }

    fn set(&self, answering: bool) {
        let mut connections = self.limit.connections();
        let since = connections.tick();
        if let Some(taken) = connections.taken.get_mut(&self.number) {
            (taken.since, taken.answering) = (since, answering);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.limit.connections().taken.remove(&self.number);
    }
}

pub(super) struct RequestInProgress(Arc<ConnectionSlot>);

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(taken: &[(u64, u64, bool)]) -> OpenConnections {
        let entry = |(number, (listener, since, answering)): (u64, &(u64, u64, bool))| {
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            (number, OpenConnection { listener: *listener, since: *since, answering: *answering, task: Some(task) })
        };
        OpenConnections { clock: 0, taken: (0..).zip(taken).map(entry).collect() }
    }

    #[tokio::test]
    async fn the_longest_idle_connection_of_the_fullest_listener_closes() {
        assert_eq!(connections(&[]).next_to_close(), None);
        assert_eq!(connections(&[(1, 5, false), (1, 4, false), (1, 6, false)]).next_to_close(), Some(1));
        assert_eq!(
            connections(&[(1, 3, true), (1, 5, false), (1, 4, true)]).next_to_close(),
            Some(1),
            "the others are served"
        );
        assert_eq!(connections(&[(1, 7, true), (1, 6, true)]).next_to_close(), Some(1), "all are served");
        assert_eq!(
            connections(&[(1, 1, false), (2, 2, true), (2, 3, true)]).next_to_close(),
            Some(1),
            "of another listener"
        );
    }
}
