//! Checks the steps in order, without a kernel: every name must exist at the step that uses it.

use std::collections::BTreeSet;

use serde_saphyr::{Location, Spanned};
use svclab_apiserver::objects::{ObjectError, Store};
use svclab_audit::audit::FindingKind;
use svclab_spec::Protocol;

use super::error::{FileError, Problem};
use super::fault::{NodeFault, NodeFaultKind};
use super::file::{Action, Effect, FindingFile, RuleFile};
use super::modes::PossibleModes;
use super::values::{NodeChoice, OneOrMany, position};
use super::{PlacedDocument, Scenario, Step, copies, resolve};
use crate::mode::Need;

pub(super) fn apply_all(store: &mut Store, documents: &[PlacedDocument], errors: &mut Vec<FileError>) {
    for placed in documents {
        if let Err(error) = store.apply(placed.document.object.clone()) {
            let (line, column) = placed.field_position(error.path());
            errors.push(FileError { file: placed.file.clone(), line, column, message: error.to_string() });
        }
    }
}

pub(super) fn change(store: &mut Store, step: &Step) -> Result<(), ObjectError> {
    match &step.action {
        Action::Apply(_) => {
            step.documents.iter().try_for_each(|placed| store.apply(placed.document.object.clone()).map(|_| ()))
        }
        Action::Delete(objects) => {
            objects.0.iter().try_for_each(|object| store.delete(&object.value.kind, &object.value.key))
        }
        Action::Ready(pods) => pods.0.iter().try_for_each(|pod| store.set_ready(&pod.value.0, true)),
        Action::Unready(pods) => pods.0.iter().try_for_each(|pod| store.set_ready(&pod.value.0, false)),
        Action::Terminate(pods) => pods.0.iter().try_for_each(|pod| store.set_terminating(&pod.value.0)),
        Action::Scale(file) => copies::scale(store, file),
        _ => Ok(()),
    }
}

/// Steps with errors that the parser found.
#[derive(Debug, Default)]
pub(super) struct Incomplete {
    /// The line of the first removed step on which later steps may depend.
    until: Option<usize>,
    /// Steps with an error: further errors may follow from it.
    pub(super) has_errors: BTreeSet<usize>,
}

impl Incomplete {
    pub(super) fn left_out(&mut self, line: usize, changes: bool) {
        self.has_errors.insert(line);
        if changes {
            self.until = Some(self.until.map_or(line, |until| until.min(line)));
        }
    }
}

/// Checks each step with its objects, up to a removed step on which later steps may depend.
pub(super) fn check(scenario: &Scenario, incomplete: &Incomplete, errors: &mut Vec<FileError>) {
    let mut run = DryRun {
        scenario,
        errors,
        requests: BTreeSet::new(),
        connections: BTreeSet::new(),
        traffic: BTreeSet::new(),
        cut_off: BTreeSet::new(),
        impaired: BTreeSet::new(),
        faults: Vec::new(),
        noted_metrics: BTreeSet::new(),
        modes: PossibleModes::of(scenario),
    };
    let mut store = Store::new(scenario.cluster.clone(), scenario.options.clone());
    apply_all(&mut store, &scenario.manifests, run.errors);
    for (index, step) in scenario.steps.iter().enumerate() {
        if incomplete.until.is_some_and(|until| step.line >= until) {
            return;
        }
        run.step(&mut store, step, incomplete.has_errors.contains(&step.line));
        if step.action.kill_in_restore().is_some()
            && incomplete.has_errors.is_empty()
            && !scenario.steps.get(index + 1).is_some_and(|next| makes_restore(next, &step.nodes))
        {
            let message = "killProxy: it waits for a restore in the next step; expected that to be one of apply, delete, \
                           ready, unready, terminate, scale, or a startProxy of the same nodes";
            run.report(step, Problem::new(Location::UNKNOWN, message));
        }
    }
    if let Some(last) = scenario.steps.last().filter(|_| incomplete.has_errors.is_empty()) {
        run.check_end(last);
    }
}

fn makes_restore(step: &Step, nodes: &[String]) -> bool {
    let starts = matches!(step.action, Action::StartProxy(_)) && nodes.iter().all(|node| step.nodes.contains(node));
    step.key.effect == Effect::Objects || starts
}

/// The state after the checked steps.
struct DryRun<'a> {
    scenario: &'a Scenario,
    errors: &'a mut Vec<FileError>,
    /// Valid targets of `sameAs` and `differsFrom`.
    requests: BTreeSet<&'a str>,
    connections: BTreeSet<&'a str>,
    traffic: BTreeSet<&'a str>,
    cut_off: BTreeSet<&'a str>,
    impaired: BTreeSet<&'a str>,
    faults: Vec<(NodeFault, &'a str)>,
    noted_metrics: BTreeSet<(&'a str, &'a str)>,
    modes: PossibleModes<'a>,
}

fn problem(message: impl Into<String>) -> Problem {
    Problem::new(Location::UNKNOWN, message)
}

impl<'a> DryRun<'a> {
    fn report(&mut self, step: &Step, problem: Problem) {
        let (line, column) = match problem.at {
            Location::UNKNOWN => (step.line, 1),
            at => position(at),
        };
        let file = self.scenario.path.display().to_string();
        let message = format!("step {:?}: {}", step.name, problem.message);
        self.errors.push(FileError { file, line, column, message });
    }

    fn step(&mut self, store: &mut Store, step: &'a Step, has_errors: bool) {
        if let Action::Apply(_) = &step.action {
            apply_all(store, &step.documents, self.errors);
        } else if step.action.mistake().is_none()
            && let Err(error) = change(store, step)
        {
            self.report(step, problem(error.to_string()));
        }
        let earlier = step.expect.same_as.iter().chain(&step.expect.differs_from);
        for name in earlier.filter(|name| !self.requests.contains(name.value.as_str())).collect::<Vec<_>>() {
            let message = format!("{:?} is no earlier probe, connect or send step", name.value);
            self.report(step, Problem::new(name.referenced, message));
        }
        // Also checks steps with errors, to note what they begin.
        let problems: Vec<Problem> = self.problems(store, step).into_iter().chain(self.modes.step(step)).collect();
        for problem in problems.into_iter().filter(|_| !has_errors) {
            self.report(step, problem);
        }
        if step.key.expects.contains(&"sameAs") {
            self.requests.insert(&step.name);
        }
    }

    fn check_end(&mut self, last: &Step) {
        if let Some((fault, node)) = self.faults.first().copied() {
            let key = fault.kind().ends();
            let message = format!("after it, {fault} on {node}, and nothing ends that: a step `{key}` does");
            self.report(last, problem(message));
        }
        let endless: Vec<String> = self.traffic.iter().map(|name| format!("{name:?}")).collect();
        if !endless.is_empty() {
            let message = format!("after it, {} still goes on: an `endTraffic` step judges it", endless.join(" and "));
            self.report(last, problem(message));
        }
    }

    fn check_protocol(&self, protocol: Option<Protocol>) -> Option<Problem> {
        let lacks_need = protocol == Some(Protocol::Sctp) && !self.scenario.needs.contains(&Need::Sctp);
        let message = "many kernels have no SCTP: write `needs: [sctp]` at the top, or look at the rules instead";
        lacks_need.then(|| problem(message))
    }

    fn problems(&mut self, store: &Store, step: &'a Step) -> Vec<Problem> {
        let expect = &step.expect;
        let mut problems: Vec<Problem> =
            expect.counters.iter().flat_map(|rule| check_rule(self.scenario, &rule.value, true)).collect();
        match &step.action {
            Action::Probe(probe) => {
                let plan = resolve::probe(store, probe, expect);
                problems.extend(self.check_protocol(plan.as_ref().ok().map(|plan| plan.probe.protocol)));
                problems.extend(plan.err());
            }
            Action::Connect(connect) => {
                problems.extend(resolve::connect(store, connect, expect).err());
                self.connections.insert(&connect.name.value);
            }
            Action::Send(name) | Action::SendStray(name) if !self.connections.contains(name.as_str()) => {
                let message = format!("{}: there is no connection {name:?}; a `connect` step opens one", step.key.key);
                return vec![problem(message)];
            }
            Action::Send(_) | Action::SendStray(_) => problems.extend(resolve::send(store, expect).err()),
            Action::Scan(scan) => problems.extend(resolve::scan(store, scan, expect).err()),
            Action::Rules(rules) => {
                problems.extend(rules.iter().flat_map(|rule| check_rule(self.scenario, rule, false)));
            }
            Action::Exec(exec) if exec.command.is_empty() => {
                problems.push(Problem::new(exec.at.referenced, "exec.command: expected a program and its arguments"));
            }
            Action::Exec(exec) => problems.extend(resolve::place(store, &exec.at).err()),
            Action::HealthCheck(file) => {
                problems.extend(resolve::health_check(store, step.node(), file).err());
                if file.path.is_some() && expect.local_endpoints.is_some() {
                    let message = "localEndpoints: they are a service's; the proxy's own health has a `status`";
                    problems.push(problem(message));
                }
            }
            Action::LoadBalancer(file) => {
                problems.extend(resolve::vip(store, &file.service.value.0, file.family.as_ref()).err());
            }
            Action::Traffic(file) => {
                self.traffic.insert(&file.name.value);
                let resolved = resolve::traffic(store, file);
                problems.extend(self.check_protocol(resolved.as_ref().ok().map(|(_, probe, _)| probe.protocol)));
                problems.extend(resolved.err());
            }
            Action::EndTraffic(name) if !self.traffic.remove(name.as_str()) => {
                let message = format!("endTraffic: there is no traffic {name:?}; a `traffic` step begins it");
                problems.push(problem(message));
            }
            Action::Metric(file) => problems.extend(self.metric(step, &file.name)),
            Action::Audit(_) => {
                problems.extend(expect.findings.iter().flatten().filter_map(|one| check_finding(store, one)));
            }
            _ => problems.extend(self.node_state(step)),
        }
        problems
    }

    fn metric(&mut self, step: &'a Step, name: &'a str) -> Option<Problem> {
        let node = step.node();
        if step.expect.grew.is_none() {
            self.noted_metrics.insert((node, name));
        }
        let message =
            format!("grew: no earlier step takes note of {name} on {node}; a `metric` step without `expect` does");
        (!self.noted_metrics.contains(&(node, name))).then(|| problem(message))
    }

    fn node_state(&mut self, step: &'a Step) -> Vec<Problem> {
        let mut problems = Vec::new();
        for node in &step.nodes {
            let wrong = match &step.action {
                Action::Partition(_) => {
                    (!self.cut_off.insert(node)).then(|| format!("partition: {node} is cut off already"))
                }
                Action::Heal(_) => (!self.cut_off.remove(node.as_str()))
                    .then(|| format!("heal: {node} is not cut off; a `partition` step does that")),
                Action::Impair(_) => {
                    self.impaired.insert(node);
                    None
                }
                Action::Repair(_) => (!self.impaired.remove(node.as_str()))
                    .then(|| format!("repair: the way to {node} is not impaired; an `impair` step does that")),
                action => match (action.fault(), action.ended_fault()) {
                    (Some(fault), _) => self.begin_fault(fault, node),
                    (_, Some(kind)) => self.end_fault(kind, node),
                    _ => None,
                },
            };
            problems.extend(wrong.map(problem));
        }
        problems
    }

    /// Begins a fault. Returns an error if the node already has one of this kind, or of this command.
    fn begin_fault(&mut self, fault: NodeFault, node: &'a str) -> Option<String> {
        let same = |other: NodeFault| match (other, fault) {
            (NodeFault::Command(one, _), NodeFault::Command(two, _)) => one == two,
            (one, two) => one.kind() == two.kind(),
        };
        let other = self.faults.iter().find(|(other, on)| *on == node && same(*other)).map(|(other, _)| *other);
        self.faults.push((fault, node));
        let (key, end) = (fault.kind().begins(), fault.kind().ends());
        other.map(|other| format!("{key}: {other} on {node} already; `{end}` ends that"))
    }

    fn end_fault(&mut self, kind: NodeFaultKind, node: &str) -> Option<String> {
        let before = self.faults.len();
        self.faults.retain(|(fault, on)| *on != node || fault.kind() != kind);
        let (key, begin) = (kind.ends(), kind.begins());
        (self.faults.len() == before)
            .then(|| format!("{key}: there is nothing to end on {node}; a `{begin}` step begins it"))
    }
}

fn check_finding(store: &Store, finding: &Spanned<FindingFile>) -> Option<Problem> {
    let service = finding.value.service.as_ref()?;
    if finding.value.kind == FindingKind::StaleFrontend {
        let message = "findings: what is stale belongs to no service: leave out `service`";
        return Some(Problem::new(finding.referenced, message));
    }
    store.service(&service.key).err().map(|error| Problem::new(finding.referenced, error.to_string()))
}

fn check_rule(scenario: &Scenario, rule: &RuleFile, counted: bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    let OneOrMany(nodes) = &rule.at;
    let names = || scenario.cluster.nodes.iter().map(|node| node.name.as_str());
    for node in nodes {
        if let Err(message) = NodeChoice::among(&node.value, names()) {
            problems.push(Problem::new(node.referenced, message));
        }
    }
    problems.extend(rule.problems().into_iter().map(|(at, message)| Problem::new(at, message)));
    if counted && rule.packets.is_none() {
        problems.push(problem("counters: expected `packets`"));
    }
    if rule.exists == Some(false) && rule.packets.is_some() {
        problems.push(problem("a rule that is gone has no packets: leave out `packets` or `exists: false`"));
    }
    problems
}
