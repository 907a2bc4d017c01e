//! Goes through a scenario's steps without a kernel: every name must mean something at the step that uses it.

use std::collections::BTreeSet;

use serde_saphyr::{Location, Spanned};
use svclab_apiserver::objects::{Object, ObjectError, ObjectKey, ObjectKind, Store};
use svclab_audit::audit::FindingKind;
use svclab_spec::Protocol;

use super::error::{FileError, Problem};
use super::fault::{Fault, FaultKind};
use super::file::FindingFile;
use super::modes::Modes;
use super::values::{NodeChoice, OneOrMany, position};
use super::{Action, Placed, ProxyAction, Scenario, Step, resolve};
use crate::mode::Need;

/// Applies `placed` in order; what does not fit goes to `errors` with its line.
pub(super) fn apply_all(store: &mut Store, placed: &[Placed], errors: &mut Vec<FileError>) {
    for item in placed {
        if let Err(error) = store.apply(item.document.object.clone()) {
            let (line, column) = item.place_of(error.path());
            errors.push(FileError { file: item.file.clone(), line, column, message: error.to_string() });
        }
    }
}

/// Changes `store` as `action` says.
pub(super) fn change(store: &mut Store, action: &Action) -> Result<(), ObjectError> {
    match action {
        Action::Apply(placed) => {
            placed.iter().try_for_each(|item| store.apply(item.document.object.clone()).map(|_| ()))
        }
        Action::Delete(objects) => objects.iter().try_for_each(|object| store.delete(&object.kind, &object.key)),
        Action::Ready(pods, ready) => pods.iter().try_for_each(|pod| store.set_ready(pod, *ready)),
        Action::Terminate(pods) => pods.iter().try_for_each(|pod| store.set_terminating(pod)),
        Action::Scale(pod, count) => scale(store, pod, *count),
        _ => Ok(()),
    }
}

/// Copies of `pod` are named after it, `-2`, `-3` and so on, and go to the nodes by turns.
fn scale(store: &mut Store, pod: &ObjectKey, count: usize) -> Result<(), ObjectError> {
    store.pod(pod)?;
    let json = store.record(ObjectKind::Pod, pod).map(|record| record.json.clone()).unwrap_or_default();
    let copy = |number: usize| ObjectKey { name: format!("{}-{number}", pod.name), ..pod.clone() };
    for number in 2..=count {
        if store.pod(&copy(number)).is_ok() {
            continue;
        }
        let mut value: serde_json::Value = serde_json::from_slice(&json).unwrap_or_default();
        let (labels, name) = (value["metadata"]["labels"].take(), copy(number).name);
        value["metadata"] = serde_json::json!({ "name": name, "namespace": pod.namespace, "labels": labels });
        for (part, field) in [("spec", "nodeName"), ("status", "podIP"), ("status", "podIPs")] {
            if let Some(part) = value[part].as_object_mut() {
                part.remove(field);
            }
        }
        let object = Object::from_value(ObjectKind::Pod, &value);
        let (object, _) =
            object.map_err(|wrong| ObjectError::field(format!("pod/{pod}"), wrong.field, wrong.expected))?;
        store.apply(object)?;
    }
    let mut surplus = count.max(1) + 1;
    while store.pod(&copy(surplus)).is_ok() {
        store.delete("pod", &copy(surplus))?;
        surplus += 1;
    }
    Ok(())
}

/// Steps that were not understood.
#[derive(Debug, Default)]
pub(super) struct Doubtful {
    /// The line of the first that may have changed what later ones find.
    until: Option<usize>,
    /// Lines of those that have a mistake already: others in them may follow from it.
    pub(super) marred: BTreeSet<usize>,
}

impl Doubtful {
    /// There was one that is not there now.
    pub(super) fn left_out(&mut self, line: usize, changes: bool) {
        self.marred.insert(line);
        if changes {
            self.until = Some(self.until.map_or(line, |until| until.min(line)));
        }
    }
}

/// Checks every step against the objects that will be there by then, as far as that is known.
pub(super) fn check(scenario: &Scenario, doubtful: &Doubtful, errors: &mut Vec<FileError>) {
    let mut walk = Walk {
        scenario,
        errors,
        probes: BTreeSet::new(),
        connections: BTreeSet::new(),
        traffic: BTreeSet::new(),
        cut_off: BTreeSet::new(),
        impaired: BTreeSet::new(),
        faults: Vec::new(),
        noted: BTreeSet::new(),
        modes: Modes::of(scenario),
    };
    let mut store = Store::new(scenario.cluster.clone(), scenario.options.clone());
    apply_all(&mut store, &scenario.manifests, walk.errors);
    for (index, step) in scenario.steps.iter().enumerate() {
        if doubtful.until.is_some_and(|until| step.line >= until) {
            return;
        }
        walk.step(&mut store, step, doubtful.marred.contains(&step.line));
        if let Action::KillLater(nodes, _) = &step.action
            && doubtful.marred.is_empty()
            && !scenario.steps.get(index + 1).is_some_and(|next| makes_restore(next, nodes))
        {
            let message = "killProxy: it waits for a restore in the next step; expected that to be one of apply, delete, \
                           ready, unready, terminate, scale, or a startProxy of the same nodes";
            walk.report(step, Problem::new(Location::UNKNOWN, message));
        }
    }
    if !doubtful.marred.is_empty() {
        return;
    }
    let endless: Vec<String> = walk.traffic.iter().map(|name| format!("{name:?}")).collect();
    if let (Some(last), Some((fault, node))) = (scenario.steps.last(), walk.faults.first().copied()) {
        let key = fault.kind().ends();
        let message = format!("after it, {fault} on {node}, and nothing ends that: a step `{key}` does");
        walk.report(last, Problem::new(Location::UNKNOWN, message));
    }
    if let Some(last) = scenario.steps.last().filter(|_| !endless.is_empty()) {
        let message = format!("after it, {} still goes on: an `endTraffic` step judges it", endless.join(" and "));
        walk.report(last, Problem::new(Location::UNKNOWN, message));
    }
}

/// Whether a step can lead the proxies of `nodes` to restore rules.
fn makes_restore(step: &Step, nodes: &[String]) -> bool {
    match &step.action {
        Action::Apply(_) | Action::Delete(_) | Action::Ready(..) | Action::Terminate(_) | Action::Scale(..) => true,
        Action::Proxy(ProxyAction::Start(_), started) => nodes.iter().all(|node| started.contains(node)),
        _ => false,
    }
}

struct Walk<'a> {
    scenario: &'a Scenario,
    errors: &'a mut Vec<FileError>,
    probes: BTreeSet<&'a str>,
    connections: BTreeSet<&'a str>,
    traffic: BTreeSet<&'a str>,
    cut_off: BTreeSet<&'a str>,
    impaired: BTreeSet<&'a str>,
    faults: Vec<(Fault, &'a str)>,
    noted: BTreeSet<(&'a str, &'a str)>,
    modes: Modes<'a>,
}

impl<'a> Walk<'a> {
    fn report(&mut self, step: &Step, problem: Problem) {
        let (mut line, mut column) = position(problem.at);
        if problem.at == Location::UNKNOWN {
            (line, column) = (step.line, 1);
        }
        let file = self.scenario.path.display().to_string();
        self.errors.push(FileError {
            file,
            line,
            column,
            message: format!("step {:?}: {}", step.name, problem.message),
        });
    }

    fn step(&mut self, store: &mut Store, step: &'a Step, is_marred: bool) {
        if let Action::Apply(placed) = &step.action {
            apply_all(store, placed, self.errors);
        } else if let Err(error) = change(store, &step.action) {
            self.report(step, Problem::new(Location::UNKNOWN, error.to_string()));
        }
        let earlier = step.expect.same_as.iter().chain(&step.expect.differs_from);
        for name in earlier.filter(|name| !self.probes.contains(name.value.as_str())).collect::<Vec<_>>() {
            let message = format!("{:?} is no earlier probe, connect or send step", name.value);
            self.report(step, Problem::new(name.referenced, message));
        }
        // They are asked in any case: what a step begins is noted there.
        let problems: Vec<Problem> = self.problems(store, step).into_iter().chain(self.modes.step(step)).collect();
        for problem in problems.into_iter().filter(|_| !is_marred) {
            self.report(step, problem);
        }
        if matches!(step.action, Action::Probe(_) | Action::Connect(_) | Action::Send(_) | Action::SendStray(_)) {
            self.probes.insert(&step.name);
        }
    }

    /// What is wrong with speaking `protocol`.
    fn unspoken(&self, protocol: Option<Protocol>) -> Option<Problem> {
        let needed = protocol == Some(Protocol::Sctp) && !self.scenario.needs.contains(&Need::Sctp);
        let message = "many kernels have no SCTP: write `needs: [sctp]` at the top, or look at the rules instead";
        needed.then(|| Problem::new(Location::UNKNOWN, message))
    }

    fn problems(&mut self, store: &Store, step: &'a Step) -> Vec<Problem> {
        let expect = &step.expect;
        let counters =
            || expect.counters.iter().flat_map(|rule| check_rule(self.scenario, &rule.value, true)).collect::<Vec<_>>();
        match &step.action {
            Action::Probe(probe) => {
                let plan = resolve::probe(store, probe, expect);
                let protocol = plan.as_ref().ok().map(|plan| plan.probe.protocol);
                plan.err().into_iter().chain(self.unspoken(protocol)).chain(counters()).collect()
            }
            Action::Connect(connect) => {
                let problems = resolve::connect(store, connect, expect).err().into_iter().chain(counters()).collect();
                self.connections.insert(&connect.name.value);
                problems
            }
            Action::Send(name) | Action::SendStray(name) if !self.connections.contains(name.as_str()) => {
                vec![Problem::new(
                    Location::UNKNOWN,
                    format!("{}: there is no connection {name:?}; a `connect` step opens one", step.action.key()),
                )]
            }
            Action::Send(_) | Action::SendStray(_) => {
                resolve::send(store, expect).err().into_iter().chain(counters()).collect()
            }
            Action::Scan(scan) => resolve::scan(store, scan, expect).err().into_iter().collect(),
            Action::Rules(rules) => rules.iter().flat_map(|rule| check_rule(self.scenario, rule, false)).collect(),
            Action::Exec(exec) if exec.command.is_empty() => {
                vec![Problem::new(exec.on.referenced, "exec.command: expected a program and its arguments")]
            }
            Action::Exec(exec) => resolve::place(store, &exec.on).err().into_iter().collect(),
            Action::HealthCheck(node, service, family) => {
                resolve::health_check(store, node, service, family.as_ref()).err().into_iter().collect()
            }
            Action::LoadBalancer(service) => resolve::vip(store, service).err().into_iter().collect(),
            Action::Traffic(file) => {
                self.traffic.insert(&file.name.value);
                let resolved = resolve::traffic(store, file);
                let protocol = resolved.as_ref().ok().map(|(_, probe, _)| probe.protocol);
                resolved.err().into_iter().chain(self.unspoken(protocol)).collect()
            }
            Action::EndTraffic(name) if !self.traffic.remove(name.as_str()) => {
                let message = format!("endTraffic: there is no traffic {name:?}; a `traffic` step begins it");
                vec![Problem::new(Location::UNKNOWN, message)]
            }
            Action::Partition(nodes) => self.cut(nodes, true),
            Action::Heal(nodes) => self.cut(nodes, false),
            Action::Impair(nodes, _) => {
                self.impaired.extend(nodes.iter().map(String::as_str));
                Vec::new()
            }
            Action::Repair(nodes) => self.repair(nodes),
            Action::OwnHealth(..) if expect.local_endpoints.is_some() => {
                let message = "localEndpoints: they are a service's; the proxy's own health has a `status`";
                vec![Problem::new(Location::UNKNOWN, message)]
            }
            Action::Metric(node, name) if expect.grew.is_none() => {
                self.noted.insert((node, name));
                Vec::new()
            }
            Action::Metric(node, name) if !self.noted.contains(&(node.as_str(), name.as_str())) => {
                let message = format!(
                    "grew: no earlier step takes note of {name} on {node}; a `metric` step without `expect` does"
                );
                vec![Problem::new(Location::UNKNOWN, message)]
            }
            Action::Audit(_) => expect.findings.iter().flatten().filter_map(|one| check_finding(store, one)).collect(),
            Action::Fault(fault, nodes) => self.begin_fault(*fault, nodes),
            Action::EndFault(kind, nodes) => self.end_fault(*kind, nodes),
            _ => Vec::new(),
        }
    }

    fn repair(&mut self, nodes: &[String]) -> Vec<Problem> {
        let sound = nodes.iter().filter(|node| !self.impaired.remove(node.as_str()));
        let message = |node| format!("repair: the way to {node} is not impaired; an `impair` step does that");
        sound.map(|node| Problem::new(Location::UNKNOWN, message(node))).collect()
    }

    /// One fault of a kind at a time on a node; of commands, one for each command.
    fn begin_fault(&mut self, fault: Fault, nodes: &'a [String]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for node in nodes {
            let same = |other: Fault| match (other, fault) {
                (Fault::Command(one, _), Fault::Command(two, _)) => one == two,
                (one, two) => one.kind() == two.kind(),
            };
            if let Some((other, _)) = self.faults.iter().find(|(other, on)| on == node && same(*other)) {
                let (key, end) = (fault.kind().begins(), fault.kind().ends());
                let message = format!("{key}: {other} on {node} already; `{end}` ends that");
                problems.push(Problem::new(Location::UNKNOWN, message));
            }
            self.faults.push((fault, node));
        }
        problems
    }

    fn end_fault(&mut self, kind: FaultKind, nodes: &'a [String]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for node in nodes {
            let before = self.faults.len();
            self.faults.retain(|(fault, on)| on != node || fault.kind() != kind);
            if self.faults.len() == before {
                let (key, begin) = (kind.ends(), kind.begins());
                let message = format!("{key}: there is nothing to end on {node}; a `{begin}` step begins it");
                problems.push(Problem::new(Location::UNKNOWN, message));
            }
        }
        problems
    }

    /// A partition of nodes that are in, or the return of nodes that are cut off; anything else is a slip of the author's.
    fn cut(&mut self, nodes: &'a [String], off: bool) -> Vec<Problem> {
        let mut problems = Vec::new();
        for node in nodes {
            let changes = if off { self.cut_off.insert(node) } else { self.cut_off.remove(node.as_str()) };
            if !changes {
                let message = match off {
                    true => format!("partition: {node} is cut off already"),
                    false => format!("heal: {node} is not cut off; a `partition` step does that"),
                };
                problems.push(Problem::new(Location::UNKNOWN, message));
            }
        }
        problems
    }
}

/// What is wrong with a finding that a step expects.
fn check_finding(store: &Store, finding: &Spanned<FindingFile>) -> Option<Problem> {
    let service = finding.value.service.as_ref()?;
    if finding.value.kind == FindingKind::StaleFrontend {
        let message = "findings: what is stale belongs to no service: leave out `service`";
        return Some(Problem::new(finding.referenced, message));
    }
    store.service(&service.key).err().map(|error| Problem::new(finding.referenced, error.to_string()))
}

fn check_rule(scenario: &Scenario, rule: &super::file::RuleFile, counted: bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    let OneOrMany(nodes) = &rule.on;
    let names = || scenario.cluster.nodes.iter().map(|node| node.name.as_str());
    for node in nodes {
        if let Err(message) = NodeChoice::among(&node.value, names()) {
            problems.push(Problem::new(node.referenced, message));
        }
    }
    problems.extend(rule.problems().into_iter().map(|(at, message)| Problem::new(at, message)));
    if counted && rule.packets.is_none() {
        problems.push(Problem::new(Location::UNKNOWN, "counters: expected `packets`"));
    }
    if rule.exists == Some(false) && rule.packets.is_some() {
        problems.push(Problem::new(
            Location::UNKNOWN,
            "a rule that is gone has no packets: leave out `packets` or `exists: false`",
        ));
    }
    problems
}
