//! Session affinity over time: who a client must meet again, given whom it has met.
//!
//! The clock is the caller's: a duration since whenever. A client that has met several endpoints within the time-out (one
//! by way of a node port under policy Local, another by the cluster IP) may meet any of them again.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::modes::AffinityScope;
use crate::promise::{Backend, Delivery};
use crate::service::{FrontendKind, ServicePortName};

/// Whom a memory is for. Nodes know nothing of each other's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    node: String,
    service: ServicePortName,
    frontend: Option<(FrontendKind, SocketAddr)>,
    client: IpAddr,
}

/// Whom clients have met, and when last.
#[derive(Debug, Clone, Default)]
pub struct Affinity {
    met: BTreeMap<Key, BTreeMap<SocketAddr, Duration>>,
}

impl Affinity {
    /// Those of the delivery's backends that may answer now. Without affinity, or for a client that is not known any
    /// more, all of them, with the shares that they have.
    #[must_use]
    pub fn may_answer<'d>(&self, delivery: &'d Delivery, to: SocketAddr, now: Duration) -> Vec<&'d Backend> {
        let all = || delivery.backends.iter().collect();
        let Some(affinity) = delivery.affinity else { return all() };
        let Some(met) = self.met.get(&key(delivery, to, affinity.scope)) else { return all() };
        // The API has whole seconds, and a client that was silent for just so many is still known.
        let known = |backend: &&Backend| {
            met.get(&backend.address).is_some_and(|last| now.saturating_sub(*last) <= affinity.timeout)
        };
        let sticky: Vec<&Backend> = delivery.backends.iter().filter(known).collect();
        if sticky.is_empty() { all() } else { sticky }
    }

    /// Takes down that `backend` has answered; its time begins anew.
    pub fn answered(&mut self, delivery: &Delivery, to: SocketAddr, backend: SocketAddr, now: Duration) {
        if let Some(affinity) = delivery.affinity {
            self.met.entry(key(delivery, to, affinity.scope)).or_default().insert(backend, now);
        }
    }
}

fn key(delivery: &Delivery, to: SocketAddr, scope: AffinityScope) -> Key {
    Key {
        node: delivery.node.clone(),
        service: delivery.service.clone(),
        frontend: (scope == AffinityScope::Frontend).then_some((delivery.frontend, to)),
        client: delivery.client,
    }
}
