//! Carries out steps on a backend and judges them. Backends (kernel, simulator) differ in how they send packets, not in
//! the promises.

mod passive_steps;
mod requests;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use svclab_apiserver::objects::Store;
use svclab_cluster::traffic::probe::{ClusterHost, ProbeOutcome};

use super::answered::AnsweredBy;
use super::error::Problem;
use super::file::{Action, Effect, HealthCheckFile, ProxyAction, RuleFile};
use super::resolve::{ProbePlan, ScanPlan};
use super::rule_checks::{ModeByNode, NodeRulesets};
use super::values::ProbeTarget;
use super::{Scenario, Step};
use crate::expect::settle::{Attempts, NextAttempt};
use crate::expect::{Mismatch, StepAnswers};
use crate::mode::Mode;
use crate::promises::STARTS;
use crate::report::{Audited, ClusterLayout, Evidence, ScenarioReport, StepReport, StepVerdict, TestedProxy, WAITS};

const AFTER_REFUSED: &str = "an earlier step could not be judged";

const PAUSE: Duration = Duration::from_millis(50);

/// Carries out steps: sends, changes and reads. The executor judges.
pub(super) trait Backend {
    type Error: From<Problem> + fmt::Display;

    fn is_kernel(&self) -> bool;

    /// Returns the verdict for a step that the backend supports in general but cannot judge here.
    fn leaves_out(&self, step: &Step) -> Option<StepVerdict>;

    fn modes(&self) -> ModeByNode;

    fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T;

    fn now(&self) -> Duration;

    /// Returns a probe's default limit for a promised answer.
    /// Returns how long a failing step waits: `usual`, or `--patience` if that is less.
    fn limit(&self, usual: Duration) -> Duration;

    /// Returns how long a proxy may work after it has written its rules. Steps are repeated for that time.
    fn busy_after_rules(&self) -> Option<Duration>;

    async fn prepare(&mut self, step: &Step) -> Result<(), Self::Error>;

    async fn pause(&mut self, time: Duration);

    async fn saved(&self, rules: &[RuleFile]) -> Result<NodeRulesets, Self::Error>;

    async fn send_all(&mut self, plan: &ProbePlan, to: &ProbeTarget) -> Result<Vec<ProbeOutcome>, Self::Error>;

    async fn open(&mut self, name: &str, plan: &ProbePlan, to: &ProbeTarget) -> Result<ProbeOutcome, Self::Error>;

    /// Sends a request over an open connection. `is_alive`: whether it should work. `None`: no such connection.
    async fn ask(&mut self, name: &str, is_alive: bool) -> Result<Option<ProbeOutcome>, Self::Error>;

    async fn scan(&mut self, plan: &ScanPlan) -> Result<BTreeSet<u16>, Self::Error>;

    /// Asks for a health check on `node`. The error says why there is no answer.
    async fn health(&mut self, from: &ClusterHost, node: &str, address: SocketAddr) -> Result<Health, String>;

    /// Returns the load balancer's nodes for a published address. Waits until these nodes are `wanted`.
    async fn balanced(
        &mut self,
        vip: IpAddr,
        wanted: Option<&[String]>,
        patience: Option<Duration>,
    ) -> Result<Vec<String>, Self::Error>;

    async fn advance(&mut self, time: Duration) -> Result<(), Self::Error>;

    async fn proxies(&mut self, action: ProxyAction, nodes: &[String]) -> Result<StepOutcome, Self::Error>;

    /// Changes objects and waits until the proxies have applied the change.
    async fn change(&mut self, step: &Step) -> Result<StepOutcome, Self::Error>;

    /// Keeps evidence of a failed step. `number`: counts the scenario's steps from 1.
    async fn evidence(&mut self, _: &Step, _number: usize, _: &StepVerdict) -> Option<Evidence> {
        None
    }

    /// Returns why the machine, and not the proxy, caused a failure. Later steps are not judged then.
    fn refused(&self) -> Option<String> {
        None
    }

    /// Returns which address families of nodes the last change has not reached although it has reached others.
    fn take_late(&mut self) -> Vec<Mismatch> {
        Vec::new()
    }

    /// Returns the audit that the run adds after a step; `None`: before the first step.
    fn audit_after(&self, _: Option<&Step>) -> Option<Step> {
        None
    }

    /// Carries out a step that only this backend knows.
    async fn special(&mut self, step: &Step) -> Result<StepOutcome, Self::Error>;
}

pub(super) struct Health {
    pub(super) status: u16,
    pub(super) local_endpoints: Option<u64>,
    pub(super) body: String,
}

#[derive(Default)]
pub(super) struct StepOutcome {
    pub(super) summary: String,
    pub(super) broken: Vec<Mismatch>,
    pub(super) answers: Option<StepAnswers>,
    pub(super) audited: Option<Audited>,
    pub(super) not_judged: Option<String>,
}

impl StepOutcome {
    pub(super) fn new(summary: impl Into<String>, broken: impl IntoIterator<Item = Mismatch>) -> Self {
        StepOutcome { summary: summary.into(), broken: broken.into_iter().collect(), ..StepOutcome::default() }
    }
}

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
        proxy: TestedProxy::default(),
        kernel: None,
        started: None,
        cluster: scenario.initial_objects().map(|store| ClusterLayout::of(&store.cluster_spec())).unwrap_or_default(),
        audited: false,
        steps: Vec::new(),
        not_started: None,
        never_ready: false,
        start_evidence: None,
        interrupted: false,
        unable: false,
        figures: None,
        took: Duration::ZERO,
        logs: String::new(),
    }
}

/// Carries out steps, up to a failed one unless `keep_going`.
pub(super) async fn steps<B: Backend>(
    backend: &mut B,
    steps: &[Step],
    keep_going: bool,
    mut done: impl FnMut(StepReport),
) {
    let (mut run, mut broken, mut skip_rest) = (Executor::default(), false, None);
    report_late(backend, None, &mut done);
    if let Some(audit) = backend.audit_after(None).filter(|_| !steps.is_empty()) {
        broken |= run.reported(backend, &audit, 0, &mut done).await;
    }
    for (index, step) in steps.iter().enumerate() {
        let modes = backend.modes();
        if !step.modes.iter().any(|mode| modes.values().any(|other| other == mode)) {
            continue;
        }
        let lacking = skip_rest.or_else(|| step.kernel_only().filter(|_| !backend.is_kernel()));
        let not_simulated = lacking.map(|lacking| StepVerdict::NotSimulated(lacking.words.to_owned()));
        let left_out = not_simulated.or_else(|| backend.leaves_out(step));
        let verdict = match left_out {
            _ if broken && !keep_going => StepVerdict::Skipped,
            Some(verdict) => {
                skip_rest = lacking.filter(|lacking| lacking.later_steps_depend);
                verdict
            }
            None => {
                let mut has_failed = run.reported(backend, step, index + 1, &mut done).await;
                report_late(backend, Some(step), &mut done);
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

/// Reports families that a change has not reached as a failed step, which is not the end of the run: the other family
/// shows more.
fn report_late<B: Backend>(backend: &mut B, step: Option<&Step>, done: &mut impl FnMut(StepReport)) {
    let late = backend.take_late();
    if late.is_empty() {
        return;
    }
    let name = step.map_or_else(|| "the start".to_owned(), |step| format!("{:?}", step.name));
    done(StepReport {
        name: format!("the lab waits for the proxies after {name}"),
        line: step.map_or(1, |step| step.line),
        promise: step.map_or(Some(STARTS), |step| Some(step.promise?.id)),
        action: WAITS,
        verdict: StepVerdict::Failed(late),
        summary: String::new(),
        answers: None,
        audited: None,
        evidence: None,
        took: Duration::ZERO,
    });
}

#[derive(Default)]
pub(super) struct Executor {
    answered_by: AnsweredBy,
    /// Why no further step is judged.
    refused: Option<String>,
}

impl Executor {
    async fn reported<B: Backend>(
        &mut self,
        backend: &mut B,
        step: &Step,
        number: usize,
        done: &mut impl FnMut(StepReport),
    ) -> bool {
        let begin = backend.now();
        let (mut verdict, outcome) = match &self.refused {
            Some(_) => (StepVerdict::NotJudged(AFTER_REFUSED.to_owned()), StepOutcome::default()),
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
        let StepOutcome { summary, answers, audited, .. } = outcome;
        done(StepReport { summary, answers, audited, evidence, took, ..step.report(verdict) });
        has_failed
    }

    async fn verdict<B: Backend>(&mut self, backend: &mut B, step: &Step) -> (StepVerdict, StepOutcome) {
        match self.step(backend, step).await {
            Ok(mut outcome) if !outcome.broken.is_empty() => {
                (StepVerdict::Failed(std::mem::take(&mut outcome.broken)), outcome)
            }
            Ok(mut outcome) => (outcome.not_judged.take().map_or(StepVerdict::Passed, StepVerdict::NotJudged), outcome),
            Err(error) => (StepVerdict::Error(error.to_string()), StepOutcome::default()),
        }
    }

    /// Repeats a step that only reads until its promises hold or its time is over; see [`Attempts`].
    pub(super) async fn step<B: Backend>(&mut self, backend: &mut B, step: &Step) -> Result<StepOutcome, B::Error> {
        backend.prepare(step).await?;
        let only_reads = step.key.effect == Effect::Reads;
        let busy = backend.busy_after_rules().filter(|_| only_reads);
        let deadline = step.eventually.max(busy).map(|span| backend.now() + span);
        let mut attempts = Attempts::default();
        loop {
            // The start of an attempt counts: on a slow machine an attempt may take longer than the whole time.
            let in_time = deadline.is_some_and(|deadline| backend.now() < deadline);
            let mut outcome = self.once(backend, step).await?;
            match attempts.after(outcome.broken.is_empty(), in_time) {
                NextAttempt::Wait => backend.pause(step.every.unwrap_or(PAUSE)).await,
                // A step that changes something is not repeated.
                NextAttempt::Judge if !only_reads => return Ok(outcome),
                NextAttempt::Judge => {}
                NextAttempt::Done => {
                    outcome.summary = attempts.summary(outcome.summary);
                    return Ok(outcome);
                }
            }
        }
    }

    async fn once<B: Backend>(&mut self, backend: &mut B, step: &Step) -> Result<StepOutcome, B::Error> {
        match &step.action {
            Action::Probe(file) => self.probe(backend, step, file).await,
            Action::Connect(file) => self.connect(backend, step, file).await,
            Action::Send(name) | Action::SendStray(name) => self.send(backend, step, name).await,
            Action::Rules(rules) => passive_steps::rules(backend, rules).await,
            Action::HealthCheck(file @ HealthCheckFile { service: Some(_), .. }) => {
                passive_steps::health(backend, step, file).await
            }
            Action::LoadBalancer(file) => passive_steps::load_balancer(backend, file, step).await,
            Action::Scan(file) => passive_steps::scan(backend, file, &step.expect).await,
            Action::Advance(time) => {
                backend.advance(time.0).await?;
                Ok(StepOutcome::new(format!("{} s later", time.0.as_secs_f64()), []))
            }
            _ if step.key.effect == Effect::Objects => backend.change(step).await,
            action => match action.proxy_action() {
                Some(action) => backend.proxies(action, &step.nodes).await,
                None => backend.special(step).await,
            },
        }
    }
}
