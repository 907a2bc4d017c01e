//! Carries out steps on a backend and judges them: the kernel and the simulator differ in how a packet is sent, not in what is
//! promised of it.

mod capability;
mod looks;
mod requests;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub(super) use capability::Capability;
use svclab_apiserver::objects::{ObjectKey, Store};
use svclab_cluster::traffic::probe::ProbeOutcome;

use super::answered::AnsweredBy;
use super::error::Problem;
use super::file::RuleFile;
use super::look::{Modes, Saved};
use super::resolve::{ProbePlan, ScanPlan};
use super::values::Target;
use super::{Action, ProxyAction, Scenario, Step};
use crate::expect::settle::{Looks, Next};
use crate::expect::{Answers, Mismatch};
use crate::mode::Mode;
use crate::report::{Audited, ClusterLayout, Evidence, ScenarioReport, StepReport, StepVerdict};

/// Why a step is not judged after one that could not be.
const AFTER_REFUSED: &str = "an earlier step could not be judged";

/// Between two looks at something that is to come true.
const PAUSE: Duration = Duration::from_millis(50);

/// A cluster in which steps are carried out.
///
/// Methods send, change and look; what that is to show is judged by the callers, the same for every backend.
pub(super) trait Backend {
    /// Why the backend could not do something. A broken promise is none of these.
    type Error: From<Problem> + fmt::Display;

    /// Whether it can do what some steps need.
    fn has(&self, capability: Capability) -> bool;

    /// What becomes of this very step, although the backend has what such steps need, if it cannot show it.
    fn leaves_out(&self, step: &Step) -> Option<StepVerdict>;

    /// The nodes, and the mode that each one's proxy is in.
    fn modes(&self) -> Modes;

    /// Looks at the objects.
    fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T;

    /// Time since the start, on the clock by which the steps happen.
    fn now(&self) -> Duration;

    /// How long a probe waits for a promised answer, where the step does not say.
    fn patience(&self) -> Duration;

    /// How long a proxy may be busy after its rules have come true, and a step with it; for steps that can be repeated.
    fn busy_after_rules(&self) -> Option<Duration>;

    /// What is done just before a step without being one.
    async fn prepare(&mut self, step: &Step) -> Result<(), Self::Error>;

    /// Lets time pass between two looks.
    async fn pause(&mut self, time: Duration);

    /// What `iptables-save -c` prints on the nodes that `rules` are about.
    async fn saved(&self, rules: &[RuleFile]) -> Result<Saved, Self::Error>;

    /// Sends the requests of a plan; fewer, where one without an answer has broken the promise.
    async fn send_all(&mut self, plan: &ProbePlan, to: &Target) -> Result<Vec<ProbeOutcome>, Self::Error>;

    /// Opens a connection that stays open under this name.
    async fn open(&mut self, name: &str, plan: &ProbePlan, to: &Target) -> Result<ProbeOutcome, Self::Error>;

    /// Asks over an open connection; `is_alive` if it is to be. `None`: there is no such connection.
    async fn ask(&mut self, name: &str, is_alive: bool) -> Result<Option<ProbeOutcome>, Self::Error>;

    /// The ports of a plan that accept a connection.
    async fn scan(&mut self, plan: &ScanPlan) -> Result<BTreeSet<u16>, Self::Error>;

    /// Asks a node's health check; in words why it does not answer.
    async fn health(&mut self, node: &str, address: SocketAddr) -> Result<Health, String>;

    /// The nodes that a service's published address leads to, and that address. If they are to be `wanted`, waits for it.
    async fn balanced(
        &mut self,
        service: &ObjectKey,
        wanted: Option<&[String]>,
        patience: Option<Duration>,
    ) -> Result<(IpAddr, Vec<String>), Self::Error>;

    /// Lets time pass for everything in the cluster.
    async fn advance(&mut self, time: Duration) -> Result<(), Self::Error>;

    /// Ends, starts or cleans up proxies, and waits until those that run have applied everything.
    async fn proxies(&mut self, action: ProxyAction, nodes: &[String]) -> Result<Seen, Self::Error>;

    /// Changes objects, and waits until the proxies have applied it.
    async fn change(&mut self, action: &Action) -> Result<Seen, Self::Error>;

    /// Keeps what shows why a step failed. `number`: the step's place in the scenario, from 1. Nothing of it is an error.
    async fn evidence(&mut self, _: &Step, _number: usize, _: &StepVerdict) -> Option<Evidence> {
        None
    }

    /// Why a step that failed, and those after it, cannot be judged here: something that every node grants was refused.
    fn refused(&self) -> Option<String> {
        None
    }

    /// The audit that a run of this kind adds after a step, or with none before the first one.
    fn audit_after(&self, _: Option<&Step>) -> Option<Step> {
        None
    }

    /// Does what only backends with a capability can do for a step.
    async fn special(&mut self, step: &Step) -> Result<Seen, Self::Error>;
}

/// What a health check answers.
pub(super) struct Health {
    pub(super) status: u16,
    pub(super) local_endpoints: Option<u64>,
    pub(super) body: String,
}

/// What a step saw and which promises were broken.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) summary: String,
    pub(super) broken: Vec<Mismatch>,
    /// Who answered, of a step that sends requests.
    pub(super) answers: Option<Answers>,
    /// What audits have judged.
    pub(super) audited: Option<Audited>,
    /// Why something that the step promises could not be looked at.
    pub(super) not_judged: Option<String>,
}

impl Seen {
    pub(super) fn new(summary: impl Into<String>, broken: impl IntoIterator<Item = Mismatch>) -> Self {
        Seen { summary: summary.into(), broken: broken.into_iter().collect(), ..Seen::default() }
    }
}

/// A report on `scenario` before its first step.
pub(super) fn empty_report(scenario: &Scenario, mode: Mode, variant: &str) -> ScenarioReport {
    ScenarioReport {
        name: scenario.name.clone(),
        path: scenario.path.display().to_string(),
        about: scenario.about.clone(),
        promise: scenario.promise.map(|promise| promise.id),
        text: scenario.text.clone(),
        files: scenario.files.clone(),
        mode: mode.to_string(),
        variant: variant.to_owned(),
        seed: scenario.options.seed,
        machine: None,
        control_plane: None,
        kernel: None,
        started: None,
        // A loaded scenario has shown that its manifests fit.
        cluster: scenario.initial_objects().map(|store| ClusterLayout::of(&store.cluster_spec())).unwrap_or_default(),
        audited: false,
        steps: Vec::new(),
        not_started: None,
        interrupted: false,
        unable: false,
        figures: None,
        took: Duration::ZERO,
        logs: String::new(),
    }
}

/// Carries out the steps of a scenario, each with its report; after a failed one the others are left out unless told to go on.
pub(super) async fn steps<B: Backend>(
    backend: &mut B,
    steps: &[Step],
    keep_going: bool,
    mut done: impl FnMut(StepReport),
) {
    let (mut run, mut broken, mut left_for_good) = (Executor::default(), false, None);
    if let Some(audit) = backend.audit_after(None).filter(|_| !steps.is_empty()) {
        broken |= run.reported(backend, &audit, 0, &mut done).await;
    }
    for (index, step) in steps.iter().enumerate() {
        let modes = backend.modes();
        if !step.modes.iter().any(|mode| modes.values().any(|other| other == mode)) {
            continue;
        }
        let lacking = left_for_good.or_else(|| Capability::of(&step.action).filter(|needed| !backend.has(*needed)));
        let lacks = lacking.map(|lacking| StepVerdict::NotSimulated(lacking.words().to_owned()));
        let left_out = lacks.or_else(|| backend.leaves_out(step));
        let verdict = match left_out {
            _ if broken && !keep_going => StepVerdict::Skipped,
            Some(verdict) => {
                left_for_good = lacking.filter(|lacking| lacking.changes_what_follows());
                verdict
            }
            None => {
                let mut has_failed = run.reported(backend, step, index + 1, &mut done).await;
                if let Some(audit) = backend.audit_after(Some(step)).filter(|_| !has_failed) {
                    has_failed = run.reported(backend, &audit, index + 1, &mut done).await;
                }
                broken |= has_failed;
                continue;
            }
        };
        done(step.report(verdict));
    }
}

/// Carries out one step after the other, and knows who answered in earlier ones.
#[derive(Default)]
pub(super) struct Executor {
    answered_by: AnsweredBy,
    /// Why a step failed that is not the proxy's fault: no further one is judged.
    refused: Option<String>,
}

impl Executor {
    /// Carries out a step and reports on it; returns whether it has failed. `number`: its place in the scenario, from 1.
    async fn reported<B: Backend>(
        &mut self,
        backend: &mut B,
        step: &Step,
        number: usize,
        done: &mut impl FnMut(StepReport),
    ) -> bool {
        let begin = backend.now();
        let (mut verdict, seen) = match &self.refused {
            Some(_) => (StepVerdict::NotJudged(AFTER_REFUSED.to_owned()), Seen::default()),
            None => self.verdict(backend, step).await,
        };
        let took = backend.now() - begin;
        let is_bad = |verdict: &StepVerdict| matches!(verdict, StepVerdict::Failed(_) | StepVerdict::Error(_));
        if is_bad(&verdict) {
            self.refused = backend.refused();
            verdict = self.refused.clone().map_or(verdict, StepVerdict::NotJudged);
        }
        let has_failed = is_bad(&verdict);
        let evidence = if has_failed { backend.evidence(step, number, &verdict).await } else { None };
        let Seen { summary, answers, audited, .. } = seen;
        done(StepReport { summary, answers, audited, evidence, took, ..step.report(verdict) });
        has_failed
    }

    async fn verdict<B: Backend>(&mut self, backend: &mut B, step: &Step) -> (StepVerdict, Seen) {
        match self.step(backend, step).await {
            Ok(mut seen) if !seen.broken.is_empty() => (StepVerdict::Failed(std::mem::take(&mut seen.broken)), seen),
            Ok(mut seen) => (seen.not_judged.take().map_or(StepVerdict::Passed, StepVerdict::NotJudged), seen),
            Err(error) => (StepVerdict::Error(error.to_string()), Seen::default()),
        }
    }

    /// Carries out `step`. Promises that may come true eventually are looked at until they have settled; one look more is the
    /// verdict.
    pub(super) async fn step<B: Backend>(&mut self, backend: &mut B, step: &Step) -> Result<Seen, B::Error> {
        backend.prepare(step).await?;
        let looks = step.action.can_be_repeated();
        let busy = backend.busy_after_rules().filter(|_| looks);
        let deadline = step.eventually.max(busy).map(|span| backend.now() + span);
        let mut counted = Looks::default();
        loop {
            // By its beginning: on a slow machine a look may take longer than there is time, and what it saw at first be over.
            let in_time = deadline.is_some_and(|deadline| backend.now() < deadline);
            let mut seen = self.once(backend, step).await?;
            match counted.after(seen.broken.is_empty(), in_time) {
                Next::Wait => backend.pause(step.every.unwrap_or(PAUSE)).await,
                // To run a command once more may undo what its end has shown.
                Next::Judge if !looks => return Ok(seen),
                Next::Judge => {}
                Next::Done => {
                    seen.summary = counted.summary(seen.summary);
                    return Ok(seen);
                }
            }
        }
    }

    async fn once<B: Backend>(&mut self, backend: &mut B, step: &Step) -> Result<Seen, B::Error> {
        match &step.action {
            Action::Probe(file) => self.probe(backend, step, file).await,
            Action::Connect(file) => self.connect(backend, step, file).await,
            Action::Send(name) | Action::SendStray(name) => self.send(backend, step, name).await,
            Action::Rules(rules) => looks::rules(backend, rules).await,
            Action::HealthCheck(node, service, family) => {
                looks::health(backend, node, service, family.as_ref(), &step.expect).await
            }
            Action::LoadBalancer(service) => looks::load_balancer(backend, service, step).await,
            Action::Scan(file) => looks::scan(backend, file, &step.expect).await,
            Action::Advance(time) => {
                backend.advance(*time).await?;
                Ok(Seen::new(format!("{} s later", time.as_secs_f64()), []))
            }
            Action::Proxy(action, nodes) => backend.proxies(*action, nodes).await,
            Action::Apply(_) | Action::Delete(_) | Action::Ready(..) | Action::Terminate(_) | Action::Scale(..) => {
                backend.change(&step.action).await
            }
            _ => backend.special(step).await,
        }
    }
}
