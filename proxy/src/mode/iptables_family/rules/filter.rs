//! One service port's filter rules, for modes whose nat rules do not translate refused packets.

use std::net::IpAddr;

use super::names;
use super::node_ports::NodePortMatch;
use crate::mode::iptables_family::engine::render::{ChainId, ServiceRules};
use crate::model::{Protocol, ServiceAnnotation};
use crate::plan::{ExternalFrontends, FrontendVerdict, NodePlan, ServicePortPlan};
use crate::ruleset::{ConnectionStates, Rule, RuleTarget, Table};

const REFUSED_INTERNAL: ChainId = (Table::Filter, names::SERVICES);
const REFUSED_EXTERNAL: ChainId = (Table::Filter, names::EXTERNAL_SERVICES);
const FIREWALL: ChainId = (Table::Filter, names::PROXY_FIREWALL);
const HEALTH_CHECKS: ChainId = (Table::Filter, names::NODE_PORTS);

pub const CHAINS: [ChainId; 4] = [REFUSED_INTERNAL, REFUSED_EXTERNAL, FIREWALL, HEALTH_CHECKS];

#[derive(Debug, Clone, Copy)]
pub struct FilterComments<'a> {
    pub refused: &'a str,
    /// The nat chain that accepts allowed sources of load-balancer IPs.
    pub accepting: &'a str,
}

impl<'a> FilterComments<'a> {
    pub fn no_endpoints(accepting: &'a str) -> FilterComments<'a> {
        FilterComments { refused: "has no endpoints", accepting }
    }
}

pub fn render(plan: &ServicePortPlan, node: &NodePlan, words: FilterComments<'_>, out: &mut ServiceRules) {
    let writer = FilterRenderer { plan, node, name: plan.name.to_string(), words };
    if let Some(internal) = &plan.internal {
        let to_cluster_ip = |rule: Rule| rule.destination(internal.address).port(plan.protocol(), plan.port);
        out.add(REFUSED_INTERNAL, writer.refusal(internal.action.verdict, to_cluster_ip));
    }
    if let Some(external) = &plan.external {
        out.add(REFUSED_EXTERNAL, writer.refused_external(external));
        out.add(FIREWALL, writer.firewall(external));
    }
    out.add(HEALTH_CHECKS, writer.health_check());
}

struct FilterRenderer<'a> {
    plan: &'a ServicePortPlan,
    node: &'a NodePlan,
    /// `namespace/name:port`.
    name: String,
    words: FilterComments<'a>,
}

impl FilterRenderer<'_> {
    fn refusal(&self, verdict: FrontendVerdict, matching: impl FnOnce(Rule) -> Rule) -> Option<Rule> {
        let commented = |why: &str| matching(Rule::commented(format!("{} {why}", self.name)));
        match verdict {
            FrontendVerdict::Deliver(_) => None,
            FrontendVerdict::Reject => Some(commented(self.words.refused).reject(self.node.family)),
            FrontendVerdict::Drop => Some(commented("has no local endpoints").target(RuleTarget::Drop)),
        }
    }

    /// Drops untranslated packets to restricted frontends. Without endpoints allowed sources must be rejected instead.
    fn firewall(&self, external: &ExternalFrontends) -> Vec<Rule> {
        let mut rules = Vec::new();
        if !external.delivers() {
            return rules;
        }
        let commented = |by: &str| Rule::commented(format!("{} traffic not accepted by {by}", self.name));
        let (protocol, port) = (self.plan.protocol(), self.plan.port);
        let to_address = |rule: Rule, address: &IpAddr| rule.destination(*address).port(protocol, port);
        if external.allowed_sources.is_some() {
            let rule = |address| to_address(commented(self.words.accepting), address);
            rules.extend(external.load_balancer_ips.iter().map(rule));
        }
        if external.annotated_sources.is_some() {
            // A pod on the host's network may have such an address and port, and get packets by another frontend.
            let untranslated =
                || commented(ServiceAnnotation::SourceRanges.key()).conntrack_not(ConnectionStates::DNAT);
            rules.extend(external.external_ips.iter().map(|address| to_address(untranslated(), address)));
            if let Some(node_port) = external.node_port {
                let rule = |scope: NodePortMatch| scope.of_any(untranslated()).port(protocol, node_port);
                rules.extend(NodePortMatch::all(self.node).into_iter().map(rule));
            }
        }
        rules.into_iter().map(|rule| rule.target(RuleTarget::Drop)).collect()
    }

    fn refused_external(&self, external: &ExternalFrontends) -> Vec<Rule> {
        let (protocol, port, verdict) = (self.plan.protocol(), self.plan.port, external.action.verdict);
        let addresses = external.external_ips.iter().chain(&external.load_balancer_ips);
        let mut lines: Vec<Rule> = addresses
            .filter_map(|address| self.refusal(verdict, |rule| rule.destination(*address).port(protocol, port)))
            .collect();
        if let Some(node_port) = external.node_port {
            // Another program may listen on the node's other addresses.
            let refusal =
                |scope: NodePortMatch| self.refusal(verdict, |rule| scope.of_any(rule).port(protocol, node_port));
            lines.extend(NodePortMatch::all(self.node).into_iter().filter_map(refusal));
        }
        lines
    }

    fn health_check(&self) -> Option<Rule> {
        let check = self.plan.health_check.as_ref()?;
        let rule = Rule::commented(format!("{} health check node port", self.name));
        Some(rule.port(Protocol::Tcp, check.port).target(RuleTarget::Accept))
    }
}
