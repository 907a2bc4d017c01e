//! What one service port contributes to the tables: lines in shared chains, spelled as they were published.
//!
//! The nat rules of this mode translate the destination only; the client's address ends at the relay, whose own connection
//! has the node's. So there is nothing to masquerade, and a pod may be led back to itself.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::ports::Assigned;
use super::sets;
use crate::mode::iptables_family::engine::render::{Place, ServiceRules};
use crate::mode::iptables_family::rules::filter::{self, Words};
use crate::mode::iptables_family::rules::matching::from_pods;
use crate::mode::iptables_family::rules::names;
use crate::mode::iptables_family::rules::node_ports::Scope;
use crate::model::Protocol;
use crate::plan::{BackendSet, ExternalFrontends, FrontendAction, NodePlan, PodSource, ServicePortPlan, Verdict};
use crate::ruleset::{ConnectionStates, Rule, Table, Target};

/// Ends the comment of the rule that lets in who is led to backends on this node only.
pub const ON_THIS_NODE: &str = " on this node";

/// What comes from elsewhere to cluster, external and load-balancer IPs.
pub const PORTALS_CONTAINER: Place = (Table::Nat, names::PORTALS_CONTAINER);
/// What the node itself sends there.
pub const PORTALS_HOST: Place = (Table::Nat, names::PORTALS_HOST);
/// What comes from elsewhere to node ports.
pub const NODE_PORT_CONTAINER: Place = (Table::Nat, names::NODEPORT_CONTAINER);
/// What the node itself sends there.
pub const NODE_PORT_HOST: Place = (Table::Nat, names::NODEPORT_HOST);
/// What reaches the relays' listening ports.
pub const LISTENERS: Place = (Table::Filter, names::NODEPORT_NON_LOCAL);

/// What a service port's lines depend on besides its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeContext {
    /// The node.
    pub node: NodePlan,
    /// The address of the node that its own traffic is led to.
    pub host: IpAddr,
    /// What comes from elsewhere is led to the address of the interface that it came in by. Otherwise to `host`, too: where
    /// an interface has no address the kernel would drop it.
    pub redirect: bool,
}

/// Writes down one service port, as it is [`super::served`], whose listeners have these ports. One whose listener has none, because no port could be had,
/// refuses.
pub fn render(mut plan: ServicePortPlan, ports: Assigned, around: &NodeContext) -> ServiceRules {
    let mut words = Words::no_endpoints(names::PORTALS_CONTAINER);
    if plan.protocol() == Protocol::Sctp {
        words.refused = "is SCTP, which is not relayed in userspace mode";
    } else if sets(&plan).into_iter().any(|set| ports.get(set).is_none()) {
        words.refused = "has no listening port";
        refuse(&mut plan);
    }
    let mut writer = Writer { plan: &plan, ports, around, out: ServiceRules::default() };
    filter::render(&plan, &around.node, words, &mut writer.out);
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
        internal.action.verdict = Verdict::Reject;
    }
    if let Some(external) = &mut plan.external {
        external.action.verdict = Verdict::Reject;
        external.short_circuit = None;
    }
}

struct Writer<'a> {
    plan: &'a ServicePortPlan,
    ports: Assigned,
    around: &'a NodeContext,
    out: ServiceRules,
}

impl Writer<'_> {
    /// `namespace/name:port`; the published rules keep the colon of an unnamed port.
    fn commented(&self) -> Rule {
        Rule::commented(format!("{}:{}", self.plan.name.service, self.plan.name.port))
    }

    fn port_of(&self, action: FrontendAction) -> Option<u16> {
        match action.verdict {
            Verdict::Deliver(set) => self.ports.get(set),
            Verdict::Reject | Verdict::Drop => None,
        }
    }

    fn redirect(&self, port: u16) -> Target {
        if self.around.redirect { Target::Redirect(port) } else { self.dnat(port) }
    }

    fn dnat(&self, port: u16) -> Target {
        Target::Dnat(SocketAddr::new(self.around.host, port))
    }

    /// All traffic to an address, from elsewhere and from the node itself.
    fn address(&mut self, address: IpAddr, container: FrontendAction, host: FrontendAction) {
        let rule = || self.commented().destination(address).port(self.plan.protocol(), self.plan.port);
        let origins_elsewhere = self.port_of(container).map(|port| rule().target(self.redirect(port)));
        let from_node = self.port_of(host).map(|port| rule().target(self.dnat(port)));
        self.out.add(PORTALS_CONTAINER, origins_elsewhere);
        self.out.add(PORTALS_HOST, from_node);
    }

    fn external(&mut self, external: &ExternalFrontends) {
        for address in &external.external_ips {
            self.external_address(*address, external, None);
        }
        for address in &external.load_balancer_ips {
            self.external_address(
                *address,
                external,
                external.allowed_sources.as_ref().map(|allowed| &allowed.ranges[..]),
            );
        }
        if let Some(port) = external.node_port {
            for scope in Scope::all(&self.around.node) {
                self.node_port(port, external, scope);
            }
        }
    }

    fn external_address(&mut self, address: IpAddr, external: &ExternalFrontends, allowed: Option<&[IpNet]>) {
        let rule = || self.commented().destination(address).port(self.plan.protocol(), self.plan.port);
        let mut container = Vec::new();
        for (from, action) in self.origins_elsewhere(external) {
            let Some(port) = self.port_of(action) else { continue };
            let matching = restricted(from, allowed).into_iter();
            container.extend(matching.map(|from| from.apply(rule()).target(self.redirect(port))));
        }
        let mut host = Vec::new();
        if let Some(port) = self.port_of(external.of_node()) {
            let mut from = restricted(From::default(), allowed);
            if external.allowed_sources.as_ref().is_some_and(|allowed| allowed.load_balancer_ips) && allowed.is_some() {
                from.extend(external.load_balancer_ips.iter().map(|own| From::range(IpNet::from(*own))));
            }
            host.extend(from.into_iter().map(|from| from.apply(rule()).target(self.dnat(port))));
        }
        self.out.add(PORTALS_CONTAINER, container);
        self.out.add(PORTALS_HOST, host);
    }

    fn node_port(&mut self, node_port: u16, external: &ExternalFrontends, scope: Scope) {
        // Jumps lead here what goes to the node's own addresses.
        let rule = || scope.of_local(self.commented()).port(self.plan.protocol(), node_port);
        let mut container = Vec::new();
        for (from, action) in self.origins_elsewhere(external) {
            let line = self.port_of(action).map(|port| from.apply(rule()).target(self.redirect(port)));
            container.extend(line);
        }
        let host = self.port_of(external.of_node()).map(|port| rule().target(self.dnat(port)));
        self.out.add(NODE_PORT_CONTAINER, container);
        self.out.add(NODE_PORT_HOST, host);
    }

    /// What happens to sources from elsewhere: pods first, then all.
    fn origins_elsewhere(&self, external: &ExternalFrontends) -> Vec<(From, FrontendAction)> {
        let pods = external.short_circuit.zip(self.around.node.pods.clone());
        let pods = pods.map(|(short, pods)| (From { pods: Some(pods), range: None }, short.pods));
        pods.into_iter().chain([(From::default(), external.action)]).collect()
    }

    /// What was led to a listening port is let in, whatever the node's own rules for incoming traffic say; there is no
    /// other way to it, past the source ranges.
    fn listeners(&mut self) {
        for set in sets(self.plan) {
            let Some(port) = self.ports.get(set) else { continue };
            let rule =
                |what: &str| Rule::commented(format!("{}:{}{what}", self.plan.name.service, self.plan.name.port));
            let of_set = match set {
                BackendSet::Cluster => "",
                BackendSet::Local => ON_THIS_NODE,
            };
            let led =
                rule(of_set).conntrack(ConnectionStates::DNAT).port(self.plan.protocol(), port).target(Target::Accept);
            let others = rule(" is reached by way of its service only");
            let others = others.port(self.plan.protocol(), port).reject(self.around.node.family);
            self.out.add(LISTENERS, [led, others]);
        }
    }
}

/// Where a packet comes from.
#[derive(Debug, Clone, Default)]
struct From {
    pods: Option<PodSource>,
    range: Option<IpNet>,
}

impl From {
    fn range(range: IpNet) -> From {
        From { pods: None, range: Some(range) }
    }

    fn apply(self, rule: Rule) -> Rule {
        let rule = self.pods.iter().fold(rule, |rule, pods| from_pods(rule, pods, false));
        // `-s 0.0.0.0/0` is every source, which iptables-save prints as no match at all.
        self.range.into_iter().filter(|range| range.prefix_len() > 0).fold(rule, Rule::source)
    }

    /// The part of it that lies in a range.
    fn within(&self, range: IpNet) -> Option<From> {
        match &self.pods {
            Some(PodSource::Range(pods)) if range.contains(pods) => Some(self.clone()),
            Some(PodSource::Range(pods)) if pods.contains(&range) => Some(From::range(range)),
            Some(PodSource::Range(_)) => None,
            Some(_) | None => Some(From { pods: self.pods.clone(), range: Some(range) }),
        }
    }
}

/// The parts of `from` that lie in allowed ranges.
fn restricted(from: From, allowed: Option<&[IpNet]>) -> Vec<From> {
    match allowed {
        None => vec![from],
        Some(ranges) => ranges.iter().filter_map(|range| from.within(*range)).collect(),
    }
}
