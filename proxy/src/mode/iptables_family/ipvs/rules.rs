//! The iptables rules: a handful, whatever the number of services. What they are about stands in the sets.

use std::net::IpAddr;

use super::sets::SetId;
use crate::mode::iptables_family::engine::render::FixedChain;
use crate::mode::iptables_family::rules::common;
use crate::mode::iptables_family::rules::matching::from_pods;
use crate::mode::iptables_family::rules::names;
use crate::model::Protocol;
use crate::plan::{Masquerade, NodePlan, NodePortScope};
use crate::ruleset::{ConnectionStates, Direction, Rule, Table, Target};

/// The packet goes to a member: address and port.
const TO: &[Direction] = &[Direction::Destination, Direction::Destination];
/// The packet goes to a member's address and port, and comes from its second address.
const TO_AND_FROM: &[Direction] = &[Direction::Destination, Direction::Destination, Direction::Source];
/// The packet goes to a member: a port alone.
const PORT: &[Direction] = &[Direction::Destination];
/// The packet comes from a member's address, and goes to its port.
const FROM_TO: &[Direction] = &[Direction::Source, Direction::Destination];

/// All of them: no rule of a service port is among them.
pub fn fixed(node: &NodePlan, random_fully: bool) -> Vec<FixedChain> {
    let rules = Rules { node };
    let mut chains: Vec<FixedChain> = common::canaries().collect();
    let mut postrouting = rules.hairpin(random_fully);
    postrouting.extend(common::masquerade_marked(node, random_fully));
    chains.extend([
        FixedChain::new(Table::Nat, names::POSTROUTING, postrouting),
        FixedChain::new(Table::Nat, names::SERVICES, rules.services()),
        FixedChain::new(Table::Nat, names::LOAD_BALANCER, rules.load_balancer()),
        FixedChain::new(Table::Nat, names::NODE_PORT, rules.node_port()),
        common::mark_masq(node),
        // IPVS translates what it knows, whatever conntrack thinks of it: nothing is forwarded untranslated.
        common::forward(node, false),
        FixedChain::new(Table::Filter, names::NODE_PORT, rules.health_checks()),
        FixedChain::new(Table::Filter, names::PROXY_FIREWALL, rules.firewall()),
        FixedChain::new(Table::Filter, names::SOURCE_RANGES_FIREWALL, rules.source_ranges()),
        FixedChain::new(Table::Filter, names::IPVS_FILTER, rules.host_listeners()),
        FixedChain::new(Table::Mangle, names::IPVS_OUT_FILTER, rules.own_traffic()),
    ]);
    chains
}

struct Rules<'a> {
    node: &'a NodePlan,
}

impl Rules<'_> {
    /// Packets that match a set, with the set's comment.
    fn commented(&self, set: SetId, direction: &'static [Direction]) -> Rule {
        Rule::commented(set.comment()).in_set(&set.name(self.node.family), direction, false)
    }

    fn plain(&self, set: SetId, direction: &'static [Direction]) -> Rule {
        Rule::new().in_set(&set.name(self.node.family), direction, false)
    }

    /// A pod that reaches itself must see its node as the client, or the reply would not come back this way.
    fn hairpin(&self, random_fully: bool) -> Vec<Rule> {
        let rule = self.commented(SetId::LoopBack, TO_AND_FROM);
        vec![rule.target(Target::Masquerade { random_fully })]
    }

    /// nat `KUBE-SERVICES`: who is masqueraded.
    fn services(&self) -> Vec<Rule> {
        let mut rules = vec![Rule::new().source_loopback(self.node.family).target(Target::Return)];
        rules.push(self.commented(SetId::LoadBalancer, TO).jump(names::LOAD_BALANCER));
        rules.extend(self.cluster_ip());
        rules.push(self.commented(SetId::ExternalIp, TO).jump(names::MARK_MASQ));
        rules.push(self.commented(SetId::ExternalIpLocal, TO).from_local_address().jump(names::MARK_MASQ));
        for set in [SetId::ClusterIp, SetId::LoadBalancer, SetId::ExternalIp, SetId::ExternalIpLocal] {
            rules.push(self.plain(set, TO).target(Target::Accept));
        }
        // After the addresses of services: a cluster IP's port is no node port, though it may have the same number.
        match &self.node.node_ports {
            NodePortScope::EveryLocalAddress { .. } => {
                rules.push(Rule::new().to_local_address().jump(names::NODE_PORT));
            }
            // What goes to the node's other addresses is no node port, whatever its number.
            NodePortScope::Addresses(addresses) => {
                let to = |address: &IpAddr| Rule::new().destination(*address).jump(names::NODE_PORT);
                rules.extend(addresses.iter().map(to));
            }
        }
        rules
    }

    fn cluster_ip(&self) -> Option<Rule> {
        let to = || self.commented(SetId::ClusterIp, TO);
        match (self.node.internal_masquerade, &self.node.pods) {
            (Masquerade::Always, _) => Some(to().jump(names::MARK_MASQ)),
            (Masquerade::NotPods, Some(pods)) => Some(from_pods(to(), pods, true).jump(names::MARK_MASQ)),
            // The node's own connection to a cluster IP has that very address, which is on its device, as source.
            (Masquerade::NotPods, None) | (Masquerade::Never, _) => {
                Some(self.commented(SetId::ClusterIp, FROM_TO).jump(names::MARK_MASQ))
            }
        }
    }

    /// Under policy Local the client's address stays, but for the node's own, which could be the frontend itself.
    fn load_balancer(&self) -> Vec<Rule> {
        vec![
            self.commented(SetId::LoadBalancerLocal, TO).from_local_address().jump(names::MARK_MASQ),
            self.commented(SetId::LoadBalancerLocal, TO).target(Target::Return),
            Rule::new().jump(names::MARK_MASQ),
        ]
    }

    fn node_port(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
            let direction = if protocol == Protocol::Sctp { TO } else { PORT };
            let (all, local) = SetId::node_ports(protocol);
            let rule = |set| self.commented(set, direction).protocol(protocol);
            rules.push(rule(local).from_local_address().jump(names::MARK_MASQ));
            rules.push(rule(local).target(Target::Return));
            rules.push(rule(all).jump(names::MARK_MASQ));
        }
        rules
    }

    fn health_checks(&self) -> Vec<Rule> {
        vec![self.commented(SetId::HealthCheckNodePort, PORT).protocol(Protocol::Tcp).target(Target::Accept)]
    }

    /// filter `KUBE-PROXY-FIREWALL`, before IPVS takes what comes from elsewhere.
    fn firewall(&self) -> Vec<Rule> {
        let lost =
            self.commented(SetId::NoLocalEndpoints, TO).conntrack(ConnectionStates::NEW).not_from_local_address();
        let lost = match &self.node.pods {
            Some(pods) => from_pods(lost, pods, true),
            None => lost,
        };
        vec![
            self.commented(SetId::LoadBalancerFw, TO).jump(names::SOURCE_RANGES_FIREWALL),
            self.commented(SetId::ClusterIpNoLocalEndpoints, TO).conntrack(ConnectionStates::NEW).target(Target::Drop),
            lost.target(Target::Drop),
        ]
    }

    fn source_ranges(&self) -> Vec<Rule> {
        vec![
            self.commented(SetId::LoadBalancerSourceCidr, TO_AND_FROM).target(Target::Return),
            self.commented(SetId::LoadBalancerSourceIp, TO_AND_FROM).target(Target::Return),
            Rule::new().target(Target::Drop),
        ]
    }

    /// filter `KUBE-IPVS-FILTER`: on service addresses only services answer, not who listens on every address of the host
    /// (kubernetes/kubernetes#72236).
    fn host_listeners(&self) -> Vec<Rule> {
        let sets = [SetId::LoadBalancer, SetId::ClusterIp, SetId::ExternalIp, SetId::ExternalIpLocal];
        let mut rules: Vec<Rule> = sets.into_iter().map(|set| self.plain(set, TO).target(Target::Return)).collect();
        let checks = self.plain(SetId::HealthCheckNodePort, PORT).protocol(Protocol::Tcp);
        rules.push(checks.target(Target::Return));
        let name = SetId::IpvsIps.name(self.node.family);
        rules.push(Rule::new().conntrack(ConnectionStates::NEW).in_set(&name, PORT, false).reject(self.node.family));
        rules
    }

    /// mangle `KUBE-IPVS-OUT-FILTER`: what is dropped of the node's own traffic, before IPVS takes it.
    fn own_traffic(&self) -> Vec<Rule> {
        let name = |set: SetId| set.name(self.node.family);
        let restricted = self
            .commented(SetId::LoadBalancerFw, TO)
            .in_set(&name(SetId::LoadBalancerSourceCidr), TO_AND_FROM, true)
            .in_set(&name(SetId::LoadBalancerSourceIp), TO_AND_FROM, true);
        vec![
            restricted.target(Target::Drop),
            self.commented(SetId::ClusterIpNoLocalEndpoints, TO).conntrack(ConnectionStates::NEW).target(Target::Drop),
        ]
    }
}
