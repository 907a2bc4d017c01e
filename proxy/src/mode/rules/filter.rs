//! What one service port contributes to the filter table in every mode whose nat rules leave refused packets as they were:
//! who is refused, who is dropped, and the health check that is let in.

use std::net::IpAddr;

use super::names;
use super::node_ports::Scope;
use crate::model::Protocol;
use crate::plan::{ExternalFrontends, NodePlan, ServicePortPlan, Verdict};
use crate::ruleset::Table;
use crate::ruleset::{Rule, Target};

/// The chains that these lines are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterChain {
    /// `KUBE-SERVICES`.
    RefusedInternal,
    /// `KUBE-EXTERNAL-SERVICES`.
    RefusedExternal,
    /// `KUBE-PROXY-FIREWALL`.
    Firewall,
    /// `KUBE-NODEPORTS`.
    HealthChecks,
}

impl FilterChain {
    /// Its table and name.
    pub fn place(self) -> (Table, &'static str) {
        let name = match self {
            FilterChain::RefusedInternal => names::SERVICES,
            FilterChain::RefusedExternal => names::EXTERNAL_SERVICES,
            FilterChain::Firewall => names::PROXY_FIREWALL,
            FilterChain::HealthChecks => names::NODE_PORTS,
        };
        (Table::Filter, name)
    }

    /// What a service port contributes to it.
    pub fn lines(self, lines: &FilterLines) -> &[Rule] {
        match self {
            FilterChain::RefusedInternal => &lines.refused_internal,
            FilterChain::RefusedExternal => &lines.refused_external,
            FilterChain::Firewall => &lines.firewall,
            FilterChain::HealthChecks => &lines.health_check,
        }
    }
}

/// One service port's lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterLines {
    /// In `KUBE-SERVICES`.
    pub refused_internal: Vec<Rule>,
    /// In `KUBE-EXTERNAL-SERVICES`.
    pub refused_external: Vec<Rule>,
    /// In `KUBE-PROXY-FIREWALL`.
    pub firewall: Vec<Rule>,
    /// In `KUBE-NODEPORTS`.
    pub health_check: Vec<Rule>,
}

/// What differs from mode to mode: words of comments.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    /// Why packets are refused.
    pub refused: &'a str,
    /// The chain of nat that accepts allowed sources of load-balancer IPs.
    pub accepting: &'a str,
}

impl<'a> Words<'a> {
    /// Nobody can answer.
    pub fn no_endpoints(accepting: &'a str) -> Words<'a> {
        Words { refused: "has no endpoints", accepting }
    }
}

/// Writes down one service port.
pub fn render(plan: &ServicePortPlan, node: &NodePlan, words: Words<'_>) -> FilterLines {
    let writer = Writer { plan, node, name: plan.name.to_string(), words };
    let refused_internal = plan.internal.and_then(|internal| {
        let to_cluster_ip = |rule: Rule| rule.destination(internal.address).port(plan.protocol(), plan.port);
        writer.refusal(internal.action.verdict, to_cluster_ip)
    });
    let mut lines = FilterLines {
        refused_internal: refused_internal.into_iter().collect(),
        health_check: writer.health_check(),
        ..FilterLines::default()
    };
    if let Some(external) = &plan.external {
        lines.firewall = writer.firewall(external);
        lines.refused_external = writer.refused_external(external);
    }
    lines
}

struct Writer<'a> {
    plan: &'a ServicePortPlan,
    node: &'a NodePlan,
    /// `namespace/name:port`.
    name: String,
    words: Words<'a>,
}

impl Writer<'_> {
    /// The rule for a frontend that nobody answers, or `None` if somebody does.
    fn refusal(&self, verdict: Verdict, matching: impl FnOnce(Rule) -> Rule) -> Option<Rule> {
        let commented = |why: &str| matching(Rule::commented(format!("{} {why}", self.name)));
        match verdict {
            Verdict::Deliver(_) => None,
            Verdict::Reject => Some(commented(self.words.refused).reject(self.node.family)),
            Verdict::Drop => Some(commented("has no local endpoints").target(Target::Drop)),
        }
    }

    /// Whoever nat has not let through to a load-balancer IP is dropped. With nobody to answer, allowed sources too must
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
            // On addresses that accept no node ports somebody else may listen on this one.
            let refusal = |scope: Scope| self.refusal(verdict, |rule| scope.of_any(rule).port(protocol, node_port));
            lines.extend(Scope::all(self.node).into_iter().filter_map(refusal));
        }
        lines
    }

    fn health_check(&self) -> Vec<Rule> {
        let Some(check) = &self.plan.health_check else { return Vec::new() };
        let rule = Rule::commented(format!("{} health check node port", self.name));
        vec![rule.port(Protocol::Tcp, check.port).target(Target::Accept)]
    }
}
