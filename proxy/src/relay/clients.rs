//! Which backend each client had last: session affinity by client address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Clients that a service port remembers at most; beyond them those that were silent for longest are forgotten before their
/// time.
pub const MOST_CLIENTS: usize = 65_536;

/// Clients and their backends.
#[derive(Debug, Default)]
pub struct Clients {
    last: HashMap<IpAddr, (SocketAddr, Instant)>,
}

impl Clients {
    /// The backend that a client had less than `timeout` ago.
    pub fn get(&self, client: IpAddr, timeout: Duration, now: Instant) -> Option<SocketAddr> {
        let (backend, at) = self.last.get(&client)?;
        (now.saturating_duration_since(*at) < timeout).then_some(*backend)
    }

    /// A client has this backend now.
    pub fn note(&mut self, client: IpAddr, backend: SocketAddr, timeout: Duration, now: Instant) {
        if self.last.len() >= MOST_CLIENTS && !self.last.contains_key(&client) {
            self.make_room(timeout, now);
        }
        self.last.insert(client, (backend, now));
    }

    /// A client's backend has failed it.
    pub fn forget(&mut self, client: IpAddr) {
        self.last.remove(&client);
    }

    /// Clients of backends that are no more are forgotten.
    pub fn keep(&mut self, is_there: impl Fn(&SocketAddr) -> bool) {
        self.last.retain(|_, (backend, _)| is_there(backend));
    }

    /// Forgets everybody.
    pub fn clear(&mut self) {
        self.last = HashMap::new();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Forgets those whose time is over, or else the older half: a whole look at the table must not be needed for each client.
    fn make_room(&mut self, timeout: Duration, now: Instant) {
        self.last.retain(|_, (_, at)| now.saturating_duration_since(*at) < timeout);
        if self.last.len() < MOST_CLIENTS {
            return;
        }
        let mut times: Vec<Instant> = self.last.values().map(|(_, at)| *at).collect();
        times.sort_unstable();
        let (middle, mut spare) = (times[times.len() / 2], times.len() / 2);
        self.last.retain(|_, (_, at)| {
            let goes = *at <= middle && spare > 0;
            spare -= usize::from(goes);
            !goes
        });
    }
}
