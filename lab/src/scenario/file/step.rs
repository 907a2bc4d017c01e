//! Steps: one variant of [`Action`] and one row of [`STEP_KEYS`] per key. The keys of `expect` are in `expect.rs`.
//!
//! # How to add a scenario key
//!
//! 1. `lab/src/scenario/file/step.rs`: add a variant to [`Action`], with a type that derives `Deserialize` and
//!    `JsonSchema`, and a row to [`STEP_KEYS`] in the same place. The schema, the error messages and the documentation
//!    follow from these two. Extend [`Action::nodes`] if the value names nodes, [`Action::mistake`] if it has bounds.
//! 2. `lab/src/scenario/run/backend.rs`: carry out the step in `special`, with the code in a file of its own if it is
//!    long. Steps that the simulator carries out, too, go through `lab/src/scenario/execute/mod.rs`.
//! 3. `lab/src/scenario/dry_run.rs`: only if the value must agree with the objects or with earlier steps.
//! 4. `docs/scenarios.md`: run `UPDATE_DOCS=1 cargo nextest run -p svclab reference`.
//!
//! An `expect` key: a field and a row in `lab/src/scenario/file/expect.rs`, its name in `expects` of the steps that it
//! goes with (here), and the comparison where those steps are carried out.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::{
    BusyWriterFile, CommandFaultFile, ConnectFile, ExecFile, HealthCheckFile, ImpairFile, KillFile, LoadBalancerFile,
    LogFaultFile, Manifests, MetricFile, ProbeFile, ProxyOverride, RuleFile, ScaleFile, ScanFile, StartFile,
    StartMoment, TrafficFile,
};
use crate::mode::{Mode, Need};
use crate::scenario::error::Problem;
use crate::scenario::fault::{NodeFault, NodeFaultKind};
use crate::scenario::values::{ApiFault, NodeChoice, ObjectRef, OneOrMany, PodRef, TimeSpan};

/// The shortest `idle` step: the kernel counts processor time in hundredths of a second.
const LEAST_IDLE: Duration = Duration::from_secs(1);

/// What a step does, as the author wrote it. [`STEP_KEYS`] has the variants' keys in the same order.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    Apply(Manifests),
    Delete(OneOrMany<ObjectRef>),
    Ready(OneOrMany<PodRef>),
    Unready(OneOrMany<PodRef>),
    Terminate(OneOrMany<PodRef>),
    Probe(ProbeFile),
    Connect(ConnectFile),
    Send(String),
    SendStray(String),
    Scan(ScanFile),
    Rules(Vec<RuleFile>),
    Exec(ExecFile),
    KillProxy(KillFile),
    StopProxy(OneOrMany<NodeChoice>),
    StartProxy(StartFile),
    CleanupProxy(OneOrMany<NodeChoice>),
    HealthCheck(HealthCheckFile),
    Metric(MetricFile),
    LoadBalancer(LoadBalancerFile),
    Traffic(TrafficFile),
    EndTraffic(String),
    Scale(ScaleFile),
    Api(ApiFault),
    Partition(OneOrMany<NodeChoice>),
    Heal(OneOrMany<NodeChoice>),
    Impair(ImpairFile),
    Repair(OneOrMany<NodeChoice>),
    CommandFault(CommandFaultFile),
    EndCommandFault(OneOrMany<NodeChoice>),
    HoldLock(OneOrMany<NodeChoice>),
    ReleaseLock(OneOrMany<NodeChoice>),
    BusyWriter(BusyWriterFile),
    EndBusyWriter(OneOrMany<NodeChoice>),
    LogFault(LogFaultFile),
    EndLogFault(OneOrMany<NodeChoice>),
    Advance(TimeSpan),
    Idle(TimeSpan),
    Audit(OneOrMany<NodeChoice>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Changes Kubernetes objects, and so the rules of every node.
    Objects,
    /// Makes proxies rewrite their rules without a change of objects.
    Rules,
    /// Changes state that later steps use: connections, traffic, noted metrics, faults.
    State,
    /// Changes nothing. The executor repeats the step until its promises hold.
    Reads,
    /// Changes nothing, but a repetition may give another result.
    ReadsOnce,
}

/// Why a step needs the kernel. The simulator skips such a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelOnly {
    /// The text after "not simulated:" in reports.
    pub words: &'static str,
    /// Whether the simulator skips all later steps, too.
    pub later_steps_depend: bool,
}

impl KernelOnly {
    const fn showing(words: &'static str) -> Option<KernelOnly> {
        Some(KernelOnly { words, later_steps_depend: false })
    }

    const fn changing(words: &'static str) -> Option<KernelOnly> {
        Some(KernelOnly { words, later_steps_depend: true })
    }
}

/// The reason why the simulator ignores `took`.
pub const DURATIONS: KernelOnly =
    KernelOnly { words: "how long a request or a change takes", later_steps_depend: false };
/// The reason why the simulator ignores `bytes`.
pub const SIZES: KernelOnly = KernelOnly { words: "a request of more than one packet", later_steps_depend: false };
/// The reason why the simulator ignores `sawDscp`.
pub const DSCPS: KernelOnly = KernelOnly { words: "the DSCP that servers see", later_steps_depend: false };
const OWN_REPORTS: Option<KernelOnly> = KernelOnly::showing("what a proxy tells of itself");
const TRAFFIC: Option<KernelOnly> = KernelOnly::showing("traffic during a change: the simulator changes in no time");
const PARTITION: Option<KernelOnly> = KernelOnly::changing("a node that is cut off");
const IMPAIRMENT: Option<KernelOnly> = KernelOnly::changing("delay and loss on a link");
const COMMAND: Option<KernelOnly> = KernelOnly::changing("a command that does not do its work");
const LOCK: Option<KernelOnly> = KernelOnly::changing("the lock of iptables");
const WRITER: Option<KernelOnly> = KernelOnly::showing("how long a sync takes while another program writes");
const LOG: Option<KernelOnly> = KernelOnly::showing("a log that nobody reads");

#[derive(Debug)]
pub struct StepKey {
    pub key: &'static str,
    pub effect: Effect,
    pub kernel_only: Option<KernelOnly>,
    /// The keys of `expect` for the step.
    pub expects: &'static [&'static str],
    pub needs_expect: bool,
    /// Forms of the step with their meanings, in Markdown.
    pub docs: &'static [(&'static str, &'static str)],
}

const fn step(key: &'static str, effect: Effect, docs: &'static [(&'static str, &'static str)]) -> StepKey {
    StepKey { key, effect, kernel_only: None, expects: &[], needs_expect: false, docs }
}

impl StepKey {
    const fn kernel(self, kernel_only: Option<KernelOnly>) -> StepKey {
        StepKey { kernel_only, ..self }
    }

    const fn expects(self, expects: &'static [&'static str]) -> StepKey {
        StepKey { expects, ..self }
    }

    const fn needs_expect(self) -> StepKey {
        StepKey { needs_expect: true, ..self }
    }

    pub fn of(key: &str) -> Option<&'static StepKey> {
        STEP_KEYS.iter().find(|row| row.key == key)
    }
}

/// The keys of steps, in the order of error messages and documentation. A key without `docs` shares its counterpart's
/// row.
#[rustfmt::skip]
pub static STEP_KEYS: [StepKey; 38] = [
    step("apply", Effect::Objects, &[("`apply: \\|` …", "creates or replaces objects (text or list of files, like `manifests`)")]).expects(&["took"]),
    step("delete", Effect::Objects, &[("`delete: KIND/NAME`", "deletes a pod, service, endpointslice, node (the object; the machine stays) or servicecidr, or a list of them")]).expects(&["took"]),
    step("ready", Effect::Objects, &[("`ready: POD`, `unready: POD`", "sets the readiness of pods")]).expects(&["took"]),
    step("unready", Effect::Objects, &[]).expects(&["took"]),
    step("terminate", Effect::Objects, &[("`terminate: POD`", "gives pods a deletion timestamp; they continue to serve")]).expects(&["took"]),
    step("probe", Effect::Reads, &[("`probe: {from, to, …}`", "sends requests")])
        .expects(&["answered", "spread", "sensitivity", "sticky", "sameAs", "differsFrom", "sawSource", "sawDscp", "refused",
                   "dropped", "unanswered", "took", "counters"]),
    step("connect", Effect::State, &[("`connect: {name, from, to, family, via, sourcePort}`", "opens a TCP connection, keeps it open, and sends one request over it")])
        .expects(&["answered", "sameAs", "differsFrom", "sawSource", "refused", "dropped", "unanswered", "took", "counters"]),
    step("send", Effect::State, &[("`send: CONNECTION`", "sends another request over an open connection")])
        .expects(&["answered", "sameAs", "differsFrom", "sawSource", "took", "counters", "alive", "reset"]),
    step("sendStray", Effect::State, &[("`sendStray: CONNECTION`", "makes the pod at the other end send a segment far outside the window of the connection, then sends a request like `send`")])
        .expects(&["answered", "sameAs", "differsFrom", "sawSource", "took", "counters", "alive"])
        .kernel(KernelOnly::showing("sequence numbers")),
    step("scan", Effect::ReadsOnce, &[("`scan: {from, to, ports, family, via, timeout}`", "tries to connect to every TCP port of an address, or to the `ports` of a list (`[1-1024, 9090]`); `from`, `to`, `family` and `via` as for `probe`; each port has 700 ms to answer")])
        .expects(&["open"]),
    step("rules", Effect::Reads, &[("`rules: [RULE, …]`", "checks chains, rules and their counters, sets and maps: see [Rules](#rules)")]),
    step("exec", Effect::ReadsOnce, &[("`exec: {at: PLACE, command: [PROGRAM, ARGUMENT, …]}`", "runs a command: code, with the rights and files of the user who runs the scenario")])
        .expects(&["status", "output", "lacks"]).kernel(KernelOnly::changing("a command")),
    step("killProxy", Effect::Rules, &[
        ("`killProxy`, `stopProxy`, `startProxy`, `cleanupProxy`: NODE", "SIGKILL; SIGTERM; start (after a SIGTERM to a running proxy); SIGTERM and `--cleanup`; takes a list or `all`"),
        ("`killProxy: {node, when: restoring}`", "the next step, which must change objects or start these proxies, kills them and their children while they run a `…-restore` command: at its start, or `after: TIME`, or at its end if that is earlier"),
    ]),
    step("stopProxy", Effect::Rules, &[]),
    step("startProxy", Effect::Rules, &[
        ("`startProxy: {node, mode: MODE}`", "starts the proxy in another mode, which later starts there keep; the file then needs what that mode needs"),
        ("`startProxy: {node, scheduler: NAME}`", "starts the proxy with another IPVS scheduler (`rr`, `wrr`, `lc`, `wlc`, `lblc`, `lblcr`, `dh`, `sh`, `sed`, `nq`, `mh`)"),
        ("`startProxy: {node, masqueradeAll: BOOLEAN}`", "starts the proxy with `masqueradeAll`, or without"),
        ("`startProxy: {node, …, when: ended}`", "writes the changed configuration file, waits until the proxy ends by itself, as kube-proxy does, and svcproxy with `restartOnConfigChange`, and starts it again; one that does not end within 30 s, or ends with status 0, fails the step"),
    ]),
    step("cleanupProxy", Effect::Rules, &[]),
    step("healthCheck", Effect::Reads, &[
        ("`healthCheck: {node, service, family, from}`", "sends a request to the service's `healthCheckNodePort` on that node; default: over the cluster's primary family, from the node itself"),
        ("`healthCheck: {node, path, family, from}`", "reads the health of that node's proxy, at `/healthz`, `/livez` or `/readyz` (svcproxy's) of port 10256: of the node's address, if `family` or `from` is given, else of 127.0.0.1"),
    ]).expects(&["status", "localEndpoints"]).needs_expect(),
    step("metric", Effect::State, &[("`metric: {node, name}`", "notes a metric of that node's proxy, the sum of its samples at `http://127.0.0.1:10249/metrics`, or with `name: 'NAME{label=\"value\"}'` of those with these labels; with `expect: {grew: …}` compares it with the previous note. A metric without a sample fails the step")])
        .expects(&["grew"]).kernel(OWN_REPORTS),
    step("loadBalancer", Effect::Reads, &[("`loadBalancer: {service, family}`", "reads which nodes the load balancer sends to, for the service's first address or its address of that family")])
        .expects(&["healthyNodes"]).needs_expect(),
    step("traffic", Effect::State, &[("`traffic: {name, from, to, …}`", "starts to send requests to a service in the background: 4 at a time (`concurrency`), with a pause of 5 ms in each task (`pause`); `protocol`, `family` and `via` as for `probe`; with `sourcePort` (UDP) one at a time, all of one flow")])
        .kernel(TRAFFIC),
    step("endTraffic", Effect::State, &[("`endTraffic: NAME`", "ends background traffic and judges every request")])
        .expects(&["made", "failed", "misdelivered"]).kernel(TRAFFIC),
    step("scale", Effect::Objects, &[("`scale: {pod: POD, to: NUMBER}`", "adds copies of a pod until there are so many (`POD-2`, `POD-3`, …, on the nodes in turn), or removes copies"),
        ("`scale: {service: SERVICE, to: NUMBER}`", "the same with copies of a Service, which have cluster IPs and ports of their own, and no external IP")]).expects(&["took"]),
    step("api", Effect::Rules, &[("`api: FAULT`", "makes the Kubernetes API misbehave: see [The Kubernetes API](#the-kubernetes-api)")])
        .expects(&["took"]).kernel(KernelOnly::changing("the Kubernetes API")),
    step("partition", Effect::State, &[("`partition: NODE`, `heal: NODE`", "cuts nodes off, reconnects them; takes a list or `all`: see [Partition](#partition)")])
        .kernel(PARTITION),
    step("heal", Effect::Rules, &[]).kernel(PARTITION),
    step("impair", Effect::State, &[("`impair: {node, delay, …}`, `repair: NODE`", "delays or loses packets to nodes, ends that; takes a list or `all`: see [Impaired links](#impaired-links)")])
        .kernel(IMPAIRMENT),
    step("repair", Effect::State, &[]).kernel(IMPAIRMENT),
    step("commandFault", Effect::State, &[("`commandFault: {node, command, does}`, `endCommandFault: NODE`", "makes a command of iptables fail, hang or print garbage for the proxies of nodes, ends that and judges it: see [Faults of a node](#faults-of-a-node)")])
        .kernel(COMMAND),
    step("endCommandFault", Effect::Rules, &[]).kernel(COMMAND),
    step("holdLock", Effect::State, &[("`holdLock: NODE`, `releaseLock: NODE`", "holds the lock that all commands of the legacy variant share, releases it")])
        .kernel(LOCK),
    step("releaseLock", Effect::Rules, &[]).kernel(LOCK),
    step("busyWriter", Effect::State, &[("`busyWriter: {node, perSecond}`, `endBusyWriter: NODE`", "starts and ends a program that rewrites rules of its own all the time")])
        .kernel(WRITER),
    step("endBusyWriter", Effect::Rules, &[]).kernel(WRITER),
    step("logFault", Effect::State, &[("`logFault: {node, does: stall}`, `endLogFault: NODE`", "stalls or closes the reader of the proxy's log, ends that")])
        .kernel(LOG),
    step("endLogFault", Effect::Rules, &[]).kernel(LOG),
    step("advance", Effect::State, &[("`advance: TIME`", "lets so much time pass, for every process; needs `virtualTime`, where it costs next to nothing")]),
    step("idle", Effect::State, &[("`idle: TIME`", "lets so much time pass in which nothing happens, and judges what the proxies do in it: see [Idleness](#idleness)")])
        .expects(&["processor", "wakeUps", "kernel"]).kernel(KernelOnly::showing("what a proxy does while nothing happens")),
    step("audit", Effect::Reads, &[("`audit: NODE`", "collects nodes as [`svclab collect`](collect.md) does, and judges their rules for every service port and every kind of caller as [`svclab audit`](audit.md) does; takes a list or `all`: see [Audits](#audits)")])
        .expects(&["findings"]).kernel(KernelOnly::showing("an audit, which reads a node of the kernel")),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyAction {
    Kill,
    Stop,
    Start(ProxyOverride, Option<StartMoment>),
    /// SIGTERM, then `--cleanup`.
    Cleanup,
}

impl Action {
    pub fn nodes(&self) -> &[Spanned<NodeChoice>] {
        match self {
            Action::StopProxy(nodes)
            | Action::CleanupProxy(nodes)
            | Action::Partition(nodes)
            | Action::Heal(nodes)
            | Action::Repair(nodes)
            | Action::EndCommandFault(nodes)
            | Action::HoldLock(nodes)
            | Action::ReleaseLock(nodes)
            | Action::EndBusyWriter(nodes)
            | Action::EndLogFault(nodes)
            | Action::Audit(nodes) => &nodes.0,
            Action::KillProxy(file) => &file.node.0,
            Action::StartProxy(file) => &file.node.0,
            Action::Impair(file) => &file.node.0,
            Action::CommandFault(file) => &file.node.0,
            Action::BusyWriter(file) => &file.node.0,
            Action::LogFault(file) => &file.node.0,
            Action::HealthCheck(file) => std::slice::from_ref(&file.node),
            Action::Metric(file) => std::slice::from_ref(&file.node),
            _ => &[],
        }
    }

    pub(in crate::scenario) fn mistake(&self) -> Option<Problem> {
        let (at, message) = match self {
            Action::Scale(file) => return file.mistake(),
            Action::HealthCheck(file) => (Location::UNKNOWN, file.mistake()?.to_owned()),
            Action::Impair(file) => (Location::UNKNOWN, file.mistake()?.to_owned()),
            Action::BusyWriter(file) => (Location::UNKNOWN, file.mistake()?),
            Action::StartProxy(StartFile { different: ProxyOverride { mode: Some(Mode::Other), .. }, .. }) => {
                let message = "startProxy.mode: no proxy is started in mode other: expected iptables, ipvs, nftables or userspace";
                (Location::UNKNOWN, message.to_owned())
            }
            Action::StartProxy(StartFile { different, when: Some(_), .. })
                if *different == ProxyOverride::default() =>
            {
                let message = "startProxy.when: ended: a proxy ends by itself when its configuration changes: expected \
                               mode, scheduler or masqueradeAll as well";
                (Location::UNKNOWN, message.to_owned())
            }
            Action::Idle(span) if span.0 < LEAST_IDLE => {
                let message = "idle: expected a second or more: processor time is counted in hundredths of one";
                (Location::UNKNOWN, message.to_owned())
            }
            _ => return None,
        };
        Some(Problem::new(at, message))
    }

    pub fn needs(&self) -> &'static [Need] {
        match self {
            Action::Advance(_) => &[Need::VirtualTime],
            Action::Impair(_) => &[Need::Netem],
            Action::StartProxy(StartFile { different: ProxyOverride { mode: Some(mode), .. }, .. }) => mode.needs(),
            _ => &[],
        }
    }

    /// Returns why a step with this value needs the kernel. [`StepKey::kernel_only`] applies to all values of a key.
    pub fn kernel_only(&self) -> Option<KernelOnly> {
        match self {
            Action::Probe(probe) if probe.pair.as_ref().is_some_and(|pair| pair.value) => {
                KernelOnly::showing("two datagrams at once are a race between processors")
            }
            Action::Rules(rules) if rules.iter().any(|rule| rule.packets.is_some()) => {
                KernelOnly::showing("which rules a sync leaves alone, with their counters")
            }
            Action::KillProxy(file) if file.when.is_some() => KernelOnly::changing("a restore that is cut short"),
            Action::HealthCheck(file) if file.path.is_some() => OWN_REPORTS,
            Action::HealthCheck(file) if file.from.is_some() => {
                KernelOnly::showing("a health check from elsewhere: no program listens there")
            }
            _ => None,
        }
    }

    pub fn connection(&self) -> Option<&str> {
        match self {
            Action::Send(name) | Action::SendStray(name) => Some(name),
            _ => None,
        }
    }

    /// Returns what a step does to proxies at once; `None` for other steps, and for `killProxy` with `when`.
    pub fn proxy_action(&self) -> Option<ProxyAction> {
        match self {
            Action::KillProxy(file) if file.when.is_none() => Some(ProxyAction::Kill),
            Action::StopProxy(_) => Some(ProxyAction::Stop),
            Action::StartProxy(file) => Some(ProxyAction::Start(file.different, file.when)),
            Action::CleanupProxy(_) => Some(ProxyAction::Cleanup),
            _ => None,
        }
    }

    pub fn kill_in_restore(&self) -> Option<Duration> {
        match self {
            Action::KillProxy(file) if file.when.is_some() => Some(file.after.map(|span| span.0).unwrap_or_default()),
            _ => None,
        }
    }

    pub fn fault(&self) -> Option<NodeFault> {
        match self {
            Action::CommandFault(file) => Some(NodeFault::Command(file.command, file.does)),
            Action::HoldLock(_) => Some(NodeFault::Lock),
            Action::BusyWriter(file) => Some(NodeFault::Writer(file.per_second())),
            Action::LogFault(file) => Some(NodeFault::Log(file.does)),
            _ => None,
        }
    }

    pub fn ended_fault(&self) -> Option<NodeFaultKind> {
        match self {
            Action::EndCommandFault(_) => Some(NodeFaultKind::Command),
            Action::ReleaseLock(_) => Some(NodeFaultKind::Lock),
            Action::EndBusyWriter(_) => Some(NodeFaultKind::Writer),
            Action::EndLogFault(_) => Some(NodeFaultKind::Log),
            _ => None,
        }
    }
}
