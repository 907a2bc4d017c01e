//! Relays node ports on a loopback address in nftables mode, whose rules do not translate such packets (KEP-6032).
//! Clients are on the node itself, so they use policy Local's short circuit.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::Plans;
use super::companion::Companion;
use crate::config::NodeAddresses;
use crate::model::{Family, Protocol, ServicePortName};
use crate::plan::{AllowedSources, BackendSet, FrontendVerdict, ServicePortPlan};
use crate::relay::{Listener, RelayBackends, Relays};

const RETRY: Duration = Duration::from_secs(10);

pub struct LocalhostNodePorts<R> {
    relays: R,
    /// Node ports with backends.
    wanted: BTreeMap<ServicePortName, u16>,
    open: BTreeMap<ServicePortName, u16>,
    /// Service ports without a listener, with the last logged failure.
    waiting: BTreeMap<ServicePortName, Option<String>>,
    retry: Option<Instant>,
    /// Whether a warning about UDP or SCTP was logged.
    warned: bool,
}

/// Returns the node port and backends. `None`: connections to loopback addresses are refused, even where rules would
/// drop packets.
pub fn relayed(plan: &ServicePortPlan) -> Option<(u16, &[SocketAddr])> {
    let external = plan.external.as_ref()?;
    let port = external.node_port.filter(|_| plan.protocol() == Protocol::Tcp)?;
    let mut localhosts = Family::ALL.into_iter().map(Family::localhost);
    let is_allowed = |allowed: &AllowedSources| localhosts.any(|ip| allowed.ranges.iter().any(|r| r.contains(&ip)));
    if !external.annotated_sources.as_deref().is_none_or(is_allowed) {
        return None;
    }
    let FrontendVerdict::Deliver(set) = external.of_node().verdict else { return None };
    let backends = plan.backends(set);
    (!backends.is_empty()).then_some((port, backends))
}

/// Returns the service port's only listener, whatever the policy.
fn listener(name: &ServicePortName) -> Listener {
    Listener { name: name.clone(), set: BackendSet::Cluster }
}

impl<R: Relays> LocalhostNodePorts<R> {
    pub fn new(relays: R) -> LocalhostNodePorts<R> {
        LocalhostNodePorts {
            relays,
            wanted: BTreeMap::new(),
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            retry: None,
            warned: false,
        }
    }

    pub fn relays(&mut self) -> &mut R {
        &mut self.relays
    }

    /// Closes an unneeded listener, and opens none: another service port may still have the port. Returns whether the
    /// service port is relayed.
    fn update(&mut self, name: &ServicePortName, plan: Option<&ServicePortPlan>) -> bool {
        let relayed = plan.and_then(|plan| Some((relayed(plan)?, plan)));
        let node_port = plan.and_then(|plan| plan.external.as_ref()?.node_port);
        if let Some(node_port) = node_port.filter(|_| name.protocol != Protocol::Tcp && !self.warned) {
            self.warned = true;
            warn!(
                service = %name, protocol = %name.protocol, node_port,
                "on loopback addresses only node ports of TCP are relayed: this one, and all others of UDP and SCTP, refuse there"
            );
        }
        let port = relayed.map(|((port, _), _)| port);
        if self.open.get(name).is_some_and(|open| Some(*open) != port) {
            self.relays.close(&listener(name));
            self.open.remove(name);
        }
        if self.wanted.get(name) != port.as_ref() {
            self.waiting.remove(name);
        }
        if port.is_some() && !self.open.contains_key(name) {
            self.waiting.entry(name.clone()).or_default();
        }
        match relayed {
            Some(((port, backends), plan)) => {
                let backends =
                    RelayBackends { cluster: backends.into(), local: Arc::default(), ..RelayBackends::of(plan) };
                self.relays.set_backends(name, Some(backends));
                self.wanted.insert(name.clone(), port);
            }
            None if self.wanted.remove(name).is_some() => self.relays.set_backends(name, None),
            None => {}
        }
        port.is_some()
    }

    /// Opens missing listeners. Logs each failure once.
    fn listen(&mut self) {
        let LocalhostNodePorts { relays, wanted, open, waiting, .. } = self;
        waiting.retain(|name, logged| {
            let Some(port) = wanted.get(name) else { return false };
            let Err(failure) = relays.listen(&listener(name), *port) else {
                open.insert(name.clone(), *port);
                if logged.is_some() {
                    info!(service = %name, "the node port {port} is now relayed on the loopback address");
                }
                return false;
            };
            let failure = failure.to_string();
            if logged.as_ref() != Some(&failure) {
                error!(service = %name, error = %failure, "cannot relay the node port {port} on the loopback address; the proxy will retry");
                *logged = Some(failure);
            }
            true
        });
        self.retry = (!waiting.is_empty()).then(|| Instant::now() + RETRY);
    }
}

impl<R: Relays + Send + 'static> Companion for LocalhostNodePorts<R> {
    fn full(&mut self, _: &NodeAddresses, plans: &dyn Plans) {
        let mut removed: BTreeSet<ServicePortName> = self.wanted.keys().cloned().collect();
        for plan in plans.iter() {
            if self.update(&plan.name, Some(&plan)) {
                removed.remove(&plan.name);
            }
        }
        for name in &removed {
            self.update(name, None);
        }
        self.listen();
    }

    fn partial(&mut self, changed: &BTreeMap<ServicePortName, Option<ServicePortPlan>>) {
        for (name, plan) in changed {
            self.update(name, plan.as_ref());
        }
        self.listen();
    }

    fn follow_up(&mut self, now: Instant) -> Option<Instant> {
        if self.retry.is_some_and(|retry| retry <= now) {
            self.listen();
        }
        self.retry
    }
}
