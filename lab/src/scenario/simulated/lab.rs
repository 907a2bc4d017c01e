//! A simulated cluster: objects, and svcproxy's rules on every node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use svclab_apiserver::objects::publish::{PublishError, publish};
use svclab_apiserver::objects::{ObjectError, ObjectKey, ObjectKind, Store};
use svclab_cluster::traffic::probe::{ClusterHost, Probe};
use svclab_sim::chance::Chance;
use svclab_sim::network::{Network, NetworkError, TrackedConnection};
use svclab_sim::protocol::{Family, Protocol};
use svclab_spec::{ClusterSpec, Cni};

use super::calls::SentRequest;
use super::counters::RuleCounters;
use super::lost_flows::LostFlows;
use super::machines::{HostSettings, Machines};
use super::render::{RenderError, RuleSource};
use super::rendered::Rendered;
use super::{drain, targets};
use crate::mode::Mode;
use crate::scenario::error::Problem;
use crate::scenario::file::{ProxyAction, ProxyOverride};
use crate::scenario::resolve::{self, ClientRoute};
use crate::scenario::values::ProbeTarget;
use crate::scenario::{LoadError, ProxySettings, Scenario, Step, dry_run};
use svclab_sim::cluster::BuildError;
use svclab_sim::relays::{Relay, RelayMemory, RelayPort, UdpTimeouts};

#[derive(Debug, thiserror::Error)]
pub enum SimError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Packet(#[from] NetworkError),
    #[error("cannot write the objects for the proxy: {0}")]
    Publish(#[from] PublishError),
    #[error("cannot make a directory for the objects: {0}")]
    Directory(#[from] std::io::Error),
    #[error("{0}")]
    Step(String),
}

/// Drops the place in the file, which the check before the run reports.
impl From<Problem> for SimError {
    fn from(problem: Problem) -> Self {
        SimError::Step(problem.message)
    }
}

#[derive(Debug, Clone)]
pub(super) struct ProxySetup {
    pub(super) mode: Mode,
    different: ProxyOverride,
    runs: bool,
}

/// The first request's source port. Each request has its own.
const FIRST_PORT: u16 = 32_768;

pub struct SimLab {
    pub(super) store: Store,
    pub(super) spec: ClusterSpec,
    pub(super) machines: Machines,
    settings: HostSettings,
    pub(super) rendered: BTreeMap<String, Rendered>,
    pub(super) setups: BTreeMap<String, ProxySetup>,
    source: Arc<dyn RuleSource>,
    proxy: ProxySettings,
    objects: tempfile::TempDir,
    configurations: tempfile::TempDir,
    pub(super) chance: Chance,
    next_port: u16,
    turns: usize,
    pub(super) open: BTreeMap<String, SentRequest>,
    /// `None` if no step checks counters.
    pub(super) counters: Option<RuleCounters>,
    /// By node.
    lost_flows: BTreeMap<String, LostFlows>,
    pub(super) memories: BTreeMap<String, RelayMemory>,
    pub(super) silence: UdpTimeouts,
    /// Whether the Kubernetes API is on the nodes' network.
    pub(super) has_api: bool,
}

impl SimLab {
    pub fn start(scenario: &Scenario, source: Arc<dyn RuleSource>, mode: Mode) -> Result<SimLab, SimError> {
        let store = scenario.initial_objects()?;
        let setup = ProxySetup { mode, different: ProxyOverride::default(), runs: true };
        let spec = store.cluster_spec();
        let asks = scenario.steps.iter().any(|step| !step.expect.counters.is_empty());
        let proxy = &scenario.proxy;
        let mut lab = SimLab {
            machines: Machines::default(),
            settings: HostSettings {
                route_localnet: mode == Mode::Iptables && proxy.iptables.localhost_node_ports != Some(false),
                tcp_be_liberal: proxy.conntrack.tcp_be_liberal == Some(true),
                routes: Vec::new(),
            },
            rendered: BTreeMap::new(),
            setups: spec.nodes.iter().map(|node| (node.name.clone(), setup.clone())).collect(),
            spec,
            source,
            proxy: proxy.clone(),
            objects: tempfile::tempdir()?,
            configurations: tempfile::tempdir()?,
            chance: Chance::seeded(scenario.options.seed),
            next_port: FIRST_PORT,
            turns: 0,
            open: BTreeMap::new(),
            counters: asks.then(RuleCounters::default),
            lost_flows: BTreeMap::new(),
            memories: BTreeMap::new(),
            silence: silence(proxy),
            has_api: scenario.api_server.is_some(),
            store,
        };
        lab.program()?;
        Ok(lab)
    }

    /// Writes the rules of all running proxies for the current objects.
    fn program(&mut self) -> Result<(), SimError> {
        publish(self.objects.path(), &self.store.list())?;
        for (node, setup) in self.setups.iter().filter(|(_, setup)| setup.runs) {
            let configuration = self.configurations.path().join(format!("{node}.yaml"));
            std::fs::write(&configuration, self.proxy.configuration(setup.mode, setup.different).to_string())?;
            let mut flags = self.proxy.flags();
            if setup.mode == Mode::Userspace && self.spec.cni == Cni::PointToPoint {
                flags.push("--interfaces-without-address".to_owned());
            }
            // `render` takes addresses only where node ports are on some of them. Without a Node object, only the machine
            // itself says which.
            let has_node = self.store.record(ObjectKind::Node, &ObjectKey::unscoped(node)).is_some();
            let by_address = match setup.mode {
                Mode::Ipvs => true,
                Mode::Nftables => !self.proxy.names_every_address(),
                Mode::Iptables | Mode::Userspace | Mode::Other => !has_node && self.proxy.names_some_addresses(),
            };
            if by_address {
                let place = ClusterHost::Node(node.clone());
                let own = resolve::addresses(&self.store, &place).map_err(SimError::Step)?;
                flags.extend(own.into_iter().map(|own| format!("--local-address={own}")));
            }
            let mut rendered = self.source.render(node, &configuration, &flags, self.objects.path())?;
            if let (Mode::Ipvs, Some(found)) = (setup.mode, self.rendered.get(node)) {
                let network = self.machines.network();
                let id = network.find(&ClusterHost::Node(node.clone()).to_string());
                drain::keep_drained(&found.state.servers, &mut rendered.state.servers, |service, server| {
                    id.map_or(0, |id| network.connections_to(id, service, server))
                });
            }
            if let Some(found) = self.rendered.get(node) {
                let relays = (&found.state.relays, &rendered.state.relays);
                forget_flows_of_ended_relays(self.machines.network_mut(), node, relays);
                self.open.values_mut().filter_map(|sent| sent.second.as_mut()).for_each(|one| one.lose(node, relays));
                let (lost, time) = (self.lost_flows.entry(node.clone()).or_default(), self.machines.network().now());
                lost.change(&found.flows, &rendered.flows, time);
                end_lost_flows(lost, self.machines.network_mut(), (node, setup.mode), &mut rendered, time)?;
            }
            let open = self.open.values().filter_map(|sent| sent.second.as_ref());
            rendered.held = open.filter(|one| one.node == *node && !one.is_dead).map(|one| one.port).collect();
            if let Some(counters) = &mut self.counters {
                counters.forget(&ClusterHost::Node(node.clone()).to_string());
            }
            self.rendered.insert(node.clone(), rendered);
        }
        self.spec = self.store.cluster_spec();
        Ok(self.machines.update(&self.spec, &self.rendered, &self.settings)?)
    }

    /// Ends drains that last until then.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), SimError> {
        self.machines.network_mut().advance(time);
        if self.lost_flows.values().all(LostFlows::is_empty) { Ok(()) } else { self.program() }
    }

    pub(super) fn change_objects(&mut self, step: &Step) -> Result<(), SimError> {
        dry_run::change(&mut self.store, step)?;
        self.program()
    }

    pub(super) fn change_proxies(&mut self, action: ProxyAction, nodes: &[String]) -> Result<(), SimError> {
        for node in nodes {
            // Health checks and relays end with their proxy.
            self.memories.remove(node);
            let relayed = self.open.values_mut().filter_map(|sent| sent.second.as_mut());
            relayed.filter(|second| second.node == *node).for_each(|second| second.is_dead = true);
            if let Some(rendered) = self.rendered.get_mut(node) {
                rendered.health.clear();
                rendered.state.relays.clear();
                rendered.held.clear();
            }
            let Some(setup) = self.setups.get_mut(node) else { continue };
            match action {
                ProxyAction::Kill | ProxyAction::Stop => setup.runs = false,
                ProxyAction::Cleanup => {
                    setup.runs = false;
                    self.rendered.remove(node);
                }
                ProxyAction::Start(different, _) => {
                    setup.runs = true;
                    setup.mode = different.mode.unwrap_or(setup.mode);
                    setup.different = different.or(setup.different);
                }
            }
        }
        self.program()
    }

    pub(super) fn take_route(&mut self, route: Option<&ClientRoute>) -> Result<(), SimError> {
        let Some(route) = route else { return Ok(()) };
        self.settings.routes.retain(|(client, range, _)| (client, range) != (&route.0, &route.1));
        self.settings.routes.push(route.clone());
        Ok(self.machines.route(&self.spec, &self.settings)?)
    }

    /// Returns the nodes at which a client's requests arrive; empty if the client has a route. Adds `route`
    /// permanently.
    pub(super) fn entrances(
        &mut self,
        probe: &Probe,
        route: Option<&ClientRoute>,
        to: &ProbeTarget,
    ) -> Result<Vec<String>, SimError> {
        self.take_route(route)?;
        if route.is_some() {
            return Ok(Vec::new());
        }
        let ClusterHost::Client(from) = &probe.from else { return Ok(Vec::new()) };
        let mut routes = self.settings.routes.iter();
        if routes.any(|(client, range, _)| client == from && range.contains(&probe.to.ip())) {
            return Ok(Vec::new());
        }
        let healthy = |node: &str, address, port| self.answers_healthy(node, address, port);
        Ok(targets::behind_load_balancer(&self.store, to, probe.to, &healthy).unwrap_or_default())
    }

    pub(super) fn enter(&mut self, probe: &Probe, entrances: &[String]) -> Result<(), SimError> {
        let (ClusterHost::Client(client), false) = (&probe.from, entrances.is_empty()) else { return Ok(()) };
        let mut settings = self.settings.clone();
        let node = entrances[self.turns % entrances.len()].clone();
        settings.routes.push((client.clone(), ipnet::IpNet::from(probe.to.ip()), node));
        self.turns += 1;
        Ok(self.machines.route(&self.spec, &settings)?)
    }

    pub(super) fn port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = if port >= 60_999 { FIRST_PORT } else { port + 1 };
        port
    }

    pub fn network(&self) -> &Network {
        self.machines.network()
    }
}

/// Deletes UDP entries of conntrack for relays that a node no longer has, as the proxy does.
fn forget_flows_of_ended_relays(
    network: &mut Network,
    node: &str,
    (before, now): (&BTreeMap<RelayPort, Relay>, &BTreeMap<RelayPort, Relay>),
) {
    let has_ended = |port: &&RelayPort| port.1 == Protocol::UDP && !now.contains_key(port);
    let ended: BTreeSet<u16> = before.keys().filter(has_ended).map(|port| port.2).collect();
    let Some(id) = network.find(&ClusterHost::Node(node.to_owned()).to_string()) else { return };
    network.forget(id, |flow: &TrackedConnection| {
        flow.reply.protocol == Protocol::UDP && ended.contains(&flow.reply.source_port)
    });
}

/// Ends lost connections as the proxy of a node's mode does: by rules and deleted conntrack entries, or by elements.
fn end_lost_flows(
    lost: &LostFlows,
    network: &mut Network,
    (node, mode): (&str, Mode),
    rendered: &mut Rendered,
    time: Duration,
) -> Result<(), SimError> {
    if mode == Mode::Iptables {
        if let Some(id) = network.find(&ClusterHost::Node(node.to_owned()).to_string()) {
            network.forget(id, |entry| lost.has_ended(entry, time));
        }
        for (family, rules) in [Family::V4, Family::V6].into_iter().zip(&rendered.rules) {
            let Some(rules) = lost.reset_lost_frontends(family, rules) else { continue };
            let read = rendered.state.read_rules(&format!("rules of {node}"), family, &rules);
            read.map_err(RenderError::from)?;
        }
    } else if !lost.is_empty() {
        rendered.tables = lost.add_to(&rendered.tables, time);
        let read = rendered.state.read_nft(&format!("tables of {node}"), &rendered.tables);
        read.map_err(RenderError::from)?;
    }
    Ok(())
}

/// Returns UDP's timeouts, by default the kernel's `nf_conntrack_udp_timeout` and `nf_conntrack_udp_timeout_stream`.
fn silence(proxy: &ProxySettings) -> UdpTimeouts {
    UdpTimeouts {
        single: proxy.conntrack.udp_timeout.map_or(Duration::from_secs(30), |time| time.0),
        conversation: Duration::from_secs(120),
    }
}
