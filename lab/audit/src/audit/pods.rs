//! Pods as callers: of this node and of others, from neighbours, routes, pod ranges and endpoints.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use svclab_oracle::{Family, PacketSource, address};
use svclab_sim::host::RouteTo;
use svclab_snapshot::network::Route;

use super::sources::{AuditCaller, Finder, SourceKind, Sources, nameless, nth};

impl Finder<'_> {
    /// Adds a pod of this node; the node's endpoints are known.
    pub(super) fn plain_pod(&self, family: Family, sources: &mut Sources) {
        let kind = SourceKind::Pod;
        let Some(address) = self.pod_address(family) else {
            let endpoint = sources.endpoints.values().find(|one| one.address.map(Family::of) == Some(family)).cloned();
            match endpoint {
                Some(endpoint) => {
                    let label = endpoint.address.map_or(endpoint.label.clone(), |address| self.known.name(address));
                    sources.common.push(AuditCaller { kind, label, ..endpoint });
                }
                None => sources.incomplete.push(format!(
                    "calls of a pod of this node over {family} were not made: no pod range, route or endpoint shows one"
                )),
            }
            return;
        };
        let Some(interface) = self.interface_towards(address) else { return };
        let name = nameless(address);
        let label = format!("a pod of this node ({address})");
        let place = PacketSource::Pod(name.clone());
        sources.common.push(AuditCaller { kind, place, address: Some(address), label });
        self.add_pod(sources, name, &self.known.node, address, Some(interface));
    }

    /// Returns the address of a pod that is no endpoint, else an unused one.
    fn pod_address(&self, family: Family) -> Option<IpAddr> {
        let interfaces = self.interfaces_of_pods();
        let networks = self.networks_of_pods(family, &interfaces);
        let is_free = |address: &IpAddr| {
            Family::of(*address) == family
                && !self.known.endpoints.contains_key(address)
                && !self.is_node(*address)
                && self.is_direct(*address)
        };
        let network = self.snapshot.network.as_ref()?;
        let in_networks = |address: &IpAddr| networks.iter().any(|range| range.contains(address));
        let near = network.neighbours.iter().map(|one| one.address).filter(in_networks);
        let to_one = network.routes.iter().filter(|route| is_to_one(route));
        let routed = to_one.filter(|route| in_networks(&route.to.addr()) || is_like(route, &interfaces));
        // High addresses are assigned last; IPv4's highest is the broadcast address.
        let unused = networks.iter().flat_map(|range| (2..250).rev().filter_map(|number| nth(*range, number)));
        near.chain(routed.map(|route| route.to.addr())).chain(unused).find(is_free)
    }

    /// Returns the interfaces of this node's endpoints.
    fn interfaces_of_pods(&self) -> BTreeSet<String> {
        let own = self.known.endpoints.values().filter(|one| one.node.as_deref() == Some(self.known.node.as_str()));
        let own = own.filter(|one| !self.is_node(one.address) && self.is_direct(one.address));
        own.filter_map(|one| self.interface_towards(one.address)).collect()
    }

    /// Returns the node's pod ranges, and the networks of its endpoints' interfaces: CNIs may ignore the ranges.
    fn networks_of_pods(&self, family: Family, interfaces: &BTreeSet<String>) -> Vec<IpNet> {
        let own = self.nodes().find(|node| node.metadata.name.as_deref() == Some(self.known.node.as_str()));
        let mut networks: Vec<IpNet> = own.map(pod_ranges).unwrap_or_default();
        let addresses = self.snapshot.network.iter().flat_map(|network| &network.addresses);
        let near = addresses.filter(|own| interfaces.contains(&own.interface)).map(|own| own.address.trunc());
        networks.extend(near.filter(|network| network.prefix_len() < network.max_prefix_len()));
        networks.retain(|range| Family::of_range(*range) == family);
        networks
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.snapshot.objects.iter().flat_map(|objects| &objects.nodes)
    }

    /// Adds a pod of another node.
    pub(super) fn remote_pod(&self, family: Family, sources: &mut Sources) {
        let kind = SourceKind::RemotePod;
        let mut others = self.known.endpoints.values().filter(|one| {
            Family::of(one.address) == family
                && one.node.as_deref().is_some_and(|node| node != self.known.node)
                && !self.is_node(one.address)
                && self.interface_towards(one.address).is_some()
        });
        if let Some(endpoint) = others.next() {
            let name = endpoint.pod.clone().unwrap_or_else(|| nameless(endpoint.address));
            let node = endpoint.node.clone().unwrap_or_default();
            let label = format!("{} of another node", self.known.name(endpoint.address));
            let place = PacketSource::Pod(name.clone());
            sources.common.push(AuditCaller { kind, place, address: Some(endpoint.address), label });
            return self.add_pod(sources, name, &node, endpoint.address, None);
        }
        let Some((node, address)) = self.remote_address(family) else {
            if self.known.nodes.keys().eq([&self.known.node]) {
                return;
            }
            return sources.not_asked(format!(
                "calls of a pod of another node over {family}: no pod range, route or endpoint shows one"
            ));
        };
        let name = nameless(address);
        let place = PacketSource::Pod(name.clone());
        let label = format!("a pod of another node ({address})");
        sources.common.push(AuditCaller { kind, place, address: Some(address), label });
        self.add_pod(sources, name, &node, address, None);
    }

    /// Returns an address in another node's pod range, or behind a route by another node, with the node.
    fn remote_address(&self, family: Family) -> Option<(String, IpAddr)> {
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        let declared = self.nodes().filter(|node| name(node) != self.known.node);
        let declared = declared.flat_map(|node| pod_ranges(node).into_iter().map(move |range| (name(node), range)));
        let routes = self.snapshot.network.iter().flat_map(|network| &network.routes);
        let routed = routes.filter_map(|route| Some((self.node_behind(route)?, route.to)));
        let ranges = declared.chain(routed).filter(|(_, range)| Family::of_range(*range) == family);
        let free = |address: &IpAddr| {
            !self.known.endpoints.contains_key(address)
                && !self.is_node(*address)
                && self.interface_towards(*address).is_some()
        };
        ranges.into_iter().find_map(|(node, range)| {
            let address = (2..250).rev().filter_map(|number| nth(range, number)).find(free)?;
            Some((node, address))
        })
    }

    /// Returns the other node whose address is the route's gateway.
    fn node_behind(&self, route: &Route) -> Option<String> {
        let via = route.hops.first()?.via?;
        let others = self.known.nodes.iter().filter(|(name, _)| **name != self.known.node);
        let (name, _) = others.into_iter().find(|(_, addresses)| addresses.contains(&via))?;
        let contains_nodes = self.known.nodes.values().flatten().any(|address| route.to.contains(address));
        (route.kind == "unicast" && !contains_nodes).then(|| name.clone())
    }

    pub(super) fn is_direct(&self, address: IpAddr) -> bool {
        matches!(self.node.place_of(address), RouteTo::Out { next_hop, .. } if next_hop == address)
    }
}

fn pod_ranges(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let texts = spec.pod_cidrs.as_deref().filter(|texts| !texts.is_empty()).unwrap_or(spec.pod_cidr.as_slice());
    texts.iter().filter_map(|text| address::parse_range(text)).collect()
}

fn is_to_one(route: &Route) -> bool {
    route.kind == "unicast" && route.to.prefix_len() == route.to.max_prefix_len()
}

/// Whether the route's interface has a name like one of those (`cali`, `eni`, `lxc`, `veth`, …).
fn is_like(route: &Route, interfaces: &BTreeSet<String>) -> bool {
    let stem = |name: &str| name.chars().take_while(char::is_ascii_alphabetic).take(4).collect::<String>();
    let interface = route.hops.first().and_then(|hop| hop.interface.as_deref());
    interface.is_some_and(|name| interfaces.iter().any(|other| stem(other) == stem(name)))
}
