//! A listener opens before the first rule that redirects to it, and closes after the last. Changed backends change no
//! rule unless they start or end a refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use tracing::error;

use super::objects::{LISTENERS, UserspaceContext, render};
use super::ports::{AssignedPorts, ListenerPorts};
use super::previous_ports::listening_ports;
use super::{jumps, ruleset, served, sets};
use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::mode::Plans;
use crate::mode::iptables_family::engine::Engine;
use crate::mode::iptables_family::engine::render::{ChainId, FixedChain, FollowUp, Renderer, ServiceRules, tables};
use crate::mode::iptables_family::rules::jumps::Jump;
use crate::model::{Family, ServicePortName};
use crate::plan::{BackendSet, NodePlan, ServicePortPlan};
use crate::port_range::PortRange;
use crate::relay::{ListenError, Listener, RelayBackends, Relays};
use crate::ruleset::{SavedTables, Table, Tables};

const RETRY: Duration = Duration::from_secs(10);

pub type UserspaceSyncer<K, R> = Engine<UserspaceRenderer<R>, K>;

pub struct UserspaceRenderer<R> {
    relays: R,
    range: PortRange,
    ports: ListenerPorts,
    /// Backend sets to whose listeners rules redirect.
    wanted: BTreeMap<ServicePortName, BTreeSet<BackendSet>>,
    rendered: BTreeSet<ServicePortName>,
    active: BTreeSet<ServicePortName>,
    /// Whether a previous proxy's rules were read.
    adopted: bool,
    /// Whether an interface without an address has existed.
    bare: bool,
    retry: Option<Instant>,
    is_full: bool,
}

impl<K: PacketFilter, R: Relays> UserspaceSyncer<K, R> {
    pub fn new(kernel: K, relays: R, range: PortRange) -> UserspaceSyncer<K, R> {
        let mode = UserspaceRenderer {
            relays,
            range,
            ports: ListenerPorts::new(range),
            wanted: BTreeMap::new(),
            rendered: BTreeSet::new(),
            active: BTreeSet::new(),
            adopted: false,
            bare: false,
            retry: None,
            is_full: false,
        };
        Engine::with(kernel, mode)
    }

    pub fn relays(&mut self) -> &mut R {
        &mut self.renderer().relays
    }
}

impl<R: Relays> UserspaceRenderer<R> {
    pub fn wanted<K: PacketFilter>(
        &mut self,
        node: NodePlan,
        addresses: &NodeAddresses,
        plans: &[ServicePortPlan],
    ) -> Tables {
        let node = Renderer::<K>::node(self, node, addresses, &plans);
        tables::<_, K>(self, &node, plans.iter().cloned(), true)
    }

    pub fn listening(&self) -> impl Iterator<Item = (&Listener, u16)> {
        self.ports.listeners().filter_map(|listener| Some((listener, self.ports.get(listener)?)))
    }

    fn prepare(&mut self, plan: &ServicePortPlan, sets: BTreeSet<BackendSet>) -> AssignedPorts {
        if !sets.is_empty() || self.active.contains(&plan.name) {
            self.relays.set_backends(&plan.name, Some(RelayBackends::of(plan)));
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
            // The limit was already logged.
            Some((_, Err(ListenError::TooMany(_)))) if self.retry.is_some() => {}
            Some((_, Err(error))) => {
                error!(service = %name, %error, "cannot open a listener: this service is rejected until one can be opened");
            }
            None => {
                let range = self.range;
                error!(service = %name, "no port of {range} is free (portRange, --proxy-port-range): this service is rejected until one is free");
            }
        }
        self.retry = Some(Instant::now() + RETRY);
    }

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

impl<K: PacketFilter, R: Relays> Renderer<K> for UserspaceRenderer<R> {
    type Error = IptablesError;
    type Node = UserspaceContext;

    const READ: &'static [ChainId] = &[LISTENERS];

    /// `bare` stays set once an interface has had no address: the next pod brings another such interface.
    fn node(&mut self, node: NodePlan, addresses: &NodeAddresses, _: &dyn Plans) -> UserspaceContext {
        self.bare |= addresses.bare.contains(&node.family);
        let host = host(&node, addresses);
        // Other machines' packets cannot be translated to loopback addresses.
        UserspaceContext { host, redirect: !self.bare || host.is_loopback(), node }
    }

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        // Two reads must agree: a pod's link is up a moment before the CNI plugin adds its address.
        let becomes_bare = !self.bare && [before, after].iter().all(|addresses| addresses.bare.contains(&node.family));
        becomes_bare || host(node, before) != host(node, after)
    }

    fn jumps(_: &UserspaceContext) -> Vec<&'static Jump> {
        jumps::wanted().collect()
    }

    fn fixed(&self, node: &UserspaceContext, _: bool) -> Vec<FixedChain> {
        ruleset::fixed(&node.node)
    }

    fn render(
        &mut self,
        node: &UserspaceContext,
        name: &ServicePortName,
        plan: Option<&ServicePortPlan>,
    ) -> ServiceRules {
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

    fn begin(&mut self, saved: &SavedTables) {
        self.retry = None;
        if !self.adopted {
            self.ports.adopt(saved.tables.get(&Table::Filter).map(listening_ports).unwrap_or_default());
            self.adopted = true;
        }
        // Service ports that are not rendered again are deleted.
        self.wanted.clear();
        self.rendered.extend(self.active.iter().cloned());
        self.is_full = true;
    }

    fn after_rules(&mut self, _: &mut K, _: &UserspaceContext) -> Result<usize, IptablesError> {
        let changed = self.close_unwanted();
        // After a full sync no rule redirects to the previous proxy's ports.
        if std::mem::take(&mut self.is_full) {
            self.ports.forget_found();
            return Ok(0);
        }
        Ok(changed)
    }

    /// A full sync retries service ports without a listener.
    fn follow_up(&mut self, _: &mut K, now: Instant) -> Result<FollowUp, IptablesError> {
        let full = self.retry.is_some_and(|retry| retry <= now);
        if full {
            self.retry = None;
        }
        Ok(FollowUp { next: self.retry, full })
    }

    fn relay_ports(&self, name: &ServicePortName) -> Vec<u16> {
        self.ports.of(name).all().collect()
    }
}

fn host(node: &NodePlan, addresses: &NodeAddresses) -> IpAddr {
    let primary = node.primary.filter(|address| addresses.local.contains(address));
    primary.unwrap_or(match node.family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    })
}
