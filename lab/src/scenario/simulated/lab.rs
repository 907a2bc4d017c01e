//! A simulated cluster with its objects, and on every node what svcproxy would program for them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_saphyr::{Location, Spanned};
use svclab_sim::chance::Chance;
use svclab_sim::network::{Flow, Network, NetworkError, Outcomes};
use svclab_sim::relays;

use super::calls::Sent;
use super::counters::Counters;
use super::machines::{BuildError, Machines, Settings, machine, number};
use super::program::Program;
use super::relays::{Memory, Silence};
use super::render::{RenderError, render};
use super::{aim, drain};
use crate::cluster::spec::{ClusterSpec, Cni, Protocol};
use crate::objects::publish::{PublishError, publish};
use crate::objects::{ObjectError, ObjectKey, Store};
use crate::scenario::file::{Mode, ProbeFile, ProtocolFile, RuleFamily, RuleFile};
use crate::scenario::look::{Nodes, Saved};
use crate::scenario::resolve::{self, ClientRoute, ProbePlan};
use crate::scenario::words::{PlaceRef, Target};
use crate::scenario::{Action, LoadError, ProxyAction, Scenario, walk};
use crate::traffic::probe::{Answer, Outcome, Place, Probe};

/// Why a simulated cluster cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The scenario's objects do not fit.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A step's objects do not fit.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The proxy was asked in vain.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The simulator does not model it.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A packet cannot be made.
    #[error(transparent)]
    Packet(#[from] NetworkError),
    /// The proxy's directory of objects.
    #[error("cannot write the objects for the proxy: {0}")]
    Publish(#[from] PublishError),
    /// The same.
    #[error("cannot make a directory for the objects: {0}")]
    Directory(#[from] std::io::Error),
    /// Something that is not there, in words.
    #[error("{0}")]
    Step(String),
}

/// A call to be explained, in the words of probes.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who calls.
    pub from: String,
    /// Whom.
    pub to: String,
    /// Over what, if the target does not say.
    pub protocol: Option<Protocol>,
    /// The node by which a client outside sends.
    pub via: Option<String>,
}

/// What can become of a call.
#[derive(Debug, Clone)]
pub struct Explained {
    /// All of it, by way of relays if it meets any.
    pub outcomes: Outcomes,
    /// The relays' own calls: who calls whom, and what can become of that.
    pub calls: Vec<(String, Outcomes)>,
}

/// How a proxy is set up on a node.
#[derive(Debug, Clone)]
struct Setup {
    mode: Mode,
    scheduler: Option<String>,
    runs: bool,
}

/// The first source port; each request has one of its own.
const FIRST_PORT: u16 = 32_768;

/// A simulated cluster.
pub struct SimLab {
    pub(super) store: Store,
    /// The cluster with the pods that there are.
    pub(super) spec: ClusterSpec,
    pub(super) machines: Machines,
    settings: Settings,
    pub(super) programs: BTreeMap<String, Program>,
    setups: BTreeMap<String, Setup>,
    proxy: PathBuf,
    flags: Vec<String>,
    objects: tempfile::TempDir,
    pub(super) chance: Chance,
    next_port: u16,
    turns: usize,
    /// Connections that stay open, by name.
    pub(super) open: BTreeMap<String, Sent>,
    pub(super) counters: Counters,
    /// What each node's relays remember.
    pub(super) memories: BTreeMap<String, Memory>,
    pub(super) silence: Silence,
}

impl SimLab {
    /// The scenario's cluster before its first step; `proxy` is svcproxy.
    ///
    /// # Errors
    /// When the proxy cannot be asked, or prints what the simulator does not know.
    pub fn start(scenario: &Scenario, proxy: PathBuf, mode: Mode) -> Result<SimLab, SimError> {
        let store = scenario.initial_objects()?;
        let setup = Setup { mode, scheduler: None, runs: true };
        let spec = store.cluster_spec();
        let on = |flag: &str| scenario.proxy_flags.iter().any(|given| given == flag);
        let mut lab = SimLab {
            machines: Machines::default(),
            settings: Settings {
                route_localnet: mode == Mode::Iptables && !on("--iptables-localhost-nodeports=false"),
                tcp_be_liberal: on("--conntrack-tcp-be-liberal=true"),
                routes: Vec::new(),
            },
            programs: BTreeMap::new(),
            setups: spec.nodes.iter().map(|node| (node.name.clone(), setup.clone())).collect(),
            spec,
            proxy,
            flags: scenario.proxy_flags.clone(),
            objects: tempfile::tempdir()?,
            chance: Chance::seeded(scenario.options.seed),
            next_port: FIRST_PORT,
            turns: 0,
            open: BTreeMap::new(),
            counters: Counters::default(),
            memories: BTreeMap::new(),
            silence: silence(&scenario.proxy_flags),
            store,
        };
        lab.program()?;
        Ok(lab)
    }

    /// Whether the proxy of some node is in one of these modes.
    pub(super) fn is_in_any(&self, modes: &[Mode]) -> bool {
        self.setups.values().any(|setup| modes.contains(&setup.mode))
    }

    /// The mode of a node's proxy.
    pub(super) fn mode_of(&self, node: &str) -> Mode {
        self.setups.get(node).map_or(Mode::Iptables, |setup| setup.mode)
    }

    /// Every proxy that runs programs its node for the objects as they are.
    fn program(&mut self) -> Result<(), SimError> {
        publish(self.objects.path(), &self.store.list())?;
        for (node, setup) in self.setups.iter().filter(|(_, setup)| setup.runs) {
            let mut flags = self.flags.clone();
            if let Some(scheduler) = &setup.scheduler {
                flags.retain(|flag| !flag.starts_with("--ipvs-scheduler="));
                flags.push(format!("--ipvs-scheduler={scheduler}"));
            }
            if setup.mode == Mode::Userspace && self.spec.cni == Cni::PointToPoint {
                flags.push("--interfaces-without-address".to_owned());
            }
            let mut program = render(&self.proxy, node, setup.mode, &flags, self.objects.path())?;
            if let (Mode::Ipvs, Some(found)) = (setup.mode, self.programs.get(node)) {
                let network = self.machines.network();
                let id = network.find(&Place::Node(node.clone()).to_string());
                drain::over(&found.servers, &mut program.servers, |service, server| {
                    id.map_or(0, |id| network.connections_to(id, service, server))
                });
            }
            let open = self.open.values().filter_map(|sent| sent.second.as_ref());
            program.held = open.filter(|one| one.node == *node && !one.is_dead).map(|one| one.port).collect();
            self.counters.forget(&Place::Node(node.clone()).to_string());
            self.programs.insert(node.clone(), program);
        }
        self.spec = self.store.cluster_spec();
        Ok(self.machines.update(&self.spec, &self.programs, &self.settings)?)
    }

    /// Changes objects.
    pub(super) fn change(&mut self, action: &Action) -> Result<(), SimError> {
        walk::change(&mut self.store, action)?;
        self.program()
    }

    /// Ends, starts or cleans up proxies.
    pub(super) fn proxies(&mut self, action: ProxyAction, nodes: &[String]) -> Result<(), SimError> {
        for node in nodes {
            // Whatever is done to a proxy, its answers and what it relays end.
            self.memories.remove(node);
            let relayed = self.open.values_mut().filter_map(|sent| sent.second.as_mut());
            relayed.filter(|second| second.node == *node).for_each(|second| second.is_dead = true);
            if let Some(program) = self.programs.get_mut(node) {
                program.health.clear();
                program.relays.clear();
                program.held.clear();
            }
            let Some(setup) = self.setups.get_mut(node) else { continue };
            match action {
                ProxyAction::Kill | ProxyAction::Stop => setup.runs = false,
                ProxyAction::Cleanup => {
                    setup.runs = false;
                    self.programs.remove(node);
                }
                ProxyAction::Start(different) => {
                    setup.runs = true;
                    setup.mode = different.mode.unwrap_or(setup.mode);
                    setup.scheduler = different.scheduler.map(|one| one.to_string()).or(setup.scheduler.take());
                }
            }
        }
        self.program()
    }

    /// Sends a plan's requests one after the other.
    pub(super) fn send_all(&mut self, plan: &ProbePlan, to: &Target) -> Result<Vec<Outcome>, SimError> {
        let entrances = self.entrances(&plan.probe, plan.route.as_ref(), to)?;
        let one = |_| {
            self.enter(&plan.probe, &entrances)?;
            let (outcome, sent) = self.call(&plan.probe)?;
            if matches!(outcome.answer, Answer::Replied { .. }) {
                self.hang_up(&sent);
            }
            Ok(outcome)
        };
        (0..plan.count).map(one).collect()
    }

    /// Opens a connection that stays open.
    pub(super) fn connect(&mut self, name: &str, plan: &ProbePlan, to: &Target) -> Result<Outcome, SimError> {
        let entrances = self.entrances(&plan.probe, plan.route.as_ref(), to)?;
        self.enter(&plan.probe, &entrances)?;
        let (outcome, sent) = self.call(&plan.probe)?;
        self.open.insert(name.to_owned(), sent);
        Ok(outcome)
    }

    /// Sends once more over an open connection.
    pub(super) fn ask(&mut self, name: &str) -> Option<Outcome> {
        let sent = self.open.get(name)?.clone();
        Some(self.call_again(&sent))
    }

    /// Gives a host outside a way of its own, which stays.
    pub(super) fn take_route(&mut self, route: Option<&ClientRoute>) -> Result<(), SimError> {
        let Some(route) = route else { return Ok(()) };
        self.settings.routes.retain(|(client, range, _)| (client, range) != (&route.0, &route.1));
        self.settings.routes.push(route.clone());
        Ok(self.machines.route(&self.spec, &self.settings)?)
    }

    /// How many endpoints a node's proxy answers with at a `healthCheckNodePort`.
    pub(super) fn health(&self, node: &str, port: u16) -> Option<usize> {
        self.programs.get(node)?.health.get(&port).copied()
    }

    fn answers_healthy(&self, node: &str, port: u16) -> bool {
        self.health(node, port).is_some_and(|local| local > 0)
    }

    /// The nodes that a service's published address leads to, and the address.
    pub(super) fn balanced(&self, service: &ObjectKey) -> Result<(IpAddr, Vec<String>), SimError> {
        let address = resolve::vip(&self.store, service).map_err(|problem| SimError::Step(problem.message))?;
        let vip = self.store.vips_of(service).into_iter().find(|vip| vip.address == address);
        let healthy = |node: &str, port| self.answers_healthy(node, port);
        Ok((address, vip.map(|vip| aim::sends_to(&self.store, &vip, &healthy)).unwrap_or_default()))
    }

    /// What `iptables-save -c` would print on the nodes that these rules are about.
    pub(super) fn saved(&self, rules: &[RuleFile]) -> Result<Saved, SimError> {
        let mut saved = Saved::new();
        for rule in rules {
            for node in self.nodes(&|node| self.mode_of(node)).of(rule).map_err(SimError::Step)? {
                let nothing = Program::default();
                let program = self.programs.get(&node).unwrap_or(&nothing);
                let of = match rule.family {
                    RuleFamily::Ipv4 => &program.v4,
                    RuleFamily::Ipv6 => &program.v6,
                };
                let machine = Place::Node(node.clone()).to_string();
                saved.insert((node, rule.family), self.counters.ruleset(&machine, of));
            }
        }
        Ok(saved)
    }

    /// The nodes, for [`look::compare`](crate::scenario::look::compare).
    pub(super) fn nodes<'a>(&self, mode_of: &'a dyn Fn(&str) -> Mode) -> Nodes<'a> {
        Nodes { names: self.setups.keys().cloned().collect(), mode_of }
    }

    /// Nodes by which requests enter, if the caller has no way of its own; and the way that it has, which stays.
    fn entrances(&mut self, probe: &Probe, route: Option<&ClientRoute>, to: &Target) -> Result<Vec<String>, SimError> {
        self.take_route(route)?;
        if route.is_some() {
            return Ok(Vec::new());
        }
        let Place::Client(from) = &probe.from else { return Ok(Vec::new()) };
        let mut routes = self.settings.routes.iter();
        if routes.any(|(client, range, _)| client == from && range.contains(&probe.to.ip())) {
            return Ok(Vec::new());
        }
        let healthy = |node: &str, port| self.answers_healthy(node, port);
        Ok(aim::behind_load_balancer(&self.store, to, probe.to, &healthy).unwrap_or_default())
    }

    /// Has requests enter by the next of these nodes, if there are any.
    fn enter(&mut self, probe: &Probe, entrances: &[String]) -> Result<(), SimError> {
        let (Place::Client(client), false) = (&probe.from, entrances.is_empty()) else { return Ok(()) };
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

    /// Every way that a call can take, with exact probabilities; nothing is left behind.
    ///
    /// # Errors
    /// What is not there, or is no call.
    pub fn explain(&mut self, call: &Call) -> Result<Explained, SimError> {
        let unplaced = |problem: String| SimError::Step(problem);
        let from: PlaceRef = call.from.parse().map_err(unplaced)?;
        let to: Target = call.to.parse().map_err(unplaced)?;
        let (from, to) = (spanned(from), spanned(to));
        let via = call.via.clone().map(spanned);
        let protocol = call.protocol.map(|protocol| match protocol {
            Protocol::Tcp => ProtocolFile::Tcp,
            Protocol::Udp => ProtocolFile::Udp,
            Protocol::Sctp => ProtocolFile::Sctp,
        });
        let file = ProbeFile { via, protocol, ..ProbeFile::plain(&from, &to) };
        let (probe, route) =
            resolve::aim(&self.store, &file, resolve::PATIENCE).map_err(|problem| SimError::Step(problem.message))?;
        let entrances = self.entrances(&probe, route.as_ref(), &to.value)?;
        self.enter(&probe, &entrances)?;
        let from = machine(&self.spec, &probe.from);
        let from = self.machines.network().find(&from).ok_or_else(|| SimError::Step(format!("there is no {from}")))?;
        let flow = Flow { protocol: number(probe.protocol), ..Flow::tcp(from, probe.to) };
        let network = self.machines.network();
        let ports: BTreeMap<String, relays::Relays> = self.programs.iter().map(plain_relays).collect();
        let of = |host| ports.get(network.host(host).name());
        let first = network.outcomes(&flow)?;
        let calls = self.calls_of_relays(&first, flow.protocol)?;
        Ok(Explained { outcomes: relays::through(network, &flow, first, of), calls })
    }

    /// The machines.
    pub fn network(&self) -> &Network {
        self.machines.network()
    }
}

/// A node's machine, and where its listening ports lead.
fn plain_relays((node, program): (&String, &Program)) -> (String, relays::Relays) {
    let ports = program.relays.iter().map(|(port, relay)| (*port, relay.to.clone()));
    (Place::Node(node.clone()).to_string(), ports.collect())
}

/// The times of the kernel's connection tracking (`nf_conntrack_udp_timeout` and `_stream`), unless flags say otherwise.
fn silence(flags: &[String]) -> Silence {
    let flag = |name: &str| {
        let text = flags.iter().find_map(|flag| flag.strip_prefix(name))?;
        text.strip_suffix("ms")?.parse().ok().map(Duration::from_millis)
    };
    Silence {
        single: flag("--conntrack-udp-timeout=").unwrap_or(Duration::from_secs(30)),
        conversation: Duration::from_secs(120),
    }
}

fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}
