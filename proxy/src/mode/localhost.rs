//! Node ports on a loopback address, beside a mode whose rules lead nothing there: relays of this process listen (KEP-6032).
//!
//! Relays do not depend on the tables, nor these on them: what fails in one does not hold up the other. A client there is the node itself, so
//! policy Local holds it where it holds the node. The address is the plan's ([`NodePlan::node_port_relay`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use tracing::{error, info, warn};

use super::Mode;
use super::Plans;
use crate::config::NodeAddresses;
use crate::model::{Protocol, ServicePortName};
use crate::plan::flows::Frontend;
use crate::plan::{BackendSet, NodePlan, ServicePortPlan, Verdict};
use crate::relay::{Backends, Listener, Relays};
use crate::ruleset::Report;

/// When a port is tried again that could not be had.
const AGAIN: Duration = Duration::from_secs(10);

/// A mode with relays beside it, where node ports are to be answered on a loopback address.
pub struct WithLocalhost<M, R> {
    mode: M,
    node_ports: Option<NodePorts<R>>,
}

impl<M, R: Relays> WithLocalhost<M, R> {
    /// `relays`: those that listen on the loopback address, where it is wanted.
    pub fn new(mode: M, relays: Option<R>) -> WithLocalhost<M, R> {
        WithLocalhost { mode, node_ports: relays.map(NodePorts::new) }
    }

    /// The relays, for tests.
    pub fn relays(&mut self) -> Option<&mut R> {
        self.node_ports.as_mut().map(|node_ports| &mut node_ports.relays)
    }

    /// The mode beside them, for tests.
    pub fn mode(&mut self) -> &mut M {
        &mut self.mode
    }
}

/// The node ports that are relayed.
struct NodePorts<R> {
    relays: R,
    /// The node port of each service port that leads somewhere.
    wanted: BTreeMap<ServicePortName, u16>,
    /// Those that are listened on.
    open: BTreeMap<ServicePortName, u16>,
    /// Those that are not, and what was said of it.
    waiting: BTreeMap<ServicePortName, Option<String>>,
    /// When they are tried again.
    again: Option<Instant>,
    /// That there are node ports which no relay serves was said.
    said_refused: bool,
}

/// Where connections to a service port's node port go on a loopback address; `None`: they are refused.
///
/// A listener cannot drop: under policy Local without an endpoint on this node, and without any elsewhere, it refuses as well.
pub fn relayed(plan: &ServicePortPlan) -> Option<(u16, &[SocketAddr])> {
    let external = plan.external.as_ref()?;
    let port = external.node_port.filter(|_| plan.protocol() == Protocol::Tcp)?;
    let Verdict::Deliver(set) = external.of_node().verdict else { return None };
    let backends = plan.backends(set);
    (!backends.is_empty()).then_some((port, backends))
}

/// All node ports of a service port have one listener, whatever the policy.
fn listener(name: &ServicePortName) -> Listener {
    Listener { name: name.clone(), set: BackendSet::Cluster }
}

impl<R: Relays> NodePorts<R> {
    fn new(relays: R) -> NodePorts<R> {
        NodePorts {
            relays,
            wanted: BTreeMap::new(),
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            again: None,
            said_refused: false,
        }
    }

    /// These are all service ports.
    fn replace(&mut self, plans: &dyn Plans) {
        let mut gone: BTreeSet<ServicePortName> = self.wanted.keys().cloned().collect();
        for plan in plans.iter() {
            if self.note(&plan.name, Some(&plan)) {
                gone.remove(&plan.name);
            }
        }
        for name in &gone {
            self.note(name, None);
        }
        self.listen();
    }

    /// A service port is so now, or is gone; whether it is relayed. What it gives up is closed, and nothing is opened yet: its port may
    /// be another's that is noted later.
    fn note(&mut self, name: &ServicePortName, plan: Option<&ServicePortPlan>) -> bool {
        let relayed = plan.and_then(|plan| Some((relayed(plan)?, plan.affinity)));
        let node_port = plan.and_then(|plan| plan.external.as_ref()?.node_port);
        if let Some(node_port) = node_port.filter(|_| name.protocol != Protocol::Tcp && !self.said_refused) {
            self.said_refused = true;
            warn!(
                service = %name, protocol = %name.protocol, node_port,
                "on loopback addresses node ports are relayed for TCP only: this one, and all others of UDP and SCTP, refuse there"
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
            Some(((port, backends), affinity)) => {
                let backends = Backends { cluster: backends.into(), affinity, ..Backends::default() };
                self.relays.set_backends(name, Some(backends));
                self.wanted.insert(name.clone(), port);
            }
            None if self.wanted.remove(name).is_some() => self.relays.set_backends(name, None),
            None => {}
        }
        port.is_some()
    }

    /// Listens on what is wanted and not listened on. What fails is said once for as long as it lasts.
    fn listen(&mut self) {
        let NodePorts { relays, wanted, open, waiting, .. } = self;
        waiting.retain(|name, said| {
            let Some(port) = wanted.get(name) else { return false };
            let Err(failure) = relays.listen(&listener(name), *port) else {
                open.insert(name.clone(), *port);
                if said.is_some() {
                    info!(service = %name, "the node port {port} is relayed on the loopback address now");
                }
                return false;
            };
            let failure = failure.to_string();
            if said.as_ref() != Some(&failure) {
                error!(service = %name, error = %failure, "the node port {port} is not relayed on the loopback address; it will be tried again");
                *said = Some(failure);
            }
            true
        });
        self.again = (!waiting.is_empty()).then(|| Instant::now() + AGAIN);
    }
}

impl<M: Mode, R: Relays> Mode for WithLocalhost<M, R> {
    type Error = M::Error;

    fn needs_full(&self) -> bool {
        self.mode.needs_full()
    }

    fn require_full_sync(&mut self) {
        self.mode.require_full_sync();
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        self.mode.take_previous_frontends()
    }

    fn relay_ports(&self, name: &ServicePortName) -> Vec<u16> {
        self.mode.relay_ports(name)
    }

    fn refused(&self) -> &BTreeMap<ServicePortName, String> {
        self.mode.refused()
    }

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        self.mode.depends_on(node, before, after)
    }

    fn addresses_changed(&mut self, addresses: &NodeAddresses) -> bool {
        self.mode.addresses_changed(addresses)
    }

    fn detect_flush(&mut self) -> Result<Option<String>, M::Error> {
        self.mode.detect_flush()
    }

    fn look_ahead(&mut self) {
        self.mode.look_ahead();
    }

    fn compact(&mut self) {
        self.mode.compact();
    }

    fn full(&mut self, node: NodePlan, addresses: &NodeAddresses, plans: &dyn Plans) -> Result<Report, M::Error> {
        if let Some(node_ports) = &mut self.node_ports {
            node_ports.replace(plans);
        }
        self.mode.full(node, addresses, plans)
    }

    fn set_service_ranges(&mut self, ranges: Vec<IpNet>) {
        self.mode.set_service_ranges(ranges);
    }

    fn partial(&mut self, changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>) -> Result<Report, M::Error> {
        if let Some(node_ports) = &mut self.node_ports {
            for (name, plan) in &changed {
                node_ports.note(name, plan.as_ref());
            }
            node_ports.listen();
        }
        self.mode.partial(changed)
    }

    fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, M::Error> {
        let again = self.node_ports.as_mut().and_then(|node_ports| {
            if node_ports.again.is_some_and(|again| again <= now) {
                node_ports.listen();
            }
            node_ports.again
        });
        let next = self.mode.follow_up(now)?;
        Ok(next.into_iter().chain(again).min())
    }
}
