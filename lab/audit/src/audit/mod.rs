//! Compares the promise of Kubernetes with the packet's outcome for every service port, address and kind of caller.

mod borrowed;
mod calls;
mod cause;
mod coverage;
mod dns_cache;
mod finding;
mod foreign;
mod gathered;
mod pods;
mod reach;
mod rules;
mod setting;
mod settled;
mod source_ports;
mod sources;
mod stale;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use svclab_oracle::{
    ClusterModel, Family, Mode, Oracle, Promise, PromisedVerdict, Protocol, Question, Rule, ServiceFrontend,
};
use svclab_sim::cluster::NodeState;
use svclab_sim::host::Listener;
use svclab_sim::network::{Flow, NetworkError, Outcomes, PacketVerdict as Found};
use svclab_snapshot::{Snapshot, Unread};

use crate::cluster::{self, AuditPod, KnownAddresses, own_addresses};
use crate::ebpf::{AttachedPrograms, PassedCall, ProcessPlace};
use crate::error::NodeError;
use crate::judge::{Fault, FaultKind, Judge, OtherPort, destination, number};
use crate::machines::{Around, Machines, destinations, state};
use crate::owner::ProxyTables;
use crate::replacement::ProxyReplacement;
use crate::settings::AuditedProxy;

pub use coverage::Coverage;
pub use finding::{Finding, FindingKind, NotJudged, Report};
pub use reach::{Reach, ReachRow, ReachTable};
pub use rules::{RuleTallies, RuleTally};
pub use sources::{AuditCaller, SourceKind};

use calls::other_port;
use gathered::Gathered;
use setting::{NodeParts, Settings};
use sources::{Finder, Sources};

const UNKNOWN_LOCAL: &str = "it depends on how the proxy tells pods from others, which is not known";

/// Settings of [`audit`].
#[derive(Debug, Clone, Default)]
pub struct AuditOptions {
    /// The mode, instead of the configuration's.
    pub mode: Option<Mode>,
    /// The tables of nftables that are the proxy's.
    pub tables: ProxyTables,
    /// Services that changed less than this many seconds before the snapshot are not judged.
    pub settle_seconds: i64,
}

/// Audits a node.
///
/// # Errors
/// The snapshot has no objects or no network, or is malformed.
pub fn audit(snapshot: &Snapshot, options: &AuditOptions) -> Result<Report, NodeError> {
    prepared(snapshot, options, |audit, state| {
        let mut gathered = audit.every(audit.frontends);
        audit.unused_cluster_ips(audit.frontends, &mut gathered);
        audit.stale(state, audit.frontends, &mut gathered);
        let report = gathered.report(state, audit.frontends);
        match audit.replaced {
            Some(replaced) => Report { mode: replaced.owner, ..report },
            None => report,
        }
    })
}

/// Returns which callers reach which frontends by the node's rules, whatever Kubernetes promises.
///
/// # Errors
/// The snapshot has no objects or no network, or is malformed.
pub fn reach(snapshot: &Snapshot) -> Result<ReachTable, NodeError> {
    prepared(snapshot, &AuditOptions::default(), |audit, _| audit.reach())
}

/// Builds the node, its callers and its neighbours.
fn prepared<T>(
    snapshot: &Snapshot,
    options: &AuditOptions,
    work: impl FnOnce(&Audit<'_>, &NodeState) -> T,
) -> Result<T, NodeError> {
    let Some(objects) = &snapshot.objects else { return Err(NodeError::NoObjects) };
    let mut state = state(snapshot)?;
    forget_clients(&mut state);
    let known = KnownAddresses::of(snapshot);
    let programs = AttachedPrograms::of(snapshot, &known);
    let replaced = ProxyReplacement::find(snapshot, &state, &programs, &options.tables);
    let mode = options.mode.or(replaced.as_ref().map(|_| Mode::Iptables));
    let proxy = AuditedProxy::of(snapshot, &state, mode, &options.tables)?;
    if let Some(Unread { what, why }) = missing(snapshot, &proxy) {
        return Err(NodeError::Unread { what: what.clone(), why: why.clone() });
    }
    let cluster = |pods: &[AuditPod], clients, uplink| {
        let mut cluster = cluster::cluster(snapshot, &known, &proxy.settings, pods, clients, uplink);
        cluster.objects.services.iter_mut().for_each(|service| proxy.annotations.keep(service));
        cluster
    };
    // The callers depend on the frontends. What a large cluster's objects and rules take is freed before the second build.
    let frontends: Vec<ServiceFrontend> = cluster(&[], Vec::new(), None).oracle().frontends().collect();
    let sources = {
        let alone = Around { names: known.names.clone(), ..Around::default() };
        let node = Machines::build(snapshot, &state, &alone)?;
        Finder { snapshot, known: &known, node: node.network.host(node.node) }.find(&frontends)
    };
    let cluster = cluster(&sources.pods, sources.clients.clone(), sources.uplink.clone());
    let crowd = known.endpoints.keys().copied().chain(destinations(&state)).collect();
    // Adds listeners for host-network endpoints, and at each port that must be closed, to notice calls that get through.
    let shut = frontends.iter().map(|frontend| (number(frontend.protocol), other_port(frontend)));
    let everywhere = known.sockets.iter().copied().chain(shut);
    let everywhere = everywhere.map(|(protocol, port)| Listener { protocol, address: None, port: Some(port) });
    let sockets: BTreeSet<Listener> = cluster::sockets(snapshot).into_iter().flatten().chain(everywhere).collect();
    let around = Around {
        peers: sources.peers.clone(),
        crowd,
        names: known.names.clone(),
        sockets: Some(sockets),
        announced: cluster::announced(snapshot, &known),
        ..Around::default()
    };
    let mut machines = Machines::build(snapshot, &state, &around)?;
    machines.assumed.extend(programs.assumed(snapshot));
    let audit = Audit {
        snapshot,
        known: &known,
        proxy: &proxy,
        cluster: &cluster,
        oracle: cluster.oracle(),
        machines: &machines,
        sources: &sources,
        frontends: &frontends,
        programs,
        replaced: replaced.as_ref(),
        settings: Settings::of(NodeParts { snapshot, state: &state, around: &around }, proxy.settings.mode),
        source_ports: source_ports::matched(&state),
        unsettled: settled::unsettled(objects, &snapshot.taken, options.settle_seconds),
    };
    Ok(work(&audit, &state))
}

/// Returns a part of the mode's rules that could not be read. The nftables listing also contains iptables-nft's rules.
fn missing<'a>(snapshot: &'a Snapshot, proxy: &AuditedProxy) -> Option<&'a Unread> {
    let mode = proxy.settings.mode;
    snapshot.unread.iter().find(|unread| match unread.what.as_str() {
        "rules/nft.json" => mode == Mode::Nftables || proxy.tables.are_described(),
        "rules/ipvs" => mode == Mode::Ipvs,
        "rules/iptables-nft.v4" | "rules/iptables-nft.v6" => snapshot.nft.is_none(),
        what => what == "rules" || what.starts_with("rules/iptables-legacy"),
    })
}

/// Clears session affinity, so that the audit judges new clients.
fn forget_clients(state: &mut NodeState) {
    let ruleset = Arc::make_mut(&mut state.nft);
    for set in ruleset.tables.iter_mut().flat_map(|table| &mut table.sets) {
        set.elements.retain(|element| element.expires.is_none());
    }
}

/// What the judgements of all calls share.
struct Audit<'a> {
    snapshot: &'a Snapshot,
    known: &'a KnownAddresses,
    proxy: &'a AuditedProxy,
    cluster: &'a ClusterModel,
    oracle: Oracle<'a>,
    machines: &'a Machines,
    sources: &'a Sources,
    frontends: &'a [ServiceFrontend],
    programs: AttachedPrograms<'a>,
    replaced: Option<&'a ProxyReplacement>,
    settings: Settings<'a>,
    source_ports: BTreeSet<u16>,
    unsettled: BTreeSet<(String, String)>,
}

#[derive(Clone, Copy)]
struct AuditCall<'a> {
    frontend: &'a ServiceFrontend,
    source: &'a AuditCaller,
    source_port: u16,
    to: SocketAddr,
}

/// The source port of most calls, of the range from which Linux chooses (`net.ipv4.ip_local_port_range`).
const SOURCE_PORT: u16 = 40_000;

impl<'a> Audit<'a> {
    fn every(&'a self, frontends: &[ServiceFrontend]) -> Gathered<'a> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // More parts than processors: large services are often neighbours in the list.
        let parts = frontends.chunks(frontends.len().div_ceil(processors * 8).max(1)).collect::<Vec<_>>();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut gathered = Gathered::new(self);
            while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                part.iter().for_each(|frontend| self.frontend(frontend, &mut gathered));
            }
            gathered
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
            let mut all = Gathered::new(self);
            for thread in threads {
                match thread.join() {
                    Ok(gathered) => all.merge(gathered),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        })
    }

    fn frontend(&self, frontend: &ServiceFrontend, gathered: &mut Gathered) {
        let service = (frontend.service.namespace.clone(), frontend.service.service.clone());
        if self.unsettled.contains(&service) {
            gathered.unsettled += 1;
            return;
        }
        for (index, to) in self.destinations(frontend).into_iter().enumerate() {
            for source in self.callers(frontend, to, index == 0) {
                let asked = AuditCall { frontend, source, source_port: SOURCE_PORT, to };
                self.question(&asked, gathered);
                if matches!(source.kind, SourceKind::Pod | SourceKind::Node | SourceKind::Outside) {
                    let others = self.source_ports.iter().copied();
                    others.for_each(|source_port| self.question(&AuditCall { source_port, ..asked }, gathered));
                }
            }
        }
        self.other_port(frontend, gathered);
    }

    fn question(&self, asked: &AuditCall<'_>, gathered: &mut Gathered) {
        let flow = self.flow(asked);
        let mut question = Question::new(asked.source.place.clone(), asked.to, asked.frontend.protocol);
        match self.machines.network.first_packet(&flow) {
            Ok(packet) => question.source = Some(packet.source),
            Err(NetworkError::NoSource { .. }) => {}
            Err(error) => return gathered.not_judged(asked, error.to_string()),
        }
        let promise = self.oracle.ask(&question);
        // Sockets and configuration tell where the proxy listens.
        let listened = (self.snapshot.sockets.is_none() || self.snapshot.proxy_config.is_none())
            && promise.rests_on(Rule::LocalhostListeners)
            && matches!(promise.verdict, PromisedVerdict::Deliver(_));
        if listened || promise.verdict == PromisedVerdict::Undefined {
            gathered.no_promise += 1;
            return;
        }
        gathered.asked += 1;
        if let Some(replaced) = self.replaced {
            return gathered.not_judged(asked, replaced.why.clone());
        }
        let may_be_pod = matches!(asked.source.kind, SourceKind::Pod | SourceKind::Endpoint | SourceKind::RemotePod);
        if !self.proxy.configured && may_be_pod && promise.rests_on(Rule::ExternalLocal) {
            return gathered.not_judged(asked, UNKNOWN_LOCAL.to_owned());
        }
        if promise.rests_on(Rule::NoHints) && !self.known.nodes.contains_key(&self.known.node) {
            return gathered.not_judged(asked, "hints decide, and the node's zone is not known".to_owned());
        }
        let found = match self.machines.network.outcomes(&flow) {
            Ok(found) => found,
            Err(error @ NetworkError::NoSource { .. }) => {
                return self.without_route(asked, &promise, error.to_string(), gathered);
            }
            Err(error) => return gathered.not_judged(asked, error.to_string()),
        };
        gathered.met.add(&found);
        if let Some(why) = self.unknown_program(asked, Some(&found)) {
            return gathered.not_judged(asked, why);
        }
        self.machines.unanswering(&found).into_iter().for_each(|note| gathered.note(note));
        if promise.verdict == PromisedVerdict::Untouched {
            if stale::taken(&flow, &found, &self.proxy.tables) {
                gathered.too_wide(asked, &found);
            } else {
                gathered.held(&promise);
            }
            return;
        }
        if self.is_of_dns_cache(&flow, &found) {
            return gathered.note(format!("NodeLocal DNSCache answers at {}, not the proxy", asked.to));
        }
        if self.is_elsewhere(asked.to.ip()) && self.is_left_alone(&found, asked.to) {
            gathered.asked -= 1;
            gathered.no_promise += 1;
            return;
        }
        let thorough = asked.source.kind == SourceKind::Pod && asked.frontend.address.is_some();
        let others = OtherPort::all(&self.oracle, &question, &flow, &promise);
        let mut faults = self.faults(self.machines, (&flow, &others), &found, &promise, thorough);
        faults.retain(|fault| match foreign::masquerader(fault, &promise, &found, &self.proxy.tables) {
            Some(rule) => {
                gathered.note(format!("a rule of another program decides the source: {rule}"));
                false
            }
            None => true,
        });
        if faults.is_empty() {
            gathered.held(&promise);
        }
        let (open, faults): (Vec<Fault>, Vec<Fault>) =
            faults.into_iter().partition(|fault| fault.kind == FaultKind::Source && !self.proxy.configured);
        if !open.is_empty() {
            gathered.not_judged(asked, UNKNOWN_LOCAL.to_owned());
        }
        for fault in faults {
            gathered.fault(asked, &promise, fault, Some(&found));
        }
    }

    /// Judges a call that the kernel refuses for want of a route, so that it meets no rule.
    fn without_route(&self, asked: &AuditCall<'_>, promise: &Promise, says: String, gathered: &mut Gathered) {
        if let Some(why) = self.unknown_program(asked, None) {
            return gathered.not_judged(asked, why);
        }
        match promise.verdict {
            PromisedVerdict::Deliver(_) => {
                let fault = Fault { kind: FaultKind::NotTranslated, says, found: None };
                gathered.fault(asked, promise, fault, None);
            }
            PromisedVerdict::Untouched => gathered.held(promise),
            _ => gathered.not_judged(asked, says),
        }
    }

    /// Returns the program on the call's way that makes it impossible to judge.
    fn unknown_program(&self, asked: &AuditCall<'_>, found: Option<&Outcomes>) -> Option<String> {
        let caller = match asked.source.kind {
            SourceKind::Node | SourceKind::Loopback => ProcessPlace::Node,
            SourceKind::Pod | SourceKind::Endpoint => ProcessPlace::Pod,
            SourceKind::RemotePod | SourceKind::Outside | SourceKind::InRange => ProcessPlace::Elsewhere,
        };
        let protocol = number(asked.frontend.protocol);
        self.programs.unjudgeable(&PassedCall { caller, to: asked.to, protocol, machines: self.machines, found })
    }

    /// Whether the packet goes on to its destination without translation.
    fn is_left_alone(&self, found: &Outcomes, to: SocketAddr) -> bool {
        found.outcomes.iter().all(|one| match &one.verdict {
            Found::Answered { at, .. } | Found::Unanswered { at, .. } | Found::Refused { at, .. } => *at == to,
            Found::Dropped { by, .. } => *by != self.machines.node && destination(found, &one.verdict) == Some(to.ip()),
            Found::Rejected { .. } => false,
        })
    }

    /// Returns the kernel setting whose right value mends the call.
    fn wrong_setting(&self, asked: &AuditCall<'_>, promise: &Promise) -> Option<&str> {
        let flow = self.flow(asked);
        self.settings.culprit(|machines| {
            let found = machines.network.outcomes(&flow);
            found.is_ok_and(|found| self.faults(machines, (&flow, &[]), &found, promise, false).is_empty())
        })
    }

    fn flow(&self, asked: &AuditCall<'_>) -> Flow {
        let (from, source) = match (asked.source.kind, asked.source.address) {
            (SourceKind::Loopback, _) => (self.machines.node, Some(asked.to.ip())),
            (_, Some(address)) => (self.machines.at(address).unwrap_or(self.machines.node), Some(address)),
            (_, None) => (self.machines.node, None),
        };
        Flow { from, source, source_port: asked.source_port, to: asked.to, protocol: number(asked.frontend.protocol) }
    }

    /// `thorough` also checks that a client without affinity is not bound.
    fn faults(
        &self,
        machines: &Machines,
        (flow, others): (&Flow, &[OtherPort]),
        found: &Outcomes,
        promise: &Promise,
        thorough: bool,
    ) -> Vec<Fault> {
        if promise.rests_on(Rule::Relayed) && matches!(promise.verdict, PromisedVerdict::Deliver(_)) {
            return self.not_relayed(machines, flow, found);
        }
        let judge = Judge { world: &self.cluster.world, network: &machines.network, machine_of: None, strays: false };
        let mut faults = judge.faults(flow, found, promise);
        if faults.is_empty() {
            faults.extend(borrowed::faults(machines.network.host(machines.node), self.known, promise, found));
        }
        // A packet that is not delivered misses every endpoint: only the first fault is reported.
        if faults
            .iter()
            .any(|fault| matches!(fault.kind, FaultKind::NotTranslated | FaultKind::Dropped | FaultKind::Rejected))
        {
            faults.retain(|fault| fault.kind != FaultKind::MissingEndpoint);
        }
        if let PromisedVerdict::Deliver(delivery) = &promise.verdict
            && (delivery.affinity.is_some() || thorough)
            && faults.is_empty()
        {
            faults.extend(judge.affinity(flow, delivery, others));
        }
        faults
    }

    /// Checks only that the packet reaches a socket of the node (in userspace mode, at another port): a relay's choice
    /// of endpoint is in no snapshot.
    fn not_relayed(&self, machines: &Machines, flow: &Flow, found: &Outcomes) -> Vec<Fault> {
        let is_relay = |at: &SocketAddr| self.proxy.settings.mode != Mode::Userspace || at.port() != flow.to.port();
        let unknown = self.snapshot.sockets.is_none();
        let relayed = |verdict: &Found| match verdict {
            Found::Answered { by, at, .. } | Found::Unanswered { by, at, .. } => *by == machines.node && is_relay(at),
            Found::Refused { by, at, .. } => unknown && *by == machines.node && is_relay(at),
            Found::Rejected { .. } | Found::Dropped { .. } => false,
        };
        let wrong = found.outcomes.iter().filter(|one| !relayed(&one.verdict));
        let fault = |verdict: &Found| Fault {
            kind: match verdict {
                Found::Dropped { .. } if destination(found, verdict) == Some(flow.to.ip()) => FaultKind::NotTranslated,
                Found::Dropped { .. } => FaultKind::Dropped,
                Found::Rejected { .. } => FaultKind::Rejected,
                _ => FaultKind::NotTranslated,
            },
            says: format!(
                "to be relayed by the proxy, and: {}",
                svclab_sim::render::verdict(&machines.network, verdict)
            ),
            found: Some(verdict.clone()),
        };
        wrong.map(|one| fault(&one.verdict)).collect()
    }

    fn stale(&self, state: &NodeState, frontends: &[ServiceFrontend], gathered: &mut Gathered) {
        let mut known: BTreeMap<(Option<IpAddr>, u16, Protocol), ()> = BTreeMap::new();
        known.extend(frontends.iter().map(|one| ((one.address, one.port, one.protocol), ())));
        let left_alone = stale::left_alone(self.cluster);
        for lead in stale::leads(state, &self.proxy.tables) {
            let stands = known.contains_key(&(lead.address, lead.port, lead.protocol))
                // A node port is also listed with an address of the node.
                || lead.address.is_some_and(|address| self.machines.is_own(address))
                    && known.contains_key(&(None, lead.port, lead.protocol));
            if stands || lead.address.is_some_and(|address| left_alone.contains(&address)) {
                continue;
            }
            self.lead(&lead, gathered);
        }
    }

    fn lead(&self, lead: &stale::Lead, gathered: &mut Gathered) {
        let family = lead.address.map_or(lead.family, Family::of);
        let first = || {
            let own = self.known.nodes.get(&self.known.node).into_iter().flatten();
            own.copied()
                .chain(own_addresses(self.snapshot))
                .find(|own| Family::of(*own) == family && self.machines.is_own(*own))
        };
        let Some(address) = lead.address.or_else(first) else { return };
        let to = SocketAddr::new(address, lead.port);
        let callers = self.sources.common.iter().filter(|source| {
            matches!(source.kind, SourceKind::Pod | SourceKind::Outside)
                && source.address.is_some_and(|address| Family::of(address) == family)
        });
        for source in callers {
            let frontend = lead.frontend(family);
            let asked = AuditCall { frontend: &frontend, source, source_port: SOURCE_PORT, to };
            let flow = self.flow(&asked);
            let Ok(found) = self.machines.network.outcomes(&flow) else { continue };
            if self.replaced.is_some() || self.unknown_program(&asked, Some(&found)).is_some() {
                continue;
            }
            gathered.asked += 1;
            if stale::taken(&flow, &found, &self.proxy.tables) {
                gathered.stale(&asked, &found);
                return;
            }
        }
    }
}
