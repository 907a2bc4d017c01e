//! Backends that leave: they get no new connection (weight 0) and keep those they have, until these have ended or their time
//! is over.
//!
//! Which backends these are is in the kernel: a destination of a virtual server of ours that no service port wants. Only since when is
//! known here alone; after a restart the time begins anew.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::desired::DesiredState;
use super::observed::ObservedState;
use crate::kernel::ipvs::{Destinations, ServerChange, ServerKey};

/// How often connections are counted while a destination drains.
const LOOK: Duration = Duration::from_secs(5);

/// Those that drain.
#[derive(Debug, Clone, Default)]
pub struct Drains {
    /// Since when; `None`: not looked at yet.
    since: BTreeMap<ServerKey, BTreeMap<SocketAddr, Option<Instant>>>,
}

impl Drains {
    /// Looks at these virtual servers: destinations that no service port wants drain, all others do not.
    pub fn note<'a>(
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

    /// Forgets all virtual servers but these.
    pub fn keep(&mut self, observed: &ObservedState) {
        self.since.retain(|key, _| observed.servers.contains_key(key));
    }

    /// The virtual servers with a destination that drains.
    pub fn servers(&self) -> Vec<ServerKey> {
        self.since.keys().copied().collect()
    }

    /// Who has no connections any more, or no time. `states` are those of [`Drains::servers`].
    pub fn over(&mut self, states: &[Destinations], now: Instant, limit: Duration) -> Vec<ServerChange> {
        let mut over = Vec::new();
        for ((key, leaving), states) in self.since.iter_mut().zip(states) {
            for (address, since) in leaving {
                let begun = *since.get_or_insert(now);
                let late = now.saturating_duration_since(begun) >= limit;
                if late || states.get(address).is_none_or(|state| state.connections == 0) {
                    over.push(ServerChange::DeleteDestination(*key, *address));
                }
            }
        }
        over
    }

    /// These are gone.
    pub fn gone(&mut self, changes: &[ServerChange]) {
        for change in changes {
            if let ServerChange::DeleteDestination(key, address) = change
                && let Some(leaving) = self.since.get_mut(key)
            {
                leaving.remove(address);
            }
        }
        self.since.retain(|_, leaving| !leaving.is_empty());
    }

    /// When to look again.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        (!self.since.is_empty()).then(|| now + LOOK)
    }
}
