//! Session affinity over time: which endpoints may answer a client that has connected before.
//! The caller gives the time since any fixed start. A client that met several endpoints within the timeout (one through
//! a node port under policy Local, another through the cluster IP) may meet any of them again.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::modes::AffinityScope;
use crate::promise::{Backend, Delivery};
use crate::service::{FrontendKind, ServicePortName};

/// One affinity entry. Each node keeps entries of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    node: String,
    service: ServicePortName,
    frontend: Option<(FrontendKind, SocketAddr)>,
    client: IpAddr,
}

/// Which endpoints have answered each client, with the time of the last answer.
#[derive(Debug, Clone, Default)]
pub struct Affinity {
    met: BTreeMap<Key, BTreeMap<SocketAddr, Duration>>,
}

impl Affinity {
    /// The backends that may answer now. Without affinity, and after the timeout, every backend of the delivery may
    /// answer.
    pub fn may_answer<'d>(&self, delivery: &'d Delivery, to: SocketAddr, now: Duration) -> Vec<&'d Backend> {
        let all = || delivery.backends.iter().collect();
        let Some(affinity) = delivery.affinity else { return all() };
        let Some(met) = self.met.get(&key(delivery, to, affinity.scope)) else { return all() };
        // The API counts whole seconds, and the timeout includes its last second.
        let known = |backend: &&Backend| {
            met.get(&backend.address).is_some_and(|last| now.saturating_sub(*last) <= affinity.timeout)
        };
        let sticky: Vec<&Backend> = delivery.backends.iter().filter(known).collect();
        if sticky.is_empty() { all() } else { sticky }
    }

    /// Records that `backend` has answered, and restarts its timeout.
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
