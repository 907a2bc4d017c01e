//! The kernel as a backend: network namespaces, with a proxy on every node.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use svclab_apiserver::objects::Store;
use svclab_cluster::ClusterError;
use svclab_cluster::traffic::probe::{ClusterHost, ProbeAnswer, ProbeOutcome};

use super::error::LabError;
use super::lab::{HANGS_AFTER, KernelLab};
use super::proxies::{SIGKILL, SIGTERM};
use crate::expect::counters::Ruleset;
use crate::expect::{Mismatch, ProbePromise};
use crate::report::{Evidence, StepVerdict};
use crate::scenario::Step;
use crate::scenario::execute::{Backend, Health, StepOutcome};
use crate::scenario::file::{Action, HealthCheckFile, Listing, ProxyAction, RuleFamily, RuleFile, StartMoment};
use crate::scenario::resolve::{ClientRoute, ProbePlan, ScanPlan};
use crate::scenario::rule_checks::{self, ModeByNode, NodeRulesets};
use crate::scenario::values::ProbeTarget;

/// How long the load balancer may take by default to follow the nodes' health.
const LOAD_BALANCER_PATIENCE: Duration = Duration::from_secs(15);
/// How long a proxy that reports no completion may work after its rules: stale flows, health-check ports, unused
/// chains. Longer than a probe's patience, as the first probe may have hit a stale flow.
const AFTER_RULES: Duration = Duration::from_secs(10);
/// How long a proxy may take to notice that its configuration file has changed, and to end: an idle machine needs 0.2 s.
const END_BY_CHANGE: Duration = Duration::from_secs(30);
/// The limit of a request over an open or dead connection.
pub(super) const ASK: Duration = Duration::from_secs(5);
const DEAD: Duration = Duration::from_millis(700);
const ONE_PORT: Duration = Duration::from_secs(5);

const NO_SUCH_TABLE: &str = "No such file or directory";

impl Backend for KernelLab {
    type Error = LabError;

    fn is_kernel(&self) -> bool {
        true
    }

    fn leaves_out(&self, _: &Step) -> Option<StepVerdict> {
        let refused = self.refused.as_ref()?;
        Some(StepVerdict::NotJudged(format!("the cluster is not what the scenario says: {refused}")))
    }

    fn modes(&self) -> ModeByNode {
        self.nodes().into_iter().map(|node| (node.clone(), self.proxies.mode_of(&node))).collect()
    }

    fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        self.store.read(look)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn limit(&self, usual: Duration) -> Duration {
        self.patience.map_or(usual, |patience| usual.min(patience))
    }

    fn busy_after_rules(&self) -> Option<Duration> {
        self.marker.is_some().then(|| self.limit(AFTER_RULES))
    }

    async fn prepare(&mut self, step: &Step) -> Result<(), LabError> {
        for damage in self.breaks.iter().filter(|damage| damage.before == step.name) {
            self.damage(damage)
                .await
                .map_err(|error| LabError::Step(format!("the damage before this step could not be done: {error}")))?;
        }
        Ok(())
    }

    async fn pause(&mut self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn saved(&self, rules: &[RuleFile]) -> Result<NodeRulesets, LabError> {
        let (mut saved, modes) = (NodeRulesets::new(), self.modes());
        for rule in rules {
            for node in rule_checks::nodes_of(rule, &modes)? {
                let Entry::Vacant(entry) = saved.entry((node.clone(), rule.listing())) else { continue };
                let listed = self.listed(ClusterHost::Node(node), &entry.key().1).await?;
                entry.insert(listed);
            }
        }
        Ok(saved)
    }

    /// Stops after the first batch with a missing answer if all must be answered: hundreds of time-outs take minutes.
    async fn send_all(&mut self, plan: &ProbePlan, _: &ProbeTarget) -> Result<Vec<ProbeOutcome>, LabError> {
        self.prepare_path(plan).await?;
        let patient = !matches!(plan.wanted, ProbePromise::Answered { .. });
        let (mut outcomes, mut sent) = (Vec::with_capacity(plan.count), 0);
        while sent < plan.count {
            let size = plan.concurrency.min(plan.count - sent);
            let batch = match plan.pair {
                true => self.cluster.probe_pairs(&plan.probe, size).await?,
                false => self.cluster.probe_many(vec![plan.probe.clone(); size], plan.concurrency).await?,
            };
            sent += size;
            let silent = batch.iter().any(|outcome| matches!(outcome.answer, ProbeAnswer::TimedOut));
            outcomes.extend(batch);
            if silent && !patient {
                break;
            }
        }
        self.route(plan.route.as_ref(), false).await?;
        Ok(outcomes)
    }

    /// Opens a connection and keeps the client's route as long as the connection.
    async fn open(&mut self, name: &str, plan: &ProbePlan, _: &ProbeTarget) -> Result<ProbeOutcome, LabError> {
        self.prepare_path(plan).await?;
        let start = Instant::now();
        let mut connection = match self.cluster.connect(&plan.probe).await? {
            Ok(connection) => connection,
            Err(outcome) => return Ok(outcome),
        };
        let client = Some(connection.client());
        let answer = connection.ask(ASK).await.map_err(ClusterError::kernel(format!("connection {name}")))?;
        self.connections.insert(name.to_owned(), connection);
        Ok(ProbeOutcome { answer, client, took: start.elapsed() })
    }

    async fn ask(&mut self, name: &str, is_alive: bool) -> Result<Option<ProbeOutcome>, LabError> {
        let limit = self.limit(if is_alive { ASK } else { DEAD });
        let Some(connection) = self.connections.get_mut(name) else { return Ok(None) };
        let (client, start) = (Some(connection.client()), Instant::now());
        let answer = connection.ask(limit).await.map_err(ClusterError::kernel(format!("connection {name}")))?;
        Ok(Some(ProbeOutcome { answer, client, took: start.elapsed() }))
    }

    async fn scan(&mut self, plan: &ScanPlan) -> Result<BTreeSet<u16>, LabError> {
        self.route(plan.route.as_ref(), true).await?;
        let open = self.cluster.scan(&plan.from, plan.address, &plan.ports, plan.patience).await?;
        let mut open: BTreeSet<u16> = open.into_iter().collect();
        // A scan of thousands of ports may lose an answer: tries closed ports again, one by one.
        for port in plan.open.difference(&open.clone()) {
            open.extend(self.cluster.scan(&plan.from, plan.address, &BTreeSet::from([*port]), ONE_PORT).await?);
        }
        self.route(plan.route.as_ref(), false).await?;
        Ok(open)
    }

    async fn health(&mut self, from: &ClusterHost, _: &str, address: SocketAddr) -> Result<Health, String> {
        let answer = self.cluster.http_get(from, address, "/healthz", HANGS_AFTER).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let local_endpoints = body.get("localEndpoints").and_then(serde_json::Value::as_u64);
        Ok(Health { status: answer.status, local_endpoints, body: answer.body })
    }

    async fn balanced(
        &mut self,
        vip: IpAddr,
        wanted: Option<&[String]>,
        patience: Option<Duration>,
    ) -> Result<Vec<String>, LabError> {
        self.cluster.check_lb_health(vip).await;
        if let Some(wanted) = wanted {
            let patience = patience.unwrap_or_else(|| self.limit(LOAD_BALANCER_PATIENCE));
            let _ = self.cluster.wait_lb_healthy(vip, wanted, patience).await;
        }
        Ok(self.cluster.lb_healthy(vip)?)
    }

    /// Sleeps: a virtual clock skips idle time.
    async fn advance(&mut self, time: Duration) -> Result<(), LabError> {
        if !self.virtual_time {
            let hint = "run it with --deterministic (`--kernel auto` does so by itself)";
            return Err(LabError::Step(format!("the host's clock cannot be advanced: {hint}")));
        }
        tokio::time::sleep(time).await;
        Ok(())
    }

    async fn proxies(&mut self, action: ProxyAction, nodes: &[String]) -> Result<StepOutcome, LabError> {
        let (mut broken, mut kills, since) = (Vec::new(), Vec::new(), Instant::now());
        for node in nodes {
            match action {
                ProxyAction::Kill => self.proxies.end(node, SIGKILL).await?,
                ProxyAction::Stop => self.proxies.end(node, SIGTERM).await?,
                ProxyAction::Start(different, when) => {
                    self.proxies.set(node, different);
                    if when == Some(StartMoment::Ended) {
                        let limit = self.limit(END_BY_CHANGE);
                        broken.extend(self.proxies.end_by_change(&self.feed, node, limit).await?);
                    }
                    self.proxies.end(node, SIGTERM).await?;
                    self.proxies.start(&self.cluster, &self.feed, node).await?;
                    kills.extend(self.arm_kills());
                }
                ProxyAction::Cleanup => {
                    self.proxies.end(node, SIGTERM).await?;
                    broken.extend(self.proxies.cleanup(&self.cluster, &self.feed, node).await?);
                }
            }
        }
        let (killed, alive) = self.await_kills(kills).await?;
        broken.extend(alive);
        if matches!(action, ProxyAction::Start(..)) {
            broken.extend(self.applied(since).await?);
        }
        Ok(StepOutcome::new(format!("{}{killed}", nodes.join(", ")), broken))
    }

    async fn change(&mut self, step: &Step) -> Result<StepOutcome, LabError> {
        self.change_objects(step).await
    }

    async fn evidence(&mut self, step: &Step, number: usize, verdict: &StepVerdict) -> Option<Evidence> {
        self.keep_evidence(step, number, verdict).await
    }

    fn refused(&self) -> Option<String> {
        self.proxies.refused()
    }

    fn take_late(&mut self) -> Vec<Mismatch> {
        KernelLab::take_late(self)
    }

    fn audit_after(&self, step: Option<&Step>) -> Option<Step> {
        KernelLab::audit_after(self, step)
    }

    async fn special(&mut self, step: &Step) -> Result<StepOutcome, LabError> {
        let nodes = &step.nodes;
        match &step.action {
            Action::Api(fault) => self.misbehave(fault.0, &step.expect).await,
            Action::Partition(_) => self.partition(nodes).await,
            Action::Heal(_) => self.heal(nodes).await,
            Action::Impair(file) => self.impair(nodes, &file.impairment()).await,
            Action::Repair(_) => self.repair(nodes).await,
            Action::Idle(time) => Ok(self.idle(time.0, &step.expect).await),
            Action::Traffic(file) => self.begin_traffic(file).await,
            Action::EndTraffic(name) => self.end_traffic(name, &step.expect).await,
            Action::Exec(exec) => self.command(exec, &step.expect).await,
            Action::HealthCheck(file @ HealthCheckFile { path: Some(path), .. }) => {
                self.own_health(step.node(), (file, *path), &step.expect).await
            }
            Action::Audit(_) => self.audit(nodes, &step.expect).await,
            Action::Metric(file) => self.metric(step.node(), &file.name, &step.expect).await,
            Action::SendStray(name) => self.send_stray(name).await.map(|()| StepOutcome::default()),
            action => {
                if let Some(after) = action.kill_in_restore() {
                    self.armed.extend(nodes.iter().map(|node| (node.clone(), after)));
                    return Ok(StepOutcome::new(nodes.join(", "), []));
                }
                match (action.fault(), action.ended_fault()) {
                    (Some(fault), _) => self.begin_fault(fault, nodes).await,
                    (None, Some(kind)) => self.end_fault(kind, nodes).await,
                    (None, None) => Err(LabError::Step(format!("the lab has no code for `{}`", step.key.key))),
                }
            }
        }
    }
}

impl KernelLab {
    async fn listed(&self, place: ClusterHost, what: &Listing) -> Result<Ruleset, LabError> {
        let save = |program: &str| [program.to_owned(), "-c".to_owned()];
        match what {
            Listing::Iptables(RuleFamily::Ipv4) => {
                Ok(Ruleset::parse(&self.output_of(&place, &save("iptables-save")).await?))
            }
            Listing::Iptables(RuleFamily::Ipv6) => {
                Ok(Ruleset::parse(&self.output_of(&place, &save("ip6tables-save")).await?))
            }
            Listing::Nft(table) => Ok(Ruleset::parse_nft(&self.table(&place, table).await?)),
        }
    }

    /// Returns the output of `nft list table`; empty without the table.
    pub(super) async fn table(&self, place: &ClusterHost, table: &str) -> Result<String, LabError> {
        let argv: Vec<String> =
            ["nft", "list", "table"].into_iter().chain(table.split(' ')).map(str::to_owned).collect();
        match self.output_of(place, &argv).await {
            Err(LabError::Command { problem, .. }) if problem.contains(NO_SUCH_TABLE) => Ok(String::new()),
            listed => listed,
        }
    }

    /// Adds the client's route. Without a route, the load balancer first checks the nodes again: the request must not
    /// depend on the moment of the last check.
    async fn prepare_path(&self, plan: &ProbePlan) -> Result<(), LabError> {
        if plan.route.is_none() {
            self.cluster.check_lb_health(plan.probe.to.ip()).await;
        }
        self.route(plan.route.as_ref(), true).await
    }

    pub(super) async fn route(&self, route: Option<&ClientRoute>, add: bool) -> Result<(), LabError> {
        if let Some((client, destination, node)) = route {
            if add {
                self.cluster.add_client_route(client, *destination, node).await?;
            } else {
                self.cluster.remove_client_route(client, *destination).await?;
            }
        }
        Ok(())
    }
}
