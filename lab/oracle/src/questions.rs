//! Every question that a cluster raises: every kind of source times every address of a service, and some that are none.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::address::{self, Family};
use crate::arrival::{home, is_node};
use crate::cluster::ClusterModel;
use crate::question::{PacketSource, Protocol, Question};
use crate::service::{self, FrontendKind};
use crate::world::NodeMachine;

/// Of a range's addresses the one that no generated service has.
const UNUSED: usize = 4000;

/// What can be sent to, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Aim {
    to: SocketAddr,
    protocol: Protocol,
}

impl ClusterModel {
    /// The questions, in an order that stays. A cluster of some size has thousands.
    #[must_use]
    pub fn questions(&self) -> Vec<Question> {
        let (mut questions, aims) = (Vec::new(), self.aims());
        for from in self.places() {
            for aim in &aims {
                let question = Question::new(from.clone(), aim.to, aim.protocol);
                if self.makes_sense(&question) {
                    questions.push(question);
                }
            }
        }
        questions
    }

    fn places(&self) -> Vec<PacketSource> {
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

    fn aims(&self) -> BTreeSet<Aim> {
        let mut aims = BTreeSet::new();
        for family in self.families() {
            for service in &self.objects.services {
                for port in service::ports(service, family) {
                    let (own, protocol) = (port.port, port.name.protocol);
                    for (kind, address) in port.addresses() {
                        aims.insert(Aim { to: SocketAddr::new(address, own), protocol });
                        if kind == FrontendKind::ClusterIp {
                            // Nobody's: another port, and another protocol.
                            aims.insert(Aim { to: SocketAddr::new(address, own.wrapping_add(1000)), protocol });
                            let other = if protocol == Protocol::Udp { Protocol::Tcp } else { Protocol::Udp };
                            aims.insert(Aim { to: SocketAddr::new(address, own), protocol: other });
                        }
                    }
                    let proxied = service::ingress(service, family, true);
                    aims.extend(proxied.into_iter().map(|address| Aim { to: SocketAddr::new(address, own), protocol }));
                    if let Some(node_port) = port.node_port {
                        let to = |address| Aim { to: SocketAddr::new(address, node_port), protocol };
                        aims.extend(self.node_addresses(family).into_iter().map(to));
                    }
                }
                // What is left alone must be left alone.
                let spec = service.spec.as_ref().filter(|_| service::left_alone(service).is_some());
                let untouched = spec.and_then(|spec| service::cluster_ip(spec, family));
                aims.extend(untouched.map(|address| Aim { to: SocketAddr::new(address, 80), protocol: Protocol::Tcp }));
            }
        }
        aims.extend(self.unused_cluster_ips());
        for (pod, ports) in self.servers() {
            let addresses = self.world.pod(&pod).map(|pod| pod.addresses.clone()).unwrap_or_default();
            let first = ports.first();
            aims.extend(
                addresses.iter().zip(first).map(|(address, (protocol, port))| Aim {
                    to: SocketAddr::new(*address, *port),
                    protocol: *protocol,
                }),
            );
        }
        aims
    }

    /// Addresses that no service has, one of each range that cluster IPs come from.
    fn unused_cluster_ips(&self) -> impl Iterator<Item = Aim> {
        let ranges = self.objects.service_cidrs.iter().filter_map(|object| object.spec.as_ref()?.cidrs.as_ref());
        let ranges = ranges.flatten().filter_map(|range| address::parse_range(range));
        let last = ranges.flat_map(|range| range.hosts().nth(UNUSED));
        last.flat_map(|address| {
            [Protocol::Tcp, Protocol::Udp].map(|protocol| Aim { to: SocketAddr::new(address, 80), protocol })
        })
    }

    fn node_addresses(&self, family: Family) -> Vec<IpAddr> {
        let loopback: IpAddr = match family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        self.world.nodes.iter().flat_map(|node| node.of_family(family)).chain([loopback]).collect()
    }

    /// Loopback addresses are called by their own node, which calls them from loopback; a load balancer calls node ports at
    /// the nodes' own network; a host outside reaches what is on one node by way of that node, or answers go past it.
    fn makes_sense(&self, question: &Question) -> bool {
        let to = question.to.ip();
        let owner = self.world.owner(to);
        let on = owner.map(|node| node.name.as_str()).or_else(|| self.world.pod_at(to).map(|pod| pod.node.as_str()));
        // An overlay's addresses are for its own use, and not every pod has a way there. By it a node calls from an address in its
        // pods' range: whether it is a pod then, to a proxy that tells pods by ranges, is not written anywhere.
        let by_overlay = |node: &NodeMachine| !node.overlay.is_empty() && node.gateways.contains(&to);
        let calls_from_overlay = is_node(&self.world, &question.from) && home(&self.world, &question.from) != on;
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
