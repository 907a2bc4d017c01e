//! Draining backends have weight 0 and get no new connections. They are removed when their connections have ended, or
//! after the time limit. They are destinations of the proxy's virtual servers that no service port wants, so a restart
//! finds them, and restarts the limit.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::desired::DesiredState;
use super::observed::ObservedState;
use crate::kernel::ipvs::{Destinations, ServerChange, ServerKey};

const POLL_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default)]
pub struct DrainingBackends {
    /// Draining destinations with the time of their first check.
    since: BTreeMap<ServerKey, BTreeMap<SocketAddr, Option<Instant>>>,
}

impl DrainingBackends {
    pub fn record<'a>(
        &mut self,
        keys: impl IntoIterator<Item = &'a ServerKey>,
        desired: &DesiredState,
        observed: &ObservedState,
    ) {
        for key in keys {
            let mut before = self.since.remove(key).unwrap_or_default();
            let (Some(server), Some(wanted)) = (observed.servers.get(key), desired.server(key)) else { continue };
            let is_wanted = |address: &SocketAddr| wanted.destinations.binary_search(address).is_ok();
            let leaving = server.destinations.keys().filter(|address| !is_wanted(address));
            let now: BTreeMap<SocketAddr, Option<Instant>> =
                leaving.map(|address| (*address, before.remove(address).flatten())).collect();
            if !now.is_empty() {
                self.since.insert(*key, now);
            }
        }
    }

    pub fn keep(&mut self, observed: &ObservedState) {
        self.since.retain(|key, _| observed.servers.contains_key(key));
    }

    pub fn servers(&self) -> Vec<ServerKey> {
        self.since.keys().copied().collect()
    }

    /// Returns deletions of drained or overdue destinations. `states` has the order of [`DrainingBackends::servers`].
    pub fn finished(&mut self, states: &[Destinations], now: Instant, limit: Duration) -> Vec<ServerChange> {
        let mut finished = Vec::new();
        for ((key, leaving), states) in self.since.iter_mut().zip(states) {
            for (address, since) in leaving {
                let begun = *since.get_or_insert(now);
                let late = now.saturating_duration_since(begun) >= limit;
                if late || states.get(address).is_none_or(|state| state.connections == 0) {
                    finished.push(ServerChange::DeleteDestination(*key, *address));
                }
            }
        }
        finished
    }

    pub fn remove(&mut self, changes: &[ServerChange]) {
        for change in changes {
            if let ServerChange::DeleteDestination(key, address) = change
                && let Some(leaving) = self.since.get_mut(key)
            {
                leaving.remove(address);
            }
        }
        self.since.retain(|_, leaving| !leaving.is_empty());
    }

    pub fn next(&self, now: Instant) -> Option<Instant> {
        (!self.since.is_empty()).then(|| now + POLL_INTERVAL)
    }
}
