//! Rules that match IP sets, independent of services.

use std::net::IpAddr;

use super::sets::SetId;
use crate::mode::iptables_family::engine::render::FixedChain;
use crate::mode::iptables_family::rules::common;
use crate::mode::iptables_family::rules::matching::from_pods;
use crate::mode::iptables_family::rules::names;
use crate::model::Protocol;
use crate::plan::{Masquerade, NodePlan, NodePortScope};
use crate::ruleset::{ConnectionStates, Rule, RuleTarget, SetDirection, Table};

const TO: &[SetDirection] = &[SetDirection::Destination, SetDirection::Destination];
const TO_AND_FROM: &[SetDirection] = &[SetDirection::Destination, SetDirection::Destination, SetDirection::Source];
const PORT: &[SetDirection] = &[SetDirection::Destination];
const FROM_TO: &[SetDirection] = &[SetDirection::Source, SetDirection::Destination];

pub fn fixed(node: &NodePlan, random_fully: bool) -> Vec<FixedChain> {
    let rules = IpvsRules { node };
    let mut chains: Vec<FixedChain> = common::canaries().collect();
    let mut postrouting = rules.hairpin(random_fully);
    postrouting.extend(common::masquerade_marked(node, random_fully));
    chains.extend([
        FixedChain::new(Table::Nat, names::POSTROUTING, postrouting),
        FixedChain::new(Table::Nat, names::SERVICES, rules.services()),
        FixedChain::new(Table::Nat, names::LOAD_BALANCER, rules.load_balancer()),
        FixedChain::new(Table::Nat, names::NODE_PORT, rules.node_port()),
        common::mark_masq(node),
        // IPVS translates packets whatever their conntrack state: none is forwarded untranslated.
        common::forward(node, false),
        FixedChain::new(Table::Filter, names::NODE_PORT, rules.health_checks()),
        FixedChain::new(Table::Filter, names::PROXY_FIREWALL, rules.firewall()),
        FixedChain::new(Table::Filter, names::SOURCE_RANGES_FIREWALL, rules.source_ranges()),
        FixedChain::new(Table::Filter, names::IPVS_FILTER, rules.host_listeners()),
        FixedChain::new(Table::Mangle, names::IPVS_OUT_FILTER, rules.own_traffic()),
    ]);
    chains
}

struct IpvsRules<'a> {
    node: &'a NodePlan,
}

impl IpvsRules<'_> {
    fn commented(&self, set: SetId, direction: &'static [SetDirection]) -> Rule {
        Rule::commented(set.comment()).in_set(&set.name(self.node.family), direction, false)
    }

    fn plain(&self, set: SetId, direction: &'static [SetDirection]) -> Rule {
        Rule::new().in_set(&set.name(self.node.family), direction, false)
    }

    /// A pod that connects to itself must see the node as the client.
    fn hairpin(&self, random_fully: bool) -> Vec<Rule> {
        let rule = self.commented(SetId::LoopBack, TO_AND_FROM);
        vec![rule.target(common::masquerade(self.node, random_fully))]
    }

    fn services(&self) -> Vec<Rule> {
        let mut rules = vec![Rule::new().source_loopback(self.node.family).target(RuleTarget::Return)];
        rules.push(self.commented(SetId::LoadBalancer, TO).jump(names::LOAD_BALANCER));
        rules.extend(self.cluster_ip());
        rules.push(self.commented(SetId::ExternalIp, TO).jump(names::MARK_MASQ));
        rules.push(self.commented(SetId::ExternalIpLocal, TO).from_local_address().jump(names::MARK_MASQ));
        for set in [SetId::ClusterIp, SetId::LoadBalancer, SetId::ExternalIp, SetId::ExternalIpLocal] {
            rules.push(self.plain(set, TO).target(RuleTarget::Accept));
        }
        // These rules are last: a cluster IP's port is no node port, even with the same number.
        match &self.node.node_ports {
            NodePortScope::EveryLocalAddress { .. } => {
                rules.push(Rule::new().to_local_address().jump(names::NODE_PORT));
            }
            // Only these addresses of the node have node ports.
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
            // The node's own connections have the cluster IP as their source, because `kube-ipvs0` has that address.
            (Masquerade::NotPods, None) | (Masquerade::Never, _) => {
                Some(self.commented(SetId::ClusterIp, FROM_TO).jump(names::MARK_MASQ))
            }
        }
    }

    /// Masquerades the node's own connections, whose source may be the frontend itself.
    fn load_balancer(&self) -> Vec<Rule> {
        vec![
            self.commented(SetId::LoadBalancerLocal, TO).from_local_address().jump(names::MARK_MASQ),
            self.commented(SetId::LoadBalancerLocal, TO).target(RuleTarget::Return),
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
            rules.push(rule(local).target(RuleTarget::Return));
            rules.push(rule(all).jump(names::MARK_MASQ));
        }
        rules
    }

    fn health_checks(&self) -> Vec<Rule> {
        vec![self.commented(SetId::HealthCheckNodePort, PORT).protocol(Protocol::Tcp).target(RuleTarget::Accept)]
    }

    /// filter `KUBE-PROXY-FIREWALL`: drops disallowed sources before IPVS takes other machines' packets.
    fn firewall(&self) -> Vec<Rule> {
        let lost =
            self.commented(SetId::NoLocalEndpoints, TO).conntrack(ConnectionStates::NEW).not_from_local_address();
        let lost = match &self.node.pods {
            Some(pods) => from_pods(lost, pods, true),
            None => lost,
        };
        vec![
            self.commented(SetId::LoadBalancerFw, TO).jump(names::SOURCE_RANGES_FIREWALL),
            self.commented(SetId::ClusterIpNoLocalEndpoints, TO)
                .conntrack(ConnectionStates::NEW)
                .target(RuleTarget::Drop),
            lost.target(RuleTarget::Drop),
        ]
    }

    fn source_ranges(&self) -> Vec<Rule> {
        vec![
            self.commented(SetId::LoadBalancerSourceCidr, TO_AND_FROM).target(RuleTarget::Return),
            self.commented(SetId::LoadBalancerSourceIp, TO_AND_FROM).target(RuleTarget::Return),
            Rule::new().target(RuleTarget::Drop),
        ]
    }

    /// filter `KUBE-IPVS-FILTER`: keeps host programs that listen on every address from answering on service addresses
    /// (kubernetes/kubernetes#72236).
    fn host_listeners(&self) -> Vec<Rule> {
        let sets = [SetId::LoadBalancer, SetId::ClusterIp, SetId::ExternalIp, SetId::ExternalIpLocal];
        let mut rules: Vec<Rule> = sets.into_iter().map(|set| self.plain(set, TO).target(RuleTarget::Return)).collect();
        let checks = self.plain(SetId::HealthCheckNodePort, PORT).protocol(Protocol::Tcp);
        rules.push(checks.target(RuleTarget::Return));
        let name = SetId::IpvsIps.name(self.node.family);
        rules.push(Rule::new().conntrack(ConnectionStates::NEW).in_set(&name, PORT, false).reject(self.node.family));
        rules
    }

    /// mangle `KUBE-IPVS-OUT-FILTER`: drops the node's own packets before IPVS takes them.
    fn own_traffic(&self) -> Vec<Rule> {
        let name = |set: SetId| set.name(self.node.family);
        let restricted = self
            .commented(SetId::LoadBalancerFw, TO)
            .in_set(&name(SetId::LoadBalancerSourceCidr), TO_AND_FROM, true)
            .in_set(&name(SetId::LoadBalancerSourceIp), TO_AND_FROM, true);
        vec![
            restricted.target(RuleTarget::Drop),
            self.commented(SetId::ClusterIpNoLocalEndpoints, TO)
                .conntrack(ConnectionStates::NEW)
                .target(RuleTarget::Drop),
        ]
    }
}
