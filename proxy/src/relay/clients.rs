//! Which backend each client had last: session affinity by client address.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use lru::LruCache;

/// Clients that a service port remembers at most; beyond them the one that was silent for longest is forgotten before its time.
pub const MOST_CLIENTS: usize = 65_536;

/// Clients and their backends, in the order in which they connected last.
#[derive(Debug)]
pub struct Clients {
    /// Without a bound of its own: with one it asks for the memory of all clients at once.
    last: LruCache<IpAddr, (SocketAddr, Instant)>,
}

impl Default for Clients {
    fn default() -> Clients {
        Clients { last: LruCache::unbounded() }
    }
}

impl Clients {
    /// The backend that a client had less than `timeout` ago.
    pub fn get(&self, client: IpAddr, timeout: Duration, now: Instant) -> Option<SocketAddr> {
        let (backend, at) = self.last.peek(&client)?;
        (now.saturating_duration_since(*at) < timeout).then_some(*backend)
    }

    /// A client has this backend now.
    pub fn note(&mut self, client: IpAddr, backend: SocketAddr, now: Instant) {
        self.last.put(client, (backend, now));
        if self.last.len() > MOST_CLIENTS {
            self.last.pop_lru();
        }
    }

    /// A client's backend has failed it.
    pub fn forget(&mut self, client: IpAddr) {
        self.last.pop(&client);
    }

    /// Clients of backends that are no more are forgotten. Costs as much as there are clients.
    pub fn keep(&mut self, is_there: impl Fn(&SocketAddr) -> bool) {
        let gone = self.last.iter().filter(|(_, (backend, _))| !is_there(backend)).map(|(client, _)| *client);
        for client in gone.collect::<Vec<_>>() {
            self.last.pop(&client);
        }
    }

    /// Forgets all of them, and gives their memory back.
    pub fn clear(&mut self) {
        *self = Clients::default();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}
