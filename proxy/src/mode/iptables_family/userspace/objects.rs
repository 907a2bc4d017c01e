//! One service port's rules, with upstream's published text. The relay connects from the node's address, so nothing is
//! masqueraded, and pods can connect to themselves.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::ports::AssignedPorts;
use super::sets;
use crate::mode::iptables_family::engine::render::{ChainId, ServiceRules};
use crate::mode::iptables_family::rules::filter::{self, FilterComments};
use crate::mode::iptables_family::rules::matching::from_pods;
use crate::mode::iptables_family::rules::names;
use crate::mode::iptables_family::rules::node_ports::NodePortMatch;
use crate::model::Protocol;
use crate::plan::{
    AllowedSources, BackendSet, ExternalFrontends, FrontendAction, FrontendVerdict, NodePlan, PodSource,
    ServicePortPlan,
};
use crate::ruleset::{ConnectionStates, Rule, RuleTarget, Table};

/// The end of the comment of the rule that accepts packets for local backends.
pub const ON_THIS_NODE: &str = " on this node";

pub const PORTALS_CONTAINER: ChainId = (Table::Nat, names::PORTALS_CONTAINER);
pub const PORTALS_HOST: ChainId = (Table::Nat, names::PORTALS_HOST);
pub const NODE_PORT_CONTAINER: ChainId = (Table::Nat, names::NODEPORT_CONTAINER);
pub const NODE_PORT_HOST: ChainId = (Table::Nat, names::NODEPORT_HOST);
pub const LISTENERS: ChainId = (Table::Filter, names::NODEPORT_NON_LOCAL);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserspaceContext {
    pub node: NodePlan,
    pub host: IpAddr,
    /// Redirects other machines' packets to their input interface's address, instead of translation to `host`: the
    /// kernel drops redirected packets on interfaces without addresses.
    pub redirect: bool,
}

/// Renders the plan of [`super::served`]. Refuses if a listener has no port.
pub fn render(mut plan: ServicePortPlan, ports: AssignedPorts, context: &UserspaceContext) -> ServiceRules {
    let mut words = FilterComments::no_endpoints(names::PORTALS_CONTAINER);
    if plan.protocol() == Protocol::Sctp {
        words.refused = "is SCTP, which is not relayed in userspace mode";
    } else if sets(&plan).into_iter().any(|set| ports.get(set).is_none()) {
        words.refused = "has no listening port";
        refuse(&mut plan);
    }
    let mut writer = RelayRuleRenderer { plan: &plan, ports, context, out: ServiceRules::default() };
    filter::render(&plan, &context.node, words, &mut writer.out);
    if let Some(internal) = &plan.internal {
        writer.address(internal.address, internal.action, internal.action);
    }
    if let Some(external) = &plan.external {
        writer.external(external);
    }
    writer.listeners();
    writer.out
}

fn refuse(plan: &mut ServicePortPlan) {
    if let Some(internal) = &mut plan.internal {
        internal.action.verdict = FrontendVerdict::Reject;
    }
    if let Some(external) = &mut plan.external {
        external.action.verdict = FrontendVerdict::Reject;
        external.short_circuit = None;
    }
}

struct RelayRuleRenderer<'a> {
    plan: &'a ServicePortPlan,
    ports: AssignedPorts,
    context: &'a UserspaceContext,
    out: ServiceRules,
}

impl RelayRuleRenderer<'_> {
    /// Returns a rule with the comment `namespace/name:port`. As in upstream, an unnamed port keeps the colon.
    fn commented(&self) -> Rule {
        Rule::commented(format!("{}:{}", self.plan.name.service, self.plan.name.port))
    }

    fn port_of(&self, action: FrontendAction) -> Option<u16> {
        match action.verdict {
            FrontendVerdict::Deliver(set) => self.ports.get(set),
            FrontendVerdict::Reject | FrontendVerdict::Drop => None,
        }
    }

    fn redirect(&self, port: u16) -> RuleTarget {
        if self.context.redirect { RuleTarget::Redirect(port) } else { self.dnat(port) }
    }

    fn dnat(&self, port: u16) -> RuleTarget {
        RuleTarget::Dnat(SocketAddr::new(self.context.host, port))
    }

    fn address(&mut self, address: IpAddr, container: FrontendAction, host: FrontendAction) {
        let rule = || self.commented().destination(address).port(self.plan.protocol(), self.plan.port);
        let origins_elsewhere = self.port_of(container).map(|port| rule().target(self.redirect(port)));
        let from_node = self.port_of(host).map(|port| rule().target(self.dnat(port)));
        self.out.add(PORTALS_CONTAINER, origins_elsewhere);
        self.out.add(PORTALS_HOST, from_node);
    }

    fn external(&mut self, external: &ExternalFrontends) {
        for address in &external.external_ips {
            self.external_address(*address, external, external.annotated_sources.as_deref(), &external.external_ips);
        }
        for address in &external.load_balancer_ips {
            self.external_address(*address, external, external.allowed_sources.as_deref(), &external.load_balancer_ips);
        }
        if let Some(port) = external.node_port {
            for scope in NodePortMatch::all(&self.context.node) {
                self.node_port(port, external, scope);
            }
        }
    }

    /// `own` are the restricted addresses.
    fn external_address(
        &mut self,
        address: IpAddr,
        external: &ExternalFrontends,
        allowed: Option<&AllowedSources>,
        own: &[IpAddr],
    ) {
        let rule = || self.commented().destination(address).port(self.plan.protocol(), self.plan.port);
        let mut container = Vec::new();
        for (from, action) in self.origins_elsewhere(external) {
            let Some(port) = self.port_of(action) else { continue };
            let matching = restricted(from, allowed).into_iter();
            container.extend(matching.map(|from| from.apply(rule()).target(self.redirect(port))));
        }
        let mut host = Vec::new();
        if let Some(port) = self.port_of(external.of_node()) {
            let mut from = restricted(SourceMatch::default(), allowed);
            if allowed.is_some_and(|allowed| allowed.own_addresses) {
                from.extend(own.iter().map(|own| SourceMatch::range(IpNet::from(*own))));
            }
            host.extend(from.into_iter().map(|from| from.apply(rule()).target(self.dnat(port))));
        }
        self.out.add(PORTALS_CONTAINER, container);
        self.out.add(PORTALS_HOST, host);
    }

    fn node_port(&mut self, node_port: u16, external: &ExternalFrontends, scope: NodePortMatch) {
        // Only packets to the node's own addresses jump to these chains.
        let rule = || scope.of_local(self.commented()).port(self.plan.protocol(), node_port);
        let allowed = external.annotated_sources.as_deref();
        let mut container = Vec::new();
        for (from, action) in self.origins_elsewhere(external) {
            let Some(port) = self.port_of(action) else { continue };
            let matching = restricted(from, allowed).into_iter();
            container.extend(matching.map(|from| from.apply(rule()).target(self.redirect(port))));
        }
        let from_node = restricted(SourceMatch::default(), allowed);
        let port = self.port_of(external.of_node());
        let host: Vec<Rule> =
            from_node.into_iter().filter_map(|from| Some(from.apply(rule()).target(self.dnat(port?)))).collect();
        self.out.add(NODE_PORT_CONTAINER, container);
        self.out.add(NODE_PORT_HOST, host);
    }

    /// Returns sources with actions, pods first.
    fn origins_elsewhere(&self, external: &ExternalFrontends) -> Vec<(SourceMatch, FrontendAction)> {
        let pods = external.short_circuit.zip(self.context.node.pods.clone());
        let pods = pods.map(|(short, pods)| (SourceMatch { pods: Some(pods), range: None }, short.pods));
        pods.into_iter().chain([(SourceMatch::default(), external.action)]).collect()
    }

    /// Accepts redirected packets, whatever the node's other input rules. Direct connections would bypass source
    /// ranges.
    fn listeners(&mut self) {
        for set in sets(self.plan) {
            let Some(port) = self.ports.get(set) else { continue };
            let rule =
                |what: &str| Rule::commented(format!("{}:{}{what}", self.plan.name.service, self.plan.name.port));
            let of_set = match set {
                BackendSet::Cluster => "",
                BackendSet::Local => ON_THIS_NODE,
            };
            let referenced = rule(of_set)
                .conntrack(ConnectionStates::DNAT)
                .port(self.plan.protocol(), port)
                .target(RuleTarget::Accept);
            let others = rule(" is reached by way of its service only");
            let others = others.port(self.plan.protocol(), port).reject(self.context.node.family);
            self.out.add(LISTENERS, [referenced, others]);
        }
    }
}

#[derive(Debug, Clone, Default)]
struct SourceMatch {
    pods: Option<PodSource>,
    range: Option<IpNet>,
}

impl SourceMatch {
    fn range(range: IpNet) -> SourceMatch {
        SourceMatch { pods: None, range: Some(range) }
    }

    fn apply(self, rule: Rule) -> Rule {
        let rule = self.pods.iter().fold(rule, |rule, pods| from_pods(rule, pods, false));
        // iptables-save omits `-s 0.0.0.0/0`.
        self.range.into_iter().filter(|range| range.prefix_len() > 0).fold(rule, Rule::source)
    }

    fn within(&self, range: IpNet) -> Option<SourceMatch> {
        match &self.pods {
            Some(PodSource::Range(pods)) if range.contains(pods) => Some(self.clone()),
            Some(PodSource::Range(pods)) if pods.contains(&range) => Some(SourceMatch::range(range)),
            Some(PodSource::Range(_)) => None,
            Some(_) | None => Some(SourceMatch { pods: self.pods.clone(), range: Some(range) }),
        }
    }
}

fn restricted(from: SourceMatch, allowed: Option<&AllowedSources>) -> Vec<SourceMatch> {
    match allowed {
        None => vec![from],
        Some(allowed) => allowed.ranges.iter().filter_map(|range| from.within(*range)).collect(),
    }
}
