//! This mode before the engine: rules, and the listeners that they lead to.
//!
//! A listener is there before the first rule that leads to it, and goes after the last one. Where backends change and nobody
//! begins or ends to be refused, no rule changes: the relays alone learn of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use tracing::error;

use super::found::listening_ports;
use super::objects::{LISTENERS, NodeContext, render};
use super::ports::{Assigned, Ports};
use super::{jumps, ruleset, served, sets};
use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::mode::Plans;
use crate::mode::iptables_family::engine::Engine;
use crate::mode::iptables_family::engine::render::{FixedChain, FollowUp, Place, Renderer, ServiceRules, tables};
use crate::mode::iptables_family::rules::jumps::Jump;
use crate::model::{Family, ServicePortName};
use crate::plan::{BackendSet, NodePlan, ServicePortPlan};
use crate::port_range::PortRange;
use crate::relay::{Backends, ListenError, Listener, Relays};
use crate::ruleset::{Saved, Table, Tables};

/// When a port is looked for again that could not be had.
const AGAIN: Duration = Duration::from_secs(10);

/// One family's listeners and tables.
pub type Syncer<K, R> = Engine<Userspace<R>, K>;

/// The listeners.
pub struct Userspace<R> {
    relays: R,
    range: PortRange,
    ports: Ports,
    /// The sets of backends that rules lead to, by service port, as last rendered.
    wanted: BTreeMap<ServicePortName, BTreeSet<BackendSet>>,
    /// Service ports of which listeners may have to go.
    rendered: BTreeSet<ServicePortName>,
    /// Service ports whose backends the relays know.
    active: BTreeSet<ServicePortName>,
    /// The rules of a predecessor have been read.
    adopted: bool,
    /// An interface without an address has been seen.
    bare: bool,
    /// When service ports are tried again that have no listener.
    again: Option<Instant>,
    /// A full sync is under way.
    is_full: bool,
}

impl<K: PacketFilter, R: Relays> Syncer<K, R> {
    /// Knows nothing of the kernel's state yet.
    pub fn new(kernel: K, relays: R, range: PortRange) -> Syncer<K, R> {
        let mode = Userspace {
            relays,
            range,
            ports: Ports::new(range),
            wanted: BTreeMap::new(),
            rendered: BTreeSet::new(),
            active: BTreeSet::new(),
            adopted: false,
            bare: false,
            again: None,
            is_full: false,
        };
        Engine::with(kernel, mode)
    }

    /// The listeners, for tests.
    pub fn relays(&mut self) -> &mut R {
        &mut self.renderer().relays
    }
}

impl<R: Relays> Userspace<R> {
    /// Everything that the tables should hold, with the listeners that it needs.
    pub fn wanted<K: PacketFilter>(
        &mut self,
        node: NodePlan,
        addresses: &NodeAddresses,
        plans: &[ServicePortPlan],
    ) -> Tables {
        let node = Renderer::<K>::node(self, node, addresses, &plans);
        tables::<_, K>(self, &node, plans.iter().cloned(), true)
    }

    /// Which ports are listened on.
    pub fn listening(&self) -> impl Iterator<Item = (&Listener, u16)> {
        self.ports.listeners().filter_map(|listener| Some((listener, self.ports.get(listener)?)))
    }

    /// Leads a service port's connections to its backends, and sees to it that it has its listeners. What rules no longer lead
    /// to stays until [`Userspace::close_unwanted`].
    fn prepare(&mut self, plan: &ServicePortPlan, sets: BTreeSet<BackendSet>) -> Assigned {
        if !sets.is_empty() || self.active.contains(&plan.name) {
            self.relays.set_backends(&plan.name, Some(Backends::of(plan)));
            self.active.insert(plan.name.clone());
        }
        for set in sets {
            let listener = Listener { name: plan.name.clone(), set };
            if self.ports.get(&listener).is_none() {
                self.open(listener);
            }
        }
        self.ports.of(&plan.name)
    }

    fn open(&mut self, listener: Listener) {
        let opened = self
            .ports
            .candidates(&listener)
            .map(|port| (port, self.relays.listen(&listener, port)))
            .find(|(_, result)| !matches!(result, Err(ListenError::Taken(_))));
        let name = &listener.name;
        match opened {
            Some((port, Ok(()))) => return self.ports.assign(listener, port),
            // It says the same of all others: one line until they are tried again.
            Some((_, Err(ListenError::TooMany(_)))) if self.again.is_some() => {}
            Some((_, Err(error))) => {
                error!(service = %name, %error, "this service is refused until a port can be had");
            }
            None => {
                let range = self.range;
                error!(service = %name, "no port of {range} is free (portRange, --proxy-port-range): this service is refused until there is one");
            }
        }
        self.again = Some(Instant::now() + AGAIN);
    }

    /// Ends listeners that no rule leads to any more.
    fn close_unwanted(&mut self) -> usize {
        let rendered = std::mem::take(&mut self.rendered);
        for name in &rendered {
            let wanted = self.wanted.get(name);
            let is_wanted = |set: &BackendSet| wanted.is_some_and(|wanted| wanted.contains(set));
            for set in [BackendSet::Cluster, BackendSet::Local].into_iter().filter(|set| !is_wanted(set)) {
                let listener = Listener { name: name.clone(), set };
                if self.ports.get(&listener).is_some() {
                    self.relays.close(&listener);
                    self.ports.release(&listener);
                }
            }
            if wanted.is_none() && self.active.remove(name) {
                self.relays.set_backends(name, None);
            }
        }
        rendered.len()
    }
}

impl<K: PacketFilter, R: Relays> Renderer<K> for Userspace<R> {
    type Error = IptablesError;
    type Node = NodeContext;

    const READ: &'static [Place] = &[LISTENERS];

    /// An interface without an address is remembered: on such a node another one will come with the next pod.
    fn node(&mut self, node: NodePlan, addresses: &NodeAddresses, _: &dyn Plans) -> NodeContext {
        self.bare |= addresses.bare.contains(&node.family);
        let host = host(&node, addresses);
        // From elsewhere nothing can be led to the loopback range.
        NodeContext { host, redirect: !self.bare || host.is_loopback(), node }
    }

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        // Seen twice in a row: where a CNI plugin gives a pod's link its address, the link is up a moment before.
        let becomes_bare = !self.bare && [before, after].iter().all(|addresses| addresses.bare.contains(&node.family));
        becomes_bare || host(node, before) != host(node, after)
    }

    fn jumps(_: &NodeContext) -> Vec<&'static Jump> {
        jumps::wanted().collect()
    }

    fn fixed(&self, node: &NodeContext, _: bool) -> Vec<FixedChain> {
        ruleset::fixed(&node.node)
    }

    fn render(&mut self, node: &NodeContext, name: &ServicePortName, plan: Option<&ServicePortPlan>) -> ServiceRules {
        self.rendered.insert(name.clone());
        let plan = plan.map(served);
        let sets = plan.as_ref().map(sets).unwrap_or_default();
        if sets.is_empty() {
            self.wanted.remove(name);
        } else {
            self.wanted.insert(name.clone(), sets.clone());
        }
        let Some(plan) = plan else { return ServiceRules::default() };
        let ports = self.prepare(&plan, sets);
        render(plan, ports, node)
    }

    fn begin(&mut self, saved: &Saved) {
        self.again = None;
        if !self.adopted {
            self.ports.adopt(saved.tables.get(&Table::Filter).map(listening_ports).unwrap_or_default());
            self.adopted = true;
        }
        // Those that are not rendered any more are gone.
        self.wanted.clear();
        self.rendered.extend(self.active.iter().cloned());
        self.is_full = true;
    }

    fn after_rules(&mut self, _: &mut K, _: &NodeContext) -> Result<usize, IptablesError> {
        let changed = self.close_unwanted();
        // Everything of a predecessor that rules still led to has been taken over.
        if std::mem::take(&mut self.is_full) {
            self.ports.forget_found();
            return Ok(0);
        }
        Ok(changed)
    }

    /// Service ports without a listener are tried again by a full sync.
    fn follow_up(&mut self, _: &mut K, now: Instant) -> Result<FollowUp, IptablesError> {
        let full = self.again.is_some_and(|again| again <= now);
        if full {
            self.again = None;
        }
        Ok(FollowUp { next: self.again, full })
    }

    fn relay_ports(&self, name: &ServicePortName) -> Vec<u16> {
        self.ports.of(name).all().collect()
    }
}

/// The address that the node's own traffic is led to: its primary one, if it really has it.
fn host(node: &NodePlan, addresses: &NodeAddresses) -> IpAddr {
    let primary = node.primary.filter(|address| addresses.local.contains(address));
    primary.unwrap_or(match node.family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    })
}
