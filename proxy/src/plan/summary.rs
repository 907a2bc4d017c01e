//! Counts service ports with conditions that an operator should know.

use std::collections::BTreeMap;

use super::{HintsIgnored, NoLocalEndpoints, ServicePortPlan};
use crate::model::ServicePortName;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanSummary {
    standing: BTreeMap<ServicePortName, PortCondition>,
    internal: usize,
    external: usize,
    hints: [usize; HintsIgnored::ALL.len()],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PortCondition {
    no_local: NoLocalEndpoints,
    hints: Option<HintsIgnored>,
}

impl PlanSummary {
    /// Records a plan; `None`: the service port was deleted.
    pub fn record(&mut self, name: &ServicePortName, plan: Option<&ServicePortPlan>) {
        if let Some(before) = self.standing.remove(name) {
            self.count(before, |count| *count -= 1);
        }
        let now = plan.map(|plan| PortCondition { no_local: plan.no_local_endpoints, hints: plan.hints_ignored });
        if let Some(now) = now.filter(|now| *now != PortCondition::default()) {
            self.count(now, |count| *count += 1);
            self.standing.insert(name.clone(), now);
        }
    }

    fn count(&mut self, standing: PortCondition, change: impl Fn(&mut usize)) {
        if standing.no_local.internal {
            change(&mut self.internal);
        }
        if standing.no_local.external {
            change(&mut self.external);
        }
        for (count, _) in self.hints.iter_mut().zip(HintsIgnored::ALL).filter(|(_, r)| standing.hints == Some(*r)) {
            change(count);
        }
    }

    /// Returns how many service ports lack local endpoints: internal, external.
    pub fn without_local_endpoints(&self) -> (usize, usize) {
        (self.internal, self.external)
    }

    pub fn hints_ignored(&self) -> impl Iterator<Item = (HintsIgnored, usize)> {
        HintsIgnored::ALL.into_iter().zip(self.hints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Protocol;
    use crate::plan::service_port::{PlanContext, plan_service_port};
    use crate::state::NodeInfo;
    use crate::state::endpoints::Endpoint;
    use crate::state::service::{ServicePort, TrafficPolicy};
    use crate::testing::{port_name, service_port};

    fn endpoint(zone: Option<&str>, node: Option<&str>) -> Endpoint {
        let hints = |hint: Option<&str>| hint.into_iter().map(str::to_owned).collect();
        let endpoint = crate::testing::endpoint("10.244.1.5:80");
        Endpoint { zone_hints: hints(zone), node_hints: hints(node), ..endpoint }
    }

    fn plan(policy: TrafficPolicy, zone: Option<&str>, endpoints: &[Endpoint]) -> ServicePortPlan {
        let port = service_port(port_name("web", Protocol::Tcp), "10.96.0.1");
        let port = ServicePort { internal_policy: policy, ..port };
        let node = NodeInfo { zone: zone.map(str::to_owned), ..NodeInfo::default() };
        let no_machines = std::collections::BTreeSet::new();
        let context = PlanContext {
            node_name: "n1",
            node: &node,
            primary: None,
            masquerade_all: false,
            other_machines: &no_machines,
            affinity_across_ports: crate::plan::affinity::AcrossPortsPolicy::default(),
            fates: crate::plan::flow_fate::FatePolicy::default(),
            local_fallback: true,
            source_ranges: true,
            balancing: crate::plan::load_balancing::BalancingPolicy::default(),
        };
        plan_service_port(&port, endpoints, context)
    }

    #[test]
    fn ignored_hints_have_a_reason() {
        let (a, none) = (Some("a"), None);
        for (zone, endpoints, reason) in [
            (a, vec![endpoint(none, none)], None),
            (a, vec![endpoint(a, none)], None),
            (a, vec![endpoint(a, none), endpoint(none, none)], Some(HintsIgnored::EndpointWithoutHint)),
            (a, vec![endpoint(Some("b"), none)], Some(HintsIgnored::NoEndpointForZone)),
            (none, vec![endpoint(a, none)], Some(HintsIgnored::NodeWithoutZone)),
            (a, vec![endpoint(none, Some("n1"))], None),
            (a, vec![endpoint(none, Some("n2"))], Some(HintsIgnored::NoEndpointForNode)),
            (a, vec![endpoint(a, Some("n2"))], None),
            (a, vec![endpoint(a, none), endpoint(none, Some("n1"))], Some(HintsIgnored::EndpointWithoutHint)),
        ] {
            assert_eq!(plan(TrafficPolicy::Cluster, zone, &endpoints).hints_ignored, reason, "{endpoints:?}");
            assert_eq!(plan(TrafficPolicy::Local, zone, &endpoints).hints_ignored, None, "hints are not for Local");
        }
    }

    #[test]
    fn a_service_port_counts_once_while_the_condition_lasts() {
        let ignored = |tally: &PlanSummary| tally.hints_ignored().map(|(_, count)| count).collect::<Vec<_>>();
        let elsewhere = plan(TrafficPolicy::Local, None, &[endpoint(None, None)]);
        let unknown_zone = plan(TrafficPolicy::Cluster, None, &[endpoint(Some("a"), None)]);
        let name = elsewhere.name.clone();
        let mut tally = PlanSummary::default();
        tally.record(&name, Some(&elsewhere));
        tally.record(&name, Some(&elsewhere));
        assert_eq!((tally.without_local_endpoints(), ignored(&tally)), ((1, 0), vec![0; 4]));
        tally.record(&name, Some(&unknown_zone));
        assert_eq!((tally.without_local_endpoints(), ignored(&tally)), ((0, 0), vec![0, 1, 0, 0]));
        tally.record(&name, None);
        assert_eq!(tally, PlanSummary::default());
    }
}
