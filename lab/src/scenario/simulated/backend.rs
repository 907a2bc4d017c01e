//! The simulator as a backend of steps: packets take no time, and what a proxy programs is there at once.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use svclab_apiserver::objects::{ObjectKey, Store};
use svclab_cluster::traffic::probe::{ClusterHost, Probe, ProbeAnswer, ProbeOutcome};
use svclab_sim::protocol::Family;
use svclab_sim::rules::Rules;
use svclab_spec::Protocol;

use super::calls::RESET;
use super::counters::Counters;
use super::lab::{SimError, SimLab};
use super::targets;
use crate::expect::counters::Ruleset;
use crate::report::StepVerdict;
use crate::scenario::execute::{Backend, Capability, Health, Seen};
use crate::scenario::file::{Listing, RuleFamily, RuleFile};
use crate::scenario::look::Modes;
use crate::scenario::look::{self, Saved};
use crate::scenario::resolve::{self, PATIENCE, ProbePlan, ScanPlan};
use crate::scenario::values::Target;
use crate::scenario::{Action, ProxyAction, Step};

impl Backend for SimLab {
    type Error = SimError;

    fn has(&self, _: Capability) -> bool {
        false
    }

    /// A load balancer that opens connections of its own is no router.
    fn leaves_out(&self, step: &Step) -> Option<StepVerdict> {
        let target = match &step.action {
            Action::Probe(file) => &file.to.value,
            Action::Connect(file) => &file.to.value,
            _ => return None,
        };
        let why = "the load balancer is a program there (ipMode: Proxy)";
        targets::is_proxied(&self.store, target).then(|| StepVerdict::NotSimulated(why.to_owned()))
    }

    fn modes(&self) -> Modes {
        self.setups.iter().map(|(node, setup)| (node.clone(), setup.mode)).collect()
    }

    fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.store)
    }

    fn now(&self) -> Duration {
        self.machines.network().now()
    }

    fn patience(&self) -> Duration {
        PATIENCE
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

    async fn saved(&self, rules: &[RuleFile]) -> Result<Saved, SimError> {
        let (mut saved, modes) = (Saved::new(), self.modes());
        for rule in rules {
            for node in look::nodes_of(rule, &modes)? {
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
                        Counters::ruleset(self.counters.as_ref(), &machine, &rules)
                    }
                    Listing::Nft(_) => Ruleset::parse_nft(rendered.map_or("", |rendered| &rendered.tables)),
                };
                saved.insert((node, rule.listing()), ruleset);
            }
        }
        Ok(saved)
    }

    async fn send_all(&mut self, plan: &ProbePlan, to: &Target) -> Result<Vec<ProbeOutcome>, SimError> {
        let entrances = self.entrances(&plan.probe, plan.route.as_ref(), to)?;
        let one = |_| {
            self.enter(&plan.probe, &entrances)?;
            let (outcome, sent) = self.call(&plan.probe)?;
            if matches!(outcome.answer, ProbeAnswer::Replied { .. }) {
                self.hang_up(&sent)?;
            }
            Ok(outcome)
        };
        (0..plan.count).map(one).collect()
    }

    async fn open(&mut self, name: &str, plan: &ProbePlan, to: &Target) -> Result<ProbeOutcome, SimError> {
        let entrances = self.entrances(&plan.probe, plan.route.as_ref(), to)?;
        self.enter(&plan.probe, &entrances)?;
        let (outcome, sent) = self.call(&plan.probe)?;
        self.open.insert(name.to_owned(), sent);
        Ok(outcome)
    }

    async fn ask(&mut self, name: &str, _is_alive: bool) -> Result<Option<ProbeOutcome>, SimError> {
        let sent = self.open.get(name).cloned();
        sent.map(|sent| self.call_again(&sent)).transpose()
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
                timeout: plan.patience,
            };
            let (outcome, sent) = self.call(&probe)?;
            // A relay that has no backend to lead to has accepted, too.
            let is_open = match &outcome.answer {
                ProbeAnswer::Replied { .. } => true,
                ProbeAnswer::Broken(why) => why == RESET,
                _ => false,
            };
            if is_open {
                open.insert(*port);
                self.hang_up(&sent)?;
            }
        }
        Ok(open)
    }

    async fn health(&mut self, node: &str, address: SocketAddr) -> Result<Health, String> {
        let local = self.local_endpoints(node, address.ip(), address.port()).ok_or("connection refused")?;
        let status = if local > 0 { 200 } else { 503 };
        let body = format!("localEndpoints: {local}");
        Ok(Health { status, local_endpoints: u64::try_from(local).ok(), body })
    }

    async fn balanced(
        &mut self,
        service: &ObjectKey,
        _: Option<&[String]>,
        _: Option<Duration>,
    ) -> Result<(IpAddr, Vec<String>), SimError> {
        let address = resolve::vip(&self.store, service)?;
        let vip = self.store.vips_of(service).into_iter().find(|vip| vip.address == address);
        let healthy = |node: &str, address, port| self.answers_healthy(node, address, port);
        Ok((address, vip.map(|vip| targets::sends_to(&self.store, &vip, &healthy)).unwrap_or_default()))
    }

    async fn advance(&mut self, time: Duration) -> Result<(), SimError> {
        self.machines.network_mut().advance(time);
        Ok(())
    }

    async fn proxies(&mut self, action: ProxyAction, nodes: &[String]) -> Result<Seen, SimError> {
        self.change_proxies(action, nodes)?;
        Ok(Seen::new(nodes.join(", "), []))
    }

    async fn change(&mut self, action: &Action) -> Result<Seen, SimError> {
        self.change_objects(action)?;
        Ok(Seen::default())
    }

    async fn special(&mut self, step: &Step) -> Result<Seen, SimError> {
        Err(SimError::Step(format!("the simulator has no {}", step.action.key())))
    }
}
