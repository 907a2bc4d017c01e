//! Resets open connections to addresses that no Service has any more. Their conntrack entries are deleted
//! ([`crate::plan::ended_flows`]), and no rule translates their packets, which nothing else would answer. A lost node
//! port needs no rule: the node's kernel answers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::mode::iptables_family::engine::render::SharedRule;
use crate::mode::iptables_family::rules::filter;
use crate::model::{FlowFate, Frontend, Protocol, ServicePortName};
use crate::plan::ServicePortPlan;

/// The most addresses that are remembered, because every new connection that no Service translates passes their rules.
const MOST: usize = 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct LostFrontends {
    /// Addresses of service ports with a fate, as of their last rules.
    present: BTreeMap<ServicePortName, BTreeSet<SocketAddr>>,
    /// Lost addresses with the time at which their rules end.
    lost: BTreeMap<ServicePortName, BTreeMap<SocketAddr, Instant>>,
    /// Service ports that the current full sync has not rendered yet.
    unrendered: BTreeSet<ServicePortName>,
}

impl LostFrontends {
    /// Starts a full sync.
    pub(super) fn begin(&mut self, now: Instant) {
        self.lost.values_mut().for_each(|lost| lost.retain(|_, end| *end > now));
        self.lost.retain(|_, lost| !lost.is_empty());
        self.unrendered = self.present.keys().chain(self.lost.keys()).cloned().collect();
    }

    /// Returns service ports without a plan whose addresses a full sync must render.
    pub(super) fn take_unrendered(&mut self) -> BTreeSet<ServicePortName> {
        std::mem::take(&mut self.unrendered)
    }

    /// Records a service port's rules. Returns the rules of its lost addresses, which last for `memory`.
    pub(super) fn render(
        &mut self,
        name: &ServicePortName,
        plan: Option<&ServicePortPlan>,
        memory: Duration,
        now: Instant,
    ) -> Vec<SharedRule> {
        if name.protocol != Protocol::Tcp {
            return Vec::new();
        }
        self.unrendered.remove(name);
        let before = self.present.remove(name).unwrap_or_default();
        let after: BTreeSet<SocketAddr> = plan.into_iter().flat_map(addresses).collect();
        let others: usize = self.lost.values().map(BTreeMap::len).sum();
        let mut lost = self.lost.remove(name).unwrap_or_default();
        lost.retain(|address, _| !after.contains(address));
        if plan.is_some_and(|plan| plan.flow_fate == FlowFate::Keep) {
            return Vec::new();
        }
        for address in before.difference(&after).take(MOST.saturating_sub(others)) {
            lost.entry(*address).or_insert(now + memory);
        }
        if !after.is_empty() {
            self.present.insert(name.clone(), after);
        }
        let rules = lost.keys().map(|address| filter::lost_frontend(name, *address)).collect();
        if !lost.is_empty() {
            self.lost.insert(name.clone(), lost);
        }
        rules
    }
}

fn addresses(plan: &ServicePortPlan) -> impl Iterator<Item = SocketAddr> {
    plan.frontends().filter_map(|frontend| match frontend {
        Frontend::Address(address) => Some(address),
        Frontend::NodePort(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::flow_fate::FatePolicy;
    use crate::plan::load_balancing::BalancingPolicy;
    use crate::plan::plan_service_port;
    use crate::plan::service_port::PlanContext;
    use crate::state::NodeInfo;
    use crate::state::service::ServicePort;
    use crate::testing::{port_name, service_port};

    const MEMORY: Duration = Duration::from_secs(60);

    fn plan(service: &str, fate: FlowFate, external_ips: &[&str]) -> ServicePortPlan {
        let port = service_port(port_name(service, Protocol::Tcp), "10.96.0.1");
        let external_ips = external_ips.iter().map(|ip| ip.parse().unwrap()).collect();
        let context = PlanContext {
            node_name: "n1",
            node: &NodeInfo::default(),
            primary: None,
            masquerade_all: false,
            other_machines: &BTreeSet::new(),
            fates: FatePolicy::default(),
            local_fallback: false,
            source_ranges: false,
            balancing: BalancingPolicy::default(),
            affinity_across_ports: crate::plan::affinity::AcrossPortsPolicy::default(),
        };
        let plan = plan_service_port(&ServicePort { external_ips, ..port }, &[], context);
        ServicePortPlan { flow_fate: fate, ..plan }
    }

    /// Returns the destinations of the rules.
    fn rendered(lost: &mut LostFrontends, service: &str, plan: Option<&ServicePortPlan>, now: Instant) -> Vec<String> {
        let rules = lost.render(&port_name(service, Protocol::Tcp), plan, MEMORY, now);
        let text = rules.iter().map(|line| line.rule.to_string());
        text.filter_map(|rule| Some(rule.split_once("-d ")?.1.split_once('/')?.0.to_owned())).collect()
    }

    #[test]
    fn a_lost_address_has_a_rule_until_conntrack_would_have_forgotten() {
        let (mut lost, now) = (LostFrontends::default(), Instant::now());
        let both = plan("web", FlowFate::Reset, &["192.0.2.5", "192.0.2.6"]);
        let one = plan("web", FlowFate::Reset, &["192.0.2.5"]);
        assert_eq!(rendered(&mut lost, "web", Some(&both), now), [""; 0]);
        assert_eq!(rendered(&mut lost, "web", Some(&one), now), ["192.0.2.6"]);
        assert_eq!(rendered(&mut lost, "web", Some(&one), now), ["192.0.2.6"], "the next change keeps it");
        assert_eq!(rendered(&mut lost, "web", None, now), ["10.96.0.1", "192.0.2.5", "192.0.2.6"]);
        lost.begin(now + MEMORY / 2);
        assert_eq!(lost.take_unrendered().len(), 1);
        lost.begin(now + MEMORY);
        assert_eq!(lost.take_unrendered().len(), 0);
    }

    #[test]
    fn a_service_that_keeps_connections_leaves_no_rule() {
        let (mut lost, now) = (LostFrontends::default(), Instant::now());
        let (keeps, resets) = (plan("web", FlowFate::Keep, &[]), plan("web", FlowFate::Reset, &[]));
        rendered(&mut lost, "web", Some(&keeps), now);
        assert_eq!(rendered(&mut lost, "web", None, now), [""; 0]);
        rendered(&mut lost, "web", Some(&resets), now);
        rendered(&mut lost, "web", Some(&keeps), now);
        assert_eq!(rendered(&mut lost, "web", None, now), [""; 0], "its last fate counts");
    }

    #[test]
    fn only_so_many_addresses_have_rules() {
        let (mut lost, now) = (LostFrontends::default(), Instant::now());
        let many: Vec<String> = (0..MOST).map(|n| format!("198.18.{}.{}", n / 256, n % 256)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        rendered(&mut lost, "many", Some(&plan("many", FlowFate::Reset, &many)), now);
        assert_eq!(rendered(&mut lost, "many", None, now).len(), MOST);
        rendered(&mut lost, "web", Some(&plan("web", FlowFate::Reset, &[])), now);
        assert_eq!(rendered(&mut lost, "web", None, now), [""; 0]);
    }
}
