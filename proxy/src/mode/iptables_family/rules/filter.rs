//! One service port's filter rules, for modes whose nat rules do not translate refused packets.

use std::net::{IpAddr, SocketAddr};

use super::names;
use super::node_ports::NodePortMatch;
use crate::mode::iptables_family::engine::render::{ChainId, ServiceRules, SharedRule};
use crate::model::{FlowFate, Protocol, ServiceAnnotation, ServicePortName};
use crate::plan::{ExternalFrontends, FrontendVerdict, NodePlan, ServicePortPlan};
use crate::ruleset::{ConnectionStates, Rule, RuleTarget, Table};

const REFUSED_INTERNAL: ChainId = (Table::Filter, names::SERVICES);
const REFUSED_EXTERNAL: ChainId = (Table::Filter, names::EXTERNAL_SERVICES);
const FIREWALL: ChainId = (Table::Filter, names::PROXY_FIREWALL);
const HEALTH_CHECKS: ChainId = (Table::Filter, names::NODE_PORTS);

/// The end of the comment of rules that reset open connections. The counters of refused packets leave them out.
const OPEN_CONNECTIONS: &str = "resets open connections";

pub const CHAINS: [ChainId; 4] = [REFUSED_INTERNAL, REFUSED_EXTERNAL, FIREWALL, HEALTH_CHECKS];

#[derive(Debug, Clone, Copy)]
pub struct FilterComments<'a> {
    pub refused: &'a str,
    /// The nat chain that accepts allowed sources of load-balancer IPs.
    pub accepting: &'a str,
    /// Whether a frontend without endpoints resets open connections if the Service's [flow fate](FlowFate) asks for it.
    pub resets: bool,
}

impl<'a> FilterComments<'a> {
    pub fn no_endpoints(accepting: &'a str) -> FilterComments<'a> {
        FilterComments { refused: "has no endpoints", accepting, resets: false }
    }
}

pub fn render(plan: &ServicePortPlan, node: &NodePlan, words: FilterComments<'_>, out: &mut ServiceRules) {
    let writer = FilterRenderer { plan, node, name: plan.name.to_string(), words };
    if let Some(internal) = &plan.internal {
        out.add(
            REFUSED_INTERNAL,
            writer.refusal(internal.action.verdict, |rule| rule.destination(internal.address), plan.port),
        );
    }
    if let Some(external) = &plan.external {
        out.add(REFUSED_EXTERNAL, writer.refused_external(external));
        out.add(FIREWALL, writer.firewall(external));
    }
    out.add(HEALTH_CHECKS, writer.health_check());
}

/// Resets open connections to an address that the service port has lost.
pub fn lost_frontend(name: &ServicePortName, address: SocketAddr) -> SharedRule {
    let rule = Rule::commented(format!("{name} {OPEN_CONNECTIONS}")).destination(address.ip());
    SharedRule { id: REFUSED_INTERNAL, rule: rule.open_port(address.port()).target(RuleTarget::Reset) }
}

struct FilterRenderer<'a> {
    plan: &'a ServicePortPlan,
    node: &'a NodePlan,
    /// `namespace/name:port`.
    name: String,
    words: FilterComments<'a>,
}

impl FilterRenderer<'_> {
    /// Refuses packets to a port. Conntrack takes the next packet of a connection whose entry was deleted for the first
    /// of a new one (`nf_conntrack_tcp_loose`), so it passes these chains; ICMP would not end the connection.
    fn refusal(&self, verdict: FrontendVerdict, matching: impl Fn(Rule) -> Rule, port: u16) -> Vec<Rule> {
        let commented = |why: &str| matching(Rule::commented(format!("{} {why}", self.name)));
        let refused = |why: &str| commented(why).port(self.plan.protocol(), port);
        let rule = match verdict {
            FrontendVerdict::Deliver(_) => return Vec::new(),
            FrontendVerdict::Reject => refused(self.words.refused).reject(self.node.family),
            FrontendVerdict::Drop => refused("has no local endpoints").target(RuleTarget::Drop),
        };
        let resets = self.words.resets && self.plan.flow_fate != FlowFate::Keep;
        let reset = resets.then(|| commented(OPEN_CONNECTIONS).open_port(port).target(RuleTarget::Reset));
        reset.into_iter().chain([rule]).collect()
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
        let (port, verdict) = (self.plan.port, external.action.verdict);
        let addresses = external.external_ips.iter().chain(&external.load_balancer_ips);
        let mut lines: Vec<Rule> =
            addresses.flat_map(|address| self.refusal(verdict, |rule| rule.destination(*address), port)).collect();
        if let Some(node_port) = external.node_port {
            // Another program may listen on the node's other addresses.
            let refusal = |scope: NodePortMatch| self.refusal(verdict, |rule| scope.of_any(rule), node_port);
            lines.extend(NodePortMatch::all(self.node).into_iter().flat_map(refusal));
        }
        lines
    }

    fn health_check(&self) -> Option<Rule> {
        let check = self.plan.health_check.as_ref()?;
        let rule = Rule::commented(format!("{} health check node port", self.name));
        Some(rule.port(Protocol::Tcp, check.port).target(RuleTarget::Accept))
    }
}
