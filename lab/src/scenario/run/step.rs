//! One step: do it, look, judge.

use std::time::{Duration, Instant};

use serde_saphyr::Spanned;

use super::check;
use super::lab::{Lab, StartError};
use super::proxies::{SIGKILL, SIGTERM};
use crate::cluster::process::Ended;
use crate::expect::settle::{Looks, Next};
use crate::expect::{Answers, Mismatch, Tally, Wanted, judge};
use crate::objects::ObjectKey;
use crate::scenario::file::{ConnectFile, ExecFile, ExpectFile, OneFamily, ProbeFile, RuleFile};
use crate::scenario::look::{self, answers_of, counters};
use crate::scenario::relayed;
use crate::scenario::resolve::{self, ClientRoute, ProbePlan};
use crate::scenario::words::OneOrMany;
use crate::scenario::{Action, ProxyAction, Step};
use crate::traffic::probe::{Answer, Outcome, Place};

/// How long the load balancer may take to follow the nodes' health, unless the step says otherwise.
const LOAD_BALANCER_PATIENCE: Duration = Duration::from_secs(15);
/// How long a health check may take to answer.
const HEALTH_PATIENCE: Duration = Duration::from_secs(2);
/// How long what a proxy does after its rules (stale flows, health-check ports, chains that nothing uses) may take: one that
/// does not say when it is done is looked at again and again. Longer than a probe waits for an answer: the first one may
/// have met a flow that was about to go.
const AFTER_RULES: Duration = Duration::from_secs(10);
/// Between two looks at something that is to come true.
const PAUSE: Duration = Duration::from_millis(50);
/// How long an open connection may take to answer, and how long a dead one is listened to.
pub(super) const ASK: Duration = Duration::from_secs(5);
const DEAD: Duration = Duration::from_millis(700);

/// What a step saw and which promises were broken.
pub(super) struct Seen {
    pub(super) summary: String,
    pub(super) broken: Vec<Mismatch>,
    /// Who answered, of a step that sends requests.
    pub(super) answers: Option<Answers>,
    /// Why something that the step promises could not be looked at.
    pub(super) not_judged: Option<String>,
}

impl Seen {
    pub(super) fn new(summary: impl Into<String>, broken: Vec<Mismatch>) -> Self {
        Seen { summary: summary.into(), broken, answers: None, not_judged: None }
    }

    fn answered(self, tally: Tally, drawn: bool) -> Self {
        Seen { answers: Some(Answers { tally, drawn }), ..self }
    }
}

impl Lab {
    /// Carries out `step`. Promises that may come true eventually are looked at until they have settled; one look more is the
    /// verdict.
    pub(super) async fn step(&mut self, step: &Step) -> Result<Seen, StartError> {
        let looks = step.action.can_be_repeated();
        let after_rules = (self.marker.is_some() && looks).then_some(AFTER_RULES);
        let deadline = step.eventually.max(after_rules).map(|span| Instant::now() + span);
        let mut counted = Looks::default();
        loop {
            let mut seen = self.once(step).await?;
            let passed = seen.broken.is_empty();
            let in_time = deadline.is_some_and(|deadline| Instant::now() < deadline);
            match counted.after(passed, in_time) {
                Next::Wait => tokio::time::sleep(step.every.unwrap_or(PAUSE)).await,
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

    async fn once(&mut self, step: &Step) -> Result<Seen, StartError> {
        match &step.action {
            Action::Apply(_) | Action::Delete(_) | Action::Ready(..) | Action::Terminate(_) | Action::Scale(..) => {
                self.change(&step.action).await
            }
            Action::Api(fault) => self.misbehave(*fault).await,
            Action::Partition(nodes) => self.partition(nodes).await,
            Action::Heal(nodes) => self.heal(nodes).await,
            Action::Impair(nodes, impairment) => self.impair(nodes, impairment).await,
            Action::Repair(nodes) => self.repair(nodes).await,
            Action::Fault(fault, nodes) => self.begin_fault(*fault, nodes).await,
            Action::EndFault(kind, nodes) => self.end_fault(*kind, nodes).await,
            Action::Advance(time) => self.advance(*time).await,
            Action::Idle(time) => Ok(self.idle(*time, &step.expect).await),
            Action::Traffic(file) => self.begin_traffic(file).await,
            Action::EndTraffic(name) => self.end_traffic(name, &step.expect).await,
            Action::Probe(probe) => self.probe(step, probe).await,
            Action::Connect(connect) => self.connect(step, connect).await,
            Action::Send(name) | Action::SendStray(name) => self.send(step, name).await,
            Action::Scan(scan) => self.scan(scan, &step.expect).await,
            Action::Rules(rules) => self.rules(rules).await,
            Action::Exec(exec) => self.command(exec, &step.expect).await,
            Action::KillLater(nodes, after) => {
                self.armed.extend(nodes.iter().map(|node| (node.clone(), *after)));
                Ok(Seen::new(nodes.join(", "), Vec::new()))
            }
            Action::Proxy(action, nodes) => self.proxy(*action, nodes).await,
            Action::HealthCheck(node, service, family) => {
                self.health(node, service, family.as_ref(), &step.expect).await
            }
            Action::OwnHealth(node, path) => self.own_health(node, *path, &step.expect).await,
            Action::Metric(node, name) => self.metric(node, name, &step.expect).await,
            Action::LoadBalancer(service) => self.load_balancer(service, step).await,
        }
    }

    /// Idle time is skipped where the clock is virtual: to sleep is enough there, and would be a lie anywhere else.
    async fn advance(&mut self, time: Duration) -> Result<Seen, StartError> {
        if !self.virtual_time {
            let hint = "run it with --deterministic (`--kernel auto` does so by itself)";
            return Err(StartError::Step(format!("the host's clock cannot be advanced: {hint}")));
        }
        tokio::time::sleep(time).await;
        Ok(Seen::new(format!("{} s later", time.as_secs_f64()), Vec::new()))
    }

    async fn probe(&mut self, step: &Step, file: &ProbeFile) -> Result<Seen, StartError> {
        let plan = self.store.read(|store| resolve::probe(store, file, &step.expect));
        let mut plan = plan.map_err(|problem| StartError::Step(problem.message))?;
        let not_promised = self
            .store
            .read(|store| relayed::probe(store, &|node| self.proxies.mode_of(node), &file.to.value, &mut plan));
        if file.timeout.is_none() {
            plan.probe.timeout = plan.probe.timeout.min(self.patience);
        }
        self.route(plan.route.as_ref(), true).await?;
        let counters = counters(&step.expect);
        let before = check::save(self, &counters).await?;
        let outcomes = self.send_probes(&plan).await?;
        let now = check::save(self, &counters).await?;
        self.route(plan.route.as_ref(), false).await?;
        let tally = Tally::of(&outcomes);
        let given_up = plan.count - if plan.pair { outcomes.len() / 2 } else { outcomes.len() };
        let mut broken = judge(&plan.wanted, &outcomes);
        broken.extend(check::times(&step.expect, &outcomes));
        broken.extend(check::compare(self, &counters, Some(&before), &now, &|pod| answers_of(&tally, pod))?);
        broken.extend(self.answered_by.compare(step, &tally));
        let rest = if given_up > 0 { format!("; {given_up} more were not sent") } else { String::new() };
        let summary = relayed::summary(format!("{}{rest}", tally.summary()), not_promised);
        let seen = Seen::new(summary, broken).answered(tally, plan.drawn);
        Ok(Seen { not_judged: self.answered_by.missing(step), ..seen })
    }

    /// Sends the probes of a step. Where every one is to be answered, a batch (as many as go out at a time) with a silent one
    /// is the last: the promise is broken, and hundreds of time-outs would only take minutes.
    async fn send_probes(&self, plan: &ProbePlan) -> Result<Vec<Outcome>, StartError> {
        let patient = !matches!(plan.wanted, Wanted::Answered { .. });
        let (mut outcomes, mut sent) = (Vec::with_capacity(plan.count), 0);
        while sent < plan.count {
            let size = plan.concurrency.min(plan.count - sent);
            let batch = match plan.pair {
                true => self.cluster.probe_pairs(&plan.probe, size).await?,
                false => self.cluster.probe_many(vec![plan.probe.clone(); size], plan.concurrency).await?,
            };
            sent += size;
            let silent = batch.iter().any(|outcome| matches!(outcome.answer, Answer::TimedOut));
            outcomes.extend(batch);
            if silent && !patient {
                break;
            }
        }
        Ok(outcomes)
    }

    /// Tells a client the way to an address, or takes it back.
    pub(super) async fn route(&self, route: Option<&ClientRoute>, add: bool) -> Result<(), StartError> {
        if let Some((client, destination, node)) = route {
            if add {
                self.cluster.add_client_route(client, *destination, node).await?;
            } else {
                self.cluster.remove_client_route(client, *destination).await?;
            }
        }
        Ok(())
    }

    async fn connect(&mut self, step: &Step, file: &ConnectFile) -> Result<Seen, StartError> {
        let plan = self.store.read(|store| resolve::connect(store, file, &step.expect));
        let mut plan = plan.map_err(|problem| StartError::Step(problem.message))?;
        let not_promised = self
            .store
            .read(|store| relayed::probe(store, &|node| self.proxies.mode_of(node), &file.to.value, &mut plan));
        // The route stays: the connection needs it for as long as it lives.
        self.route(plan.route.as_ref(), true).await?;
        let counters = counters(&step.expect);
        let before = check::save(self, &counters).await?;
        let start = Instant::now();
        let outcome = match self.cluster.connect(&plan.probe).await? {
            Ok(mut connection) => {
                let client = Some(connection.client());
                let answer = connection.ask(ASK).await;
                self.connections.insert(file.name.value.clone(), connection);
                Outcome { answer, client, took: start.elapsed() }
            }
            Err(outcome) => outcome,
        };
        let now = check::save(self, &counters).await?;
        let tally = Tally::of(std::slice::from_ref(&outcome));
        let outcome = [outcome];
        let mut broken = judge(&plan.wanted, &outcome);
        broken.extend(check::times(&step.expect, &outcome));
        broken.extend(check::compare(self, &counters, Some(&before), &now, &|pod| answers_of(&tally, pod))?);
        broken.extend(self.answered_by.compare(step, &tally));
        let seen = Seen::new(relayed::summary(tally.summary(), not_promised), broken).answered(tally, plan.drawn);
        Ok(Seen { not_judged: self.answered_by.missing(step), ..seen })
    }

    async fn send(&mut self, step: &Step, name: &str) -> Result<Seen, StartError> {
        let wanted = self.store.read(|store| resolve::send(store, &step.expect));
        let mut wanted = wanted.map_err(|problem| StartError::Step(problem.message))?;
        let not_promised =
            self.store.read(|store| relayed::send(store, &|node| self.proxies.mode_of(node), &mut wanted));
        let counters = counters(&step.expect);
        let before = check::save(self, &counters).await?;
        if matches!(step.action, Action::SendStray(_)) {
            self.stray(name).await?;
        }
        let Some(connection) = self.connections.get_mut(name) else {
            return Ok(Seen::new("", vec![Mismatch::new(format!("connection {name} was opened"), "it was not")]));
        };
        let (client, start) = (Some(connection.client()), Instant::now());
        let answer = connection.ask(if wanted.is_some() { ASK } else { DEAD }).await;
        let alive = matches!(answer, Answer::Replied { .. });
        let outcome = [Outcome { answer, client, took: start.elapsed() }];
        let tally = Tally::of(&outcome);
        let mut broken = match wanted {
            Some(wanted) => judge(&wanted, &outcome),
            None if alive => vec![Mismatch::new(format!("connection {name} is dead"), tally.summary())],
            None => Vec::new(),
        };
        broken.extend(check::times(&step.expect, &outcome));
        let now = check::save(self, &counters).await?;
        broken.extend(check::compare(self, &counters, Some(&before), &now, &|pod| answers_of(&tally, pod))?);
        broken.extend(self.answered_by.compare(step, &tally));
        let seen = Seen::new(relayed::summary(tally.summary(), not_promised), broken).answered(tally, false);
        Ok(Seen { not_judged: self.answered_by.missing(step), ..seen })
    }

    async fn rules(&self, rules: &[RuleFile]) -> Result<Seen, StartError> {
        let saved = check::save(self, rules).await?;
        let broken = check::compare(self, rules, None, &saved, &|_| 0)?;
        let not_judged = check::left_out(self, rules)?;
        Ok(Seen { not_judged, ..Seen::new("", broken) })
    }

    async fn command(&self, exec: &ExecFile, expect: &ExpectFile) -> Result<Seen, StartError> {
        let place = self
            .store
            .read(|store| resolve::place(store, &exec.on))
            .map_err(|problem| StartError::Step(problem.message))?;
        let output = self.exec(&place, &exec.command).await?;
        let mut broken = Vec::new();
        let wanted = Ended::Exited(expect.status.unwrap_or(0));
        if output.ended != wanted {
            let seen = format!("{:?}: {}{}", output.ended, output.stdout.trim(), output.stderr.trim());
            broken.push(Mismatch::new(format!("{} ends with {wanted:?}", exec.command.join(" ")), seen));
        }
        let text = format!("{}{}", output.stdout, output.stderr);
        for part in texts(expect.output.as_ref()).filter(|part| !text.contains(*part)) {
            broken.push(Mismatch::new(format!("output with {part:?}"), text.trim()));
        }
        for part in texts(expect.lacks.as_ref()).filter(|part| text.contains(*part)) {
            broken.push(Mismatch::new(format!("output without {part:?}"), text.trim()));
        }
        Ok(Seen::new(text.lines().next().unwrap_or_default(), broken))
    }

    async fn proxy(&mut self, action: ProxyAction, nodes: &[String]) -> Result<Seen, StartError> {
        let (mut broken, mut ambushes, since) = (Vec::new(), Vec::new(), Instant::now());
        for node in nodes {
            match action {
                ProxyAction::Kill => self.proxies.end(node, SIGKILL).await?,
                ProxyAction::Stop => self.proxies.end(node, SIGTERM).await?,
                ProxyAction::Start(different) => {
                    self.proxies.end(node, SIGTERM).await?;
                    self.proxies.set(node, different);
                    self.proxies.start(&self.cluster, &self.feed, node).await?;
                    ambushes.extend(self.lie_in_wait());
                }
                ProxyAction::Cleanup => {
                    self.proxies.end(node, SIGTERM).await?;
                    broken.extend(self.proxies.cleanup(&self.cluster, &self.feed, node).await?);
                }
            }
        }
        let (killed, alive) = self.ambushed(ambushes).await?;
        broken.extend(alive);
        if matches!(action, ProxyAction::Start(_)) {
            broken.extend(self.applied(since).await?);
        }
        Ok(Seen::new(format!("{}{killed}", nodes.join(", ")), broken))
    }

    async fn health(
        &self,
        node: &str,
        service: &ObjectKey,
        family: Option<&Spanned<OneFamily>>,
        expect: &ExpectFile,
    ) -> Result<Seen, StartError> {
        let address = self
            .store
            .read(|store| resolve::health_check(store, node, service, family))
            .map_err(|problem| StartError::Step(problem.message))?;
        let answer =
            match self.cluster.http_get(&Place::Node(node.to_owned()), address, "/healthz", HEALTH_PATIENCE).await {
                Ok(answer) => answer,
                Err(error) => {
                    return Ok(Seen::new("", vec![Mismatch::new(format!("{address} answers"), error.to_string())]));
                }
            };
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let local = body.get("localEndpoints").and_then(serde_json::Value::as_u64);
        let broken = look::health(expect, answer.status, local, answer.body.trim());
        Ok(Seen::new(format!("{} {}", answer.status, answer.body.trim().replace('\n', " ")), broken))
    }

    async fn load_balancer(&self, service: &ObjectKey, step: &Step) -> Result<Seen, StartError> {
        let vip = self
            .store
            .read(|store| resolve::vip(store, service))
            .map_err(|problem| StartError::Step(problem.message))?;
        let mut broken = Vec::new();
        if let Some(nodes) = &step.expect.healthy_nodes {
            let wanted: Vec<String> = nodes.iter().map(|node| node.value.clone()).collect();
            let patience = step.eventually.unwrap_or(LOAD_BALANCER_PATIENCE);
            if self.cluster.wait_lb_healthy(vip, &wanted, patience).await.is_err() {
                let seen = self.cluster.lb_healthy(vip)?.join(", ");
                broken
                    .push(Mismatch::new(format!("{vip} goes to {}", wanted.join(", ")), format!("it goes to {seen}")));
            }
        }
        Ok(Seen::new(format!("{vip} goes to {}", self.cluster.lb_healthy(vip)?.join(", ")), broken))
    }
}

fn texts(list: Option<&OneOrMany<crate::scenario::words::Text>>) -> impl Iterator<Item = &str> {
    list.into_iter().flat_map(|list| &list.0).map(|text| text.value.0.as_str())
}
