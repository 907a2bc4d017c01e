//! Session affinity by client address: the clients of a service port, or of all ports of a Service.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lru::LruCache;

/// The most clients of a service port, or of a Service whose ports share them. The longest-idle client is forgotten first.
pub const MOST_CLIENTS: usize = 65_536;

/// The clients of all ports of a Service. The ports of remembered backends have no meaning.
pub type SharedClients = Arc<Mutex<AffinityClients>>;

#[derive(Debug)]
pub struct AffinityClients {
    /// Unbounded, because a bounded cache would allocate its memory at once.
    last: LruCache<IpAddr, (SocketAddr, Instant)>,
}

impl Default for AffinityClients {
    fn default() -> AffinityClients {
        AffinityClients { last: LruCache::unbounded() }
    }
}

impl AffinityClients {
    pub fn get(&self, client: IpAddr, timeout: Duration, now: Instant) -> Option<SocketAddr> {
        let (backend, at) = self.last.peek(&client)?;
        (now.saturating_duration_since(*at) < timeout).then_some(*backend)
    }

    pub fn record(&mut self, client: IpAddr, backend: SocketAddr, now: Instant) {
        self.last.put(client, (backend, now));
        if self.last.len() > MOST_CLIENTS {
            self.last.pop_lru();
        }
    }

    pub fn forget(&mut self, client: IpAddr) {
        self.last.pop(&client);
    }

    pub fn retain(&mut self, is_there: impl Fn(&SocketAddr) -> bool) {
        let gone = self.last.iter().filter(|(_, (backend, _))| !is_there(backend)).map(|(client, _)| *client);
        for client in gone.collect::<Vec<_>>() {
            self.last.pop(&client);
        }
    }

    pub fn clear(&mut self) {
        *self = AffinityClients::default();
    }

    pub fn len(&self) -> usize {
        self.last.len()
    }

    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}
