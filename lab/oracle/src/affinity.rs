//! The endpoints that may answer a returning client.
//!
//! Times count from any fixed start. A client that reached several endpoints within the timeout (through a node port
//! under policy Local and through the cluster IP, or through a port that lacks the endpoint of the other ports) may reach
//! any of them again.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::modes::AffinityScope;
use crate::promise::{Backend, Delivery};
use crate::service::{FrontendKind, ServicePortName};

/// The key of an affinity entry, which nodes do not share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AffinityKey {
    node: String,
    scope: AffinityScope,
    service: ServicePortName,
    frontend: Option<(FrontendKind, SocketAddr)>,
    client: IpAddr,
}

/// The last answer of each endpoint to each client.
#[derive(Debug, Clone, Default)]
pub struct Affinity {
    met: BTreeMap<AffinityKey, BTreeMap<SocketAddr, Duration>>,
}

impl Affinity {
    /// Returns every backend without affinity or after the timeout.
    pub fn may_answer<'d>(&self, delivery: &'d Delivery, to: SocketAddr, now: Duration) -> Vec<&'d Backend> {
        let all = || delivery.backends.iter().collect();
        let Some(affinity) = delivery.affinity else { return all() };
        let Some(met) = self.met.get(&key(delivery, to, affinity.scope)) else { return all() };
        // The timeout includes its last second.
        let known = |backend: &&Backend| {
            met.get(&remembered(affinity.scope, backend.address))
                .is_some_and(|last| now.saturating_sub(*last) <= affinity.timeout)
        };
        let sticky: Vec<&Backend> = delivery.backends.iter().filter(known).collect();
        if sticky.is_empty() { all() } else { sticky }
    }

    pub fn answered(&mut self, delivery: &Delivery, to: SocketAddr, backend: SocketAddr, now: Duration) {
        if let Some(affinity) = delivery.affinity {
            self.met
                .entry(key(delivery, to, affinity.scope))
                .or_default()
                .insert(remembered(affinity.scope, backend), now);
        }
    }
}

/// Ports of a Service that share their clients know endpoints by address.
fn remembered(scope: AffinityScope, backend: SocketAddr) -> SocketAddr {
    match scope {
        AffinityScope::Service => SocketAddr::new(backend.ip(), 0),
        AffinityScope::ServicePort | AffinityScope::Frontend => backend,
    }
}

fn key(delivery: &Delivery, to: SocketAddr, scope: AffinityScope) -> AffinityKey {
    AffinityKey {
        node: delivery.node.clone(),
        scope,
        service: match scope {
            AffinityScope::Service => delivery.service.of_all_ports(),
            AffinityScope::ServicePort | AffinityScope::Frontend => delivery.service.clone(),
        },
        frontend: (scope == AffinityScope::Frontend).then_some((delivery.frontend, to)),
        client: delivery.client,
    }
}
