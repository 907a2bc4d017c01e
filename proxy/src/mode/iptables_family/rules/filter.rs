//! What one service port contributes to the filter table in every mode whose nat rules leave refused packets as they were:
//! who is refused, who is dropped, and the health check that is let in.

use std::net::IpAddr;

use super::names;
use super::node_ports::Scope;
use crate::mode::iptables_family::engine::render::{Place, ServiceRules};
use crate::model::Protocol;
use crate::plan::{ExternalFrontends, NodePlan, ServicePortPlan, Verdict};
use crate::ruleset::Table;
use crate::ruleset::{Rule, Target};

/// Cluster IPs that are refused.
const REFUSED_INTERNAL: Place = (Table::Filter, names::SERVICES);
/// Frontends for outside that are refused.
const REFUSED_EXTERNAL: Place = (Table::Filter, names::EXTERNAL_SERVICES);
/// Load-balancer traffic that no source range accepted.
const FIREWALL: Place = (Table::Filter, names::PROXY_FIREWALL);
/// Health-check node ports.
const HEALTH_CHECKS: Place = (Table::Filter, names::NODE_PORTS);

/// The chains that these rules are in.
pub const PLACES: [Place; 4] = [REFUSED_INTERNAL, REFUSED_EXTERNAL, FIREWALL, HEALTH_CHECKS];

/// What differs from mode to mode: words of comments.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    /// Why packets are refused.
    pub refused: &'a str,
    /// The chain of nat that accepts allowed sources of load-balancer IPs.
    pub accepting: &'a str,
}

impl<'a> Words<'a> {
    /// There are no endpoints.
    pub fn no_endpoints(accepting: &'a str) -> Words<'a> {
        Words { refused: "has no endpoints", accepting }
    }
}

/// Writes down one service port.
pub fn render(plan: &ServicePortPlan, node: &NodePlan, words: Words<'_>, out: &mut ServiceRules) {
    let writer = Writer { plan, node, name: plan.name.to_string(), words };
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

struct Writer<'a> {
    plan: &'a ServicePortPlan,
    node: &'a NodePlan,
    /// `namespace/name:port`.
    name: String,
    words: Words<'a>,
}

impl Writer<'_> {
    /// The rule for a frontend without endpoints; `None` if it has some.
    fn refusal(&self, verdict: Verdict, matching: impl FnOnce(Rule) -> Rule) -> Option<Rule> {
        let commented = |why: &str| matching(Rule::commented(format!("{} {why}", self.name)));
        match verdict {
            Verdict::Deliver(_) => None,
            Verdict::Reject => Some(commented(self.words.refused).reject(self.node.family)),
            Verdict::Drop => Some(commented("has no local endpoints").target(Target::Drop)),
        }
    }

    /// A source that nat has not let through to a load-balancer IP is dropped. Without endpoints, allowed sources too must
    /// meet the refusal and not the firewall.
    fn firewall(&self, external: &ExternalFrontends) -> Vec<Rule> {
        if external.allowed_sources.is_none() || !external.delivers() {
            return Vec::new();
        }
        let drop = |address: &IpAddr| {
            let comment = format!("{} traffic not accepted by {}", self.name, self.words.accepting);
            let rule = Rule::commented(comment).destination(*address);
            rule.port(self.plan.protocol(), self.plan.port).target(Target::Drop)
        };
        external.load_balancer_ips.iter().map(drop).collect()
    }

    fn refused_external(&self, external: &ExternalFrontends) -> Vec<Rule> {
        let (protocol, port, verdict) = (self.plan.protocol(), self.plan.port, external.action.verdict);
        let addresses = external.external_ips.iter().chain(&external.load_balancer_ips);
        let mut lines: Vec<Rule> = addresses
            .filter_map(|address| self.refusal(verdict, |rule| rule.destination(*address).port(protocol, port)))
            .collect();
        if let Some(node_port) = external.node_port {
            // On addresses that accept no node ports another program may listen on this one.
            let refusal = |scope: Scope| self.refusal(verdict, |rule| scope.of_any(rule).port(protocol, node_port));
            lines.extend(Scope::all(self.node).into_iter().filter_map(refusal));
        }
        lines
    }

    fn health_check(&self) -> Option<Rule> {
        let check = self.plan.health_check.as_ref()?;
        let rule = Rule::commented(format!("{} health check node port", self.name));
        Some(rule.port(Protocol::Tcp, check.port).target(Target::Accept))
    }
}
