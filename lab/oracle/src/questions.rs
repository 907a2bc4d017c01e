//! Generates questions: from every kind of source to every service address, and to addresses of no service.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::address::{self, Family};
use crate::arrival::{is_on_node_network, node_of};
use crate::cluster::ClusterModel;
use crate::question::{PacketSource, Protocol, Question};
use crate::service::{self, FrontendKind};
use crate::world::NodeMachine;

/// Host number of an address that no generated service has.
const UNUSED_ADDRESS: usize = 4000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct QuestionTarget {
    to: SocketAddr,
    protocol: Protocol,
}

impl ClusterModel {
    /// Returns the questions in a fixed order.
    pub fn questions(&self) -> Vec<Question> {
        let (mut questions, targets) = (Vec::new(), self.targets());
        for from in self.sources() {
            for target in &targets {
                let question = Question::new(from.clone(), target.to, target.protocol);
                if self.is_askable(&question) {
                    questions.push(question);
                }
            }
        }
        questions
    }

    fn sources(&self) -> Vec<PacketSource> {
        let world = &self.world;
        let nodes = || world.nodes.iter().map(|node| node.name.clone());
        let mut places: Vec<PacketSource> = world.pods.iter().map(|pod| PacketSource::Pod(pod.name.clone())).collect();
        places.extend(nodes().map(PacketSource::Node));
        places.extend(nodes().map(PacketSource::Loopback));
        for client in &world.clients {
            places.extend(nodes().map(|enters| PacketSource::Outside { client: client.name.clone(), enters }));
        }
        if !world.load_balancer.is_empty() {
            places.extend(nodes().map(|enters| PacketSource::LoadBalancer { enters }));
        }
        places
    }

    fn targets(&self) -> BTreeSet<QuestionTarget> {
        let mut targets = BTreeSet::new();
        for family in self.families() {
            for service in &self.objects.services {
                for port in service::ports(service, family) {
                    let (own, protocol) = (port.port, port.name.protocol);
                    for (kind, address) in port.addresses() {
                        targets.insert(QuestionTarget { to: SocketAddr::new(address, own), protocol });
                        if kind == FrontendKind::ClusterIp {
                            // Another port and another protocol, which no service uses.
                            targets.insert(QuestionTarget {
                                to: SocketAddr::new(address, own.wrapping_add(1000)),
                                protocol,
                            });
                            let other = if protocol == Protocol::Udp { Protocol::Tcp } else { Protocol::Udp };
                            targets.insert(QuestionTarget { to: SocketAddr::new(address, own), protocol: other });
                        }
                    }
                    let proxied = service::ingress(service, family, true);
                    targets.extend(
                        proxied
                            .into_iter()
                            .map(|address| QuestionTarget { to: SocketAddr::new(address, own), protocol }),
                    );
                    if let Some(node_port) = port.node_port {
                        let to = |address| QuestionTarget { to: SocketAddr::new(address, node_port), protocol };
                        targets.extend(self.node_addresses(family).into_iter().map(to));
                    }
                }
                let spec = service.spec.as_ref().filter(|_| service::unhandled_reason(service).is_some());
                let untouched = spec.and_then(|spec| service::cluster_ip(spec, family));
                targets.extend(
                    untouched
                        .map(|address| QuestionTarget { to: SocketAddr::new(address, 80), protocol: Protocol::Tcp }),
                );
            }
        }
        targets.extend(self.unused_cluster_ips());
        for (pod, ports) in self.listening_ports() {
            let addresses = self.world.pod(&pod).map(|pod| pod.addresses.clone()).unwrap_or_default();
            let first = ports.first();
            targets.extend(addresses.iter().zip(first).map(|(address, (protocol, port))| QuestionTarget {
                to: SocketAddr::new(*address, *port),
                protocol: *protocol,
            }));
        }
        targets
    }

    fn unused_cluster_ips(&self) -> impl Iterator<Item = QuestionTarget> {
        let ranges = self.objects.service_cidrs.iter().filter_map(|object| object.spec.as_ref()?.cidrs.as_ref());
        let ranges = ranges.flatten().filter_map(|range| address::parse_range(range));
        let last = ranges.flat_map(|range| range.hosts().nth(UNUSED_ADDRESS));
        last.flat_map(|address| {
            [Protocol::Tcp, Protocol::Udp].map(|protocol| QuestionTarget { to: SocketAddr::new(address, 80), protocol })
        })
    }

    fn node_addresses(&self, family: Family) -> Vec<IpAddr> {
        let loopback: IpAddr = match family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        self.world.nodes.iter().flat_map(|node| node.of_family(family)).chain([loopback]).collect()
    }

    /// Excludes loopback addresses of other machines, and hosts outside that enter at another node than the destination's,
    /// because the reply takes another path.
    fn is_askable(&self, question: &Question) -> bool {
        let to = question.to.ip();
        let owner = self.world.owner(to);
        let on = owner.map(|node| node.name.as_str()).or_else(|| self.world.pod_at(to).map(|pod| pod.node.as_str()));
        // No documentation says whether a node's overlay address, which is in a pod range, counts as a pod.
        let by_overlay = |node: &NodeMachine| !node.overlay.is_empty() && node.gateways.contains(&to);
        let calls_from_overlay =
            is_on_node_network(&self.world, &question.from) && node_of(&self.world, &question.from) != on;
        if owner.is_some_and(|node| node.overlay.contains(&to) || by_overlay(node) && calls_from_overlay) {
            return false;
        }
        match &question.from {
            PacketSource::Loopback(_) => to.is_loopback(),
            _ if to.is_loopback() => false,
            PacketSource::LoadBalancer { enters } => {
                owner.is_some_and(|node| node.name == *enters && node.addresses.contains(&to))
            }
            PacketSource::Outside { enters, .. } => on.is_none_or(|on| on == enters),
            PacketSource::Pod(_) | PacketSource::Node(_) => true,
        }
    }
}
