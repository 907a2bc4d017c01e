//! The simulator as a backend: packets take no time, and rules change at once.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use svclab_apiserver::objects::Store;
use svclab_cluster::traffic::probe::{ClusterHost, Probe, ProbeAnswer, ProbeOutcome, RESET};
use svclab_sim::protocol::Family;
use svclab_sim::rules::Rules;
use svclab_spec::Protocol;

use super::counters::RuleCounters;
use super::lab::{SimError, SimLab};
use super::targets;
use crate::expect::counters::Ruleset;
use crate::report::StepVerdict;
use crate::scenario::Step;
use crate::scenario::execute::{Backend, Health, StepOutcome};
use crate::scenario::file::{Action, DURATIONS, Listing, ProbeFile, ProxyAction, RuleFamily, RuleFile};
use crate::scenario::resolve::{self, PATIENCE, ProbePlan, ScanPlan};
use crate::scenario::rule_checks::{self, ModeByNode, NodeRulesets};
use crate::scenario::values::ProbeTarget;

impl Backend for SimLab {
    type Error = SimError;

    fn is_kernel(&self) -> bool {
        false
    }

    /// Skips proxying load balancers and the API: the simulator has no such programs.
    fn leaves_out(&self, step: &Step) -> Option<StepVerdict> {
        let file = match &step.action {
            Action::Scan(_) if self.has_api => {
                let why = "the Kubernetes API on the nodes' network, which is a program";
                return Some(StepVerdict::NotSimulated(why.to_owned()));
            }
            Action::Probe(file) => file.clone(),
            Action::Connect(file) => {
                ProbeFile { family: file.family.clone(), ..ProbeFile::plain(&file.from, &file.to) }
            }
            _ => return None,
        };
        let (probe, _) = resolve::aim(&self.store, &file, PATIENCE).ok()?;
        let why = "the load balancer is a program there (ipMode: Proxy)";
        targets::is_proxied(&self.store, &file.to.value, probe.to.ip())
            .then(|| StepVerdict::NotSimulated(why.to_owned()))
    }

    fn modes(&self) -> ModeByNode {
        self.setups.iter().map(|(node, setup)| (node.clone(), setup.mode)).collect()
    }

    fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.store)
    }

    fn now(&self) -> Duration {
        self.machines.network().now()
    }

    fn limit(&self, usual: Duration) -> Duration {
        usual
    }

    fn busy_after_rules(&self) -> Option<Duration> {
        None
    }

    async fn prepare(&mut self, _: &Step) -> Result<(), SimError> {
        Ok(())
    }

    async fn pause(&mut self, time: Duration) {
        self.machines.network_mut().advance(time);
    }

    async fn saved(&self, rules: &[RuleFile]) -> Result<NodeRulesets, SimError> {
        let (mut saved, modes) = (NodeRulesets::new(), self.modes());
        for rule in rules {
            for node in rule_checks::nodes_of(rule, &modes)? {
                let rendered = self.rendered.get(&node);
                let ruleset = match rule.listing() {
                    Listing::Iptables(family) => {
                        let family = match family {
                            RuleFamily::Ipv4 => Family::V4,
                            RuleFamily::Ipv6 => Family::V6,
                        };
                        let rules = rendered.map(|rendered| rendered.state.rules(family));
                        let rules = rules.cloned().unwrap_or_else(|| Arc::new(Rules::empty(family)));
                        let machine = ClusterHost::Node(node.clone()).to_string();
                        RuleCounters::ruleset(self.counters.as_ref(), &machine, &rules)
                    }
                    Listing::Nft(_) => Ruleset::parse_nft(rendered.map_or("", |rendered| &rendered.tables)),
                };
                saved.insert((node, rule.listing()), ruleset);
            }
        }
        Ok(saved)
    }

    async fn send_all(&mut self, plan: &ProbePlan, to: &ProbeTarget) -> Result<Vec<ProbeOutcome>, SimError> {
        let entrances = self.entrances(&plan.probe, plan.route.as_ref(), to)?;
        let one = |_| {
            self.enter(&plan.probe, &entrances)?;
            let (outcome, sent) = self.call(&plan.probe)?;
            if matches!(outcome.answer, ProbeAnswer::Replied { .. }) {
                self.reset_connection(&sent)?;
            }
            Ok(outcome)
        };
        (0..plan.count).map(one).collect()
    }

    async fn open(&mut self, name: &str, plan: &ProbePlan, to: &ProbeTarget) -> Result<ProbeOutcome, SimError> {
        let entrances = self.entrances(&plan.probe, plan.route.as_ref(), to)?;
        self.enter(&plan.probe, &entrances)?;
        let (outcome, sent) = self.call(&plan.probe)?;
        self.open.insert(name.to_owned(), sent);
        Ok(outcome)
    }

    async fn ask(&mut self, name: &str, _is_alive: bool) -> Result<Option<ProbeOutcome>, SimError> {
        let sent = self.open.get(name).cloned();
        sent.map(|sent| self.send_again(&sent)).transpose()
    }

    async fn scan(&mut self, plan: &ScanPlan) -> Result<BTreeSet<u16>, SimError> {
        self.take_route(plan.route.as_ref())?;
        let mut open = BTreeSet::new();
        for port in &plan.ports {
            let probe = Probe {
                from: plan.from.clone(),
                to: SocketAddr::new(plan.address, *port),
                protocol: Protocol::Tcp,
                source_address: None,
                source_port: None,
                bytes: 0,
                dscp: 0,
                timeout: plan.patience,
            };
            let (outcome, sent) = self.call(&probe)?;
            // A relay without backends accepts, then resets.
            let is_open = match &outcome.answer {
                ProbeAnswer::Replied { .. } => true,
                ProbeAnswer::Broken(why) => why == RESET,
                _ => false,
            };
            if is_open {
                open.insert(*port);
                self.reset_connection(&sent)?;
            }
        }
        Ok(open)
    }

    async fn health(&mut self, _: &ClusterHost, node: &str, address: SocketAddr) -> Result<Health, String> {
        let local = self.local_endpoints(node, address.ip(), address.port()).ok_or("connection refused")?;
        let status = if local > 0 { 200 } else { 503 };
        let body = format!("localEndpoints: {local}");
        Ok(Health { status, local_endpoints: u64::try_from(local).ok(), body })
    }

    async fn balanced(
        &mut self,
        vip: IpAddr,
        _: Option<&[String]>,
        _: Option<Duration>,
    ) -> Result<Vec<String>, SimError> {
        let vip = self.store.vips().into_iter().find(|published| published.address == vip);
        let healthy = |node: &str, address, port| self.answers_healthy(node, address, port);
        Ok(vip.map(|vip| targets::sends_to(&self.store, &vip, &healthy)).unwrap_or_default())
    }

    async fn advance(&mut self, time: Duration) -> Result<(), SimError> {
        self.pass(time)
    }

    async fn proxies(&mut self, action: ProxyAction, nodes: &[String]) -> Result<StepOutcome, SimError> {
        self.change_proxies(action, nodes)?;
        Ok(StepOutcome::new(nodes.join(", "), []))
    }

    async fn change(&mut self, step: &Step) -> Result<StepOutcome, SimError> {
        self.change_objects(step)?;
        let note = step.expect.took.as_ref().map(|_| format!("not simulated: {}", DURATIONS.words));
        Ok(StepOutcome::new(note.unwrap_or_default(), []))
    }

    async fn special(&mut self, step: &Step) -> Result<StepOutcome, SimError> {
        Err(SimError::Step(format!("the simulator has no {}", step.key.key)))
    }
}
