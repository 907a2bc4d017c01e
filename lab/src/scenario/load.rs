//! Reads a scenario file and checks all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_saphyr::{Location, Spanned};
use svclab_apiserver::objects::StoreOptions;
use svclab_netns::netem::Impairment;
use svclab_spec::ClusterSpec;

use super::dry_run::Doubtful;
use super::error::{FileError, LoadError, Problem};
use super::file::{Asked, ExpectFile, FaultKeys, HealthPath, Manifests, Moment, ScenarioFile, StepFile};
use super::mistakes::Understood;
use super::values::{NodeChoice, OneOrMany, position};
use super::{Action, ProxyAction, Scenario, Step, configuration, dry_run, manifests, mistakes, topology};
use crate::input::Files;
use crate::mode::{Mode, Need};
use crate::promises::Promise;

/// Less than this says nothing about a proxy that is idle.
const LEAST_IDLE: Duration = Duration::from_secs(1);
/// Each is a network namespace with a thread.
const MOST_COPIES: usize = 10_000;
/// What a scenario's file is called in a failure bundle, without its extension.
const IN_BUNDLE: &str = "scenario";
/// Upstream's EndpointSlice controller default.
const ENDPOINTS_PER_SLICE: usize = 100;

/// Reads and checks the scenario at `path`; `seed` decides the addresses and ports that it leaves open.
///
/// # Errors
/// Everything that is wrong with it, each with its line.
pub fn load(path: &Path, seed: u64) -> Result<Scenario, LoadError> {
    load_from(&Files::default(), path, seed)
}

/// The same with the texts of `files`.
///
/// # Errors
/// Everything that is wrong with it, each with its line.
pub fn load_from(files: &Files, path: &Path, seed: u64) -> Result<Scenario, LoadError> {
    let text = files.text(path).map_err(|error| failure(path, 1, 1, format!("cannot read the scenario: {error}")))?;
    parse(files, path, &text, seed)
}

fn failure(path: &Path, line: usize, column: usize, message: String) -> LoadError {
    LoadError { errors: vec![FileError { file: path.display().to_string(), line, column, message }] }
}

/// Checks the scenario `text`, which stands at `path`.
pub(super) fn parse(files: &Files, path: &Path, text: &str, seed: u64) -> Result<Scenario, LoadError> {
    let name = path.display().to_string();
    let mut understood = mistakes::read(path, text);
    let errors = std::mem::take(&mut understood.errors);
    let Some(file) = understood.file.take() else { return Err(LoadError { errors }) };
    Loader { files, path, name: &name, text, read: BTreeMap::new(), errors }.scenario(file, &understood, seed)
}

struct Loader<'a> {
    files: &'a Files,
    path: &'a Path,
    name: &'a str,
    text: &'a str,
    /// The texts of manifests beside the scenario, by path.
    read: BTreeMap<String, String>,
    errors: Vec<FileError>,
}

impl Loader<'_> {
    fn report(&mut self, problems: Vec<Problem>, fallback: Location) {
        for problem in problems {
            let problem = problem.or_at(fallback);
            let (line, column) = position(problem.at);
            let (file, message) = (self.name.to_owned(), problem.message);
            self.errors.push(FileError { file, line, column, message });
        }
    }

    fn problem(&mut self, at: Location, message: impl Into<String>) {
        self.report(vec![Problem::new(at, message)], at);
    }

    fn scenario(mut self, file: ScenarioFile, understood: &Understood, seed: u64) -> Result<Scenario, LoadError> {
        let of_form = self.errors.len();
        self.check_head(&file, !understood.left_out.is_empty());
        let promise = file.promise.as_ref().and_then(|id| self.promise(id));
        let top = file.name.referenced;
        let (cluster_at, cluster_file) = split(file.cluster, top);
        let (proxy_at, proxy_file) = split(file.proxy, top);
        let mut problems = Vec::new();
        let (cluster, vip_ranges) = topology::build(&cluster_file, &mut problems);
        self.report(std::mem::take(&mut problems), cluster_at);
        let proxy = configuration::of(&proxy_file, &cluster, &mut problems);
        self.report(problems, proxy_at);
        let manifests = self.manifests(file.manifests.as_ref());
        let per_slice = cluster_file.max_endpoints_per_slice.map(|number| {
            if !(1..=1000).contains(&number.value) {
                self.problem(number.referenced, "expected 1 to 1000 endpoints per slice");
            }
            number.value
        });
        let is_sound = understood.is_whole && self.errors.len() == of_form;
        let mut doubtful = Doubtful::default();
        for (line, changes) in &understood.left_out {
            doubtful.left_out(*line, *changes);
        }
        let mut steps = Vec::new();
        for step in file.steps.value {
            let (line, before) = (position(step.referenced).0, self.errors.len());
            let step = self.step(step, &cluster);
            match step {
                None => doubtful.left_out(line, true),
                Some(step) => {
                    if self.errors.len() > before {
                        doubtful.marred.insert(line);
                    }
                    steps.push(step);
                }
            }
        }
        let mut needs: BTreeSet<Need> = file.needs.into_iter().collect();
        needs.extend(steps.iter().flat_map(|step| step.action.needs()));
        let scenario = Scenario {
            needs,
            path: self.path.to_owned(),
            text: self.text.to_owned(),
            files: std::mem::take(&mut self.read),
            name: file.name.value,
            about: file.about.split_whitespace().collect::<Vec<_>>().join(" "),
            promise,
            modes: file.modes.map_or_else(|| Mode::ALL.to_vec(), |modes| modes.value),
            variant: file.variant,
            cluster,
            options: StoreOptions {
                seed,
                max_endpoints_per_slice: per_slice.unwrap_or(ENDPOINTS_PER_SLICE),
                vip_ranges,
            },
            proxy,
            manifests,
            steps,
        };
        // Names can be looked up only in what was understood so far.
        if is_sound {
            dry_run::check(&scenario, &doubtful, &mut self.errors);
        }
        let own = |error: &FileError| (error.file != self.name, error.line, error.column);
        self.errors.sort_by_key(own);
        self.errors.dedup();
        if self.errors.is_empty() { Ok(scenario) } else { Err(LoadError { errors: self.errors }) }
    }

    fn check_head(&mut self, file: &ScenarioFile, has_left_out: bool) {
        let stem = self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        // In a failure bundle the file has the same name whatever the scenario's.
        if file.name.value != stem && stem != IN_BUNDLE {
            self.problem(file.name.referenced, format!("expected `{stem}`: a scenario is named as its file is"));
        }
        if file.about.trim().is_empty() {
            self.problem(
                file.name.referenced,
                "`about` is empty: expected a sentence that says what the scenario shows",
            );
        }
        if file.steps.value.is_empty() && !has_left_out {
            self.problem(file.steps.referenced, mistakes::NO_STEPS);
        }
        if let Some(modes) = file.modes.as_ref().filter(|modes| modes.value.is_empty()) {
            self.problem(modes.referenced, "expected at least one mode");
        }
        for (index, step) in file.steps.value.iter().enumerate() {
            if file.steps.value[..index].iter().any(|other| other.value.name == step.value.name) {
                self.problem(step.referenced, format!("there is a step named {:?} already", step.value.name));
            }
        }
    }

    fn promise(&mut self, id: &Spanned<String>) -> Option<&'static Promise> {
        let promise = Promise::of_id(&id.value);
        if promise.is_none() {
            self.problem(id.referenced, mistakes::no_promise(&id.value));
        }
        promise
    }

    fn manifests(&mut self, written: Option<&Manifests>) -> Vec<super::Placed> {
        let Some(written) = written else { return Vec::new() };
        manifests::read(written, self.path, self.files, &mut self.read, &mut self.errors)
    }

    fn step(&mut self, step: Spanned<StepFile>, cluster: &ClusterSpec) -> Option<Step> {
        let at = step.referenced;
        let mut file = step.value;
        let name = std::mem::take(&mut file.name);
        let promise = file.promise.take().and_then(|id| self.promise(&id));
        let modes = file.modes.take().unwrap_or_else(|| Mode::ALL.to_vec());
        let expect = file.expect.take();
        let eventually = file.eventually.take().map(|span| span.0);
        let every = file.every.take().map(|span| span.0);
        if every.is_some() && eventually.is_none() {
            self.problem(at, format!("step {name:?}: `every` goes with `eventually`"));
        }
        let mut actions = self.actions(file, at, cluster);
        if actions.len() != 1 {
            let keys: Vec<&str> = actions.iter().map(Action::key).collect();
            let found = if keys.is_empty() { "none".to_owned() } else { keys.join(" and ") };
            self.problem(
                at,
                format!("step {name:?}: expected exactly one of {}; found {found}", Action::KEYS.join(", ")),
            );
            return None;
        }
        let action = actions.remove(0);
        let (expect_at, expect) =
            expect.map_or((at, ExpectFile::default()), |expect| (expect.referenced, expect.value));
        for (key, fits) in expect.keys() {
            if !fits.contains(&action.key()) {
                let message =
                    format!("`{key}` says nothing about `{}`; it goes with {}", action.key(), fits.join(" or "));
                self.problem(expect_at, message);
            }
        }
        if action.only_looks() && expect.keys().is_empty() {
            let key = action.key();
            self.problem(
                at,
                format!("step {name:?}: `{key}` without `expect` promises nothing: say what is to be there"),
            );
        }
        let line = position(at).0;
        Some(Step { line, name, promise, modes, action, expect, eventually, every })
    }

    /// Every action that the step asks for.
    fn actions(&mut self, file: StepFile, at: Location, cluster: &ClusterSpec) -> Vec<Action> {
        let keys = |pods: OneOrMany<super::values::PodRef>| pods.0.into_iter().map(|pod| pod.value.0).collect();
        let mut actions = Vec::new();
        actions.extend(file.apply.map(|written| Action::Apply(self.manifests(Some(&written)))));
        actions.extend(file.delete.map(|list| Action::Delete(list.0.into_iter().map(|object| object.value).collect())));
        actions.extend(file.ready.map(|pods| Action::Ready(keys(pods), true)));
        actions.extend(file.unready.map(|pods| Action::Ready(keys(pods), false)));
        actions.extend(file.terminate.map(|pods| Action::Terminate(keys(pods))));
        actions.extend(file.probe.map(Action::Probe));
        actions.extend(file.connect.map(Action::Connect));
        actions.extend(file.send.map(|name| Action::Send(name.value)));
        actions.extend(file.send_stray.map(|name| Action::SendStray(name.value)));
        actions.extend(file.scan.map(|scan| Action::Scan(scan.value)));
        actions.extend(file.rules.map(|rules| Action::Rules(rules.into_iter().map(|rule| rule.value).collect())));
        actions.extend(file.exec.map(Action::Exec));
        for (what, nodes) in [(ProxyAction::Stop, file.stop_proxy), (ProxyAction::Cleanup, file.cleanup_proxy)] {
            actions.extend(nodes.map(|nodes| Action::Proxy(what, self.nodes(&nodes, at, cluster))));
        }
        actions.extend(
            file.start_proxy
                .map(|start| Action::Proxy(ProxyAction::Start(start.different), self.nodes(&start.node, at, cluster))),
        );
        actions.extend(file.kill_proxy.map(|kill| {
            let nodes = self.nodes(&kill.node, at, cluster);
            match kill.when {
                None => Action::Proxy(ProxyAction::Kill, nodes),
                Some(Moment::Restoring) => Action::KillLater(nodes, kill.after.map(|span| span.0).unwrap_or_default()),
            }
        }));
        actions.extend(file.health_check.map(|check| {
            let node = self.node(&check.node, at, cluster);
            let asked = check.asked().unwrap_or_else(|message| {
                self.problem(at, message);
                Asked::Proxy(HealthPath::Livez)
            });
            match asked {
                Asked::Service(service, family) => Action::HealthCheck(node, service, family),
                Asked::Proxy(path) => Action::OwnHealth(node, path),
            }
        }));
        actions.extend(file.metric.map(|file| Action::Metric(self.node(&file.node, at, cluster), file.name)));
        actions.extend(file.traffic.map(Action::Traffic));
        actions.extend(file.end_traffic.map(|name| Action::EndTraffic(name.value)));
        actions.extend(file.scale.map(|scale| {
            if scale.to > MOST_COPIES {
                self.problem(scale.pod.referenced, format!("scale.to: expected at most {MOST_COPIES} pods"));
            }
            Action::Scale(scale.pod.value.0, scale.to.min(MOST_COPIES))
        }));
        actions.extend(file.api.map(|fault| Action::Api(fault.value.0)));
        actions.extend(file.partition.map(|nodes| Action::Partition(self.nodes(&nodes, at, cluster))));
        actions.extend(file.heal.map(|nodes| Action::Heal(self.nodes(&nodes, at, cluster))));
        actions.extend(file.impair.map(|impair| {
            let meant = impair.meant().unwrap_or_else(|message| {
                self.problem(at, message);
                Impairment::default()
            });
            Action::Impair(self.nodes(&impair.node, at, cluster), meant)
        }));
        actions.extend(file.repair.map(|nodes| Action::Repair(self.nodes(&nodes, at, cluster))));
        let faults = FaultKeys {
            command_fault: file.command_fault,
            hold_lock: file.hold_lock,
            busy_writer: file.busy_writer,
            log_fault: file.log_fault,
            end_command_fault: file.end_command_fault,
            release_lock: file.release_lock,
            end_busy_writer: file.end_busy_writer,
            end_log_fault: file.end_log_fault,
        };
        match faults.meant() {
            Ok((begin, end)) => {
                actions.extend(
                    begin.into_iter().map(|(fault, nodes)| Action::Fault(fault, self.nodes(&nodes, at, cluster))),
                );
                actions.extend(
                    end.into_iter().map(|(kind, nodes)| Action::EndFault(kind, self.nodes(&nodes, at, cluster))),
                );
            }
            Err(message) => self.problem(at, message),
        }
        actions.extend(file.advance.map(|span| Action::Advance(span.0)));
        actions.extend(file.idle.map(|span| {
            if span.0 < LEAST_IDLE {
                self.problem(at, "idle: expected a second or more: processor time is counted in hundredths of one");
            }
            Action::Idle(span.0)
        }));
        actions.extend(file.audit.map(|nodes| Action::Audit(self.nodes(&nodes, at, cluster))));
        actions.extend(file.load_balancer.map(|check| Action::LoadBalancer(check.value.service.value.0)));
        actions
    }

    fn node(&mut self, choice: &Spanned<NodeChoice>, at: Location, cluster: &ClusterSpec) -> String {
        let one = OneOrMany(vec![choice.clone()]);
        self.nodes(&one, at, cluster).into_iter().next().unwrap_or_default()
    }

    fn nodes(&mut self, choice: &OneOrMany<NodeChoice>, at: Location, cluster: &ClusterSpec) -> Vec<String> {
        let mut chosen = Vec::new();
        for node in &choice.0 {
            match node.value.among(cluster.nodes.iter().map(|node| node.name.as_str())) {
                Ok(names) => chosen.extend(names),
                Err(message) => self.report(vec![Problem::new(node.referenced, message)], at),
            }
        }
        chosen
    }
}

fn split<T: Default>(part: Option<Spanned<T>>, top: Location) -> (Location, T) {
    part.map_or_else(|| (top, T::default()), |part| (part.referenced, part.value))
}
