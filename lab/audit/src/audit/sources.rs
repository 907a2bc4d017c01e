//! The callers of an audit, one per kind of caller that promises distinguish.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use svclab_oracle::{Client, Family, PacketSource, PodName, ServiceFrontend};
use svclab_sim::host::{Host, RouteTo};
use svclab_snapshot::Snapshot;

use crate::cluster::{AuditPod, KnownAddresses, own_addresses};
use crate::explain::outside;
use crate::machines::{Peer, is_link_local};

const RANGES: usize = 64;
/// The most further interfaces with a host that calls.
const INTERFACES: usize = 2;

/// A kind of caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceKind {
    /// A pod of this node that is not an endpoint of the called service.
    Pod,
    /// An endpoint of this node that calls its own service.
    Endpoint,
    /// The node.
    Node,
    /// The node, from its loopback address.
    Loopback,
    /// A pod of another node.
    RemotePod,
    /// A host outside.
    Outside,
    /// A host in a source range of a load balancer.
    InRange,
}

/// A caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditCaller {
    /// The kind of caller.
    pub kind: SourceKind,
    /// The source in the oracle's terms.
    pub place: PacketSource,
    /// The source address; `None` if the kernel chooses it.
    pub address: Option<IpAddr>,
    /// The name in reports.
    pub label: String,
}

#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub common: Vec<AuditCaller>,
    pub endpoints: BTreeMap<IpAddr, AuditCaller>,
    pub ranges: Vec<(IpNet, AuditCaller)>,
    pub pods: Vec<AuditPod>,
    pub clients: Vec<Client>,
    pub peers: Vec<Peer>,
    pub uplink: Option<String>,
    /// Calls that could not be made, and why.
    pub not_asked: Vec<String>,
    /// What most calls depend on and is missing.
    pub incomplete: Vec<String>,
}

impl Sources {
    pub(super) fn not_asked(&mut self, what: String) {
        self.not_asked.push(what);
    }
}

pub struct Finder<'a> {
    pub snapshot: &'a Snapshot,
    pub known: &'a KnownAddresses,
    pub node: &'a Host,
}

impl Finder<'_> {
    #[must_use]
    pub fn find(&self, frontends: &[ServiceFrontend]) -> Sources {
        let mut sources = Sources::default();
        let families: BTreeSet<Family> = frontends.iter().map(|frontend| frontend.family).collect();
        for family in families {
            self.local_endpoints(family, &mut sources);
            self.plain_pod(family, &mut sources);
            self.remote_pod(family, &mut sources);
            self.outside(family, &mut sources);
        }
        let node = self.known.node.clone();
        let source = |kind, place, label: &str| AuditCaller { kind, place, address: None, label: label.to_owned() };
        sources.common.push(source(SourceKind::Node, PacketSource::Node(node.clone()), "the node"));
        sources.common.push(source(SourceKind::Loopback, PacketSource::Loopback(node), "the node's loopback address"));
        self.ranges(frontends, &mut sources);
        if !self.known.nodes.contains_key(&self.known.node) {
            let missing = "calls at the node's addresses were not made: there is no Node object of this node";
            sources.incomplete.push(missing.to_owned());
        }
        sources
    }

    pub(super) fn is_node(&self, address: IpAddr) -> bool {
        self.known.node_of(address).is_some() || own_addresses(self.snapshot).any(|own| own == address)
    }

    fn is_gateway(&self, address: IpAddr) -> bool {
        let routes = self.snapshot.network.iter().flat_map(|network| &network.routes);
        routes.flat_map(|route| &route.hops).any(|hop| hop.via == Some(address))
    }

    pub(super) fn interface_towards(&self, address: IpAddr) -> Option<String> {
        match self.node.place_of(address) {
            RouteTo::Out { interface, .. } => Some(interface),
            _ => None,
        }
    }

    fn local_endpoints(&self, family: Family, sources: &mut Sources) {
        let own = self.known.endpoints.values().filter(|one| one.node.as_deref() == Some(self.known.node.as_str()));
        for endpoint in own.filter(|one| Family::of(one.address) == family && !self.is_node(one.address)) {
            // An endpoint that is not on one of the node's links does not call.
            let Some(interface) = self.interface_towards(endpoint.address).filter(|_| self.is_direct(endpoint.address))
            else {
                continue;
            };
            let name = endpoint.pod.clone().unwrap_or_else(|| nameless(endpoint.address));
            let source = AuditCaller {
                kind: SourceKind::Endpoint,
                place: PacketSource::Pod(name.clone()),
                address: Some(endpoint.address),
                label: format!("{} itself", self.known.name(endpoint.address)),
            };
            sources.endpoints.insert(endpoint.address, source);
            self.add_pod(sources, name, &self.known.node, endpoint.address, Some(interface));
        }
    }

    pub(super) fn add_pod(
        &self,
        sources: &mut Sources,
        name: PodName,
        node: &str,
        address: IpAddr,
        interface: Option<String>,
    ) {
        let peer = self.known.name(address);
        match sources.pods.iter_mut().find(|pod| pod.name == name) {
            Some(pod) => pod.addresses.push(address),
            None => sources.pods.push(AuditPod { name, node: node.to_owned(), addresses: vec![address], interface }),
        }
        match sources.peers.iter_mut().find(|known| known.name == peer) {
            Some(known) => known.addresses.push(address),
            None => sources.peers.push(Peer { name: peer, addresses: vec![address] }),
        }
    }

    fn outside(&self, family: Family, sources: &mut Sources) {
        let like = match family {
            Family::V4 => IpAddr::from([0, 0, 0, 0]),
            Family::V6 => IpAddr::from([0u16; 8]),
        };
        let far = outside(like);
        let uplink = self.interface_towards(far);
        // Without a default route the node's neighbour counts as outside.
        let address = if uplink.is_some() { Some(far) } else { self.beside_the_node(family) };
        let Some(address) = address else {
            return sources.not_asked(format!("calls of a host outside over {family}: no route leads to one"));
        };
        sources.uplink = sources.uplink.take().or_else(|| self.interface_towards(address));
        let source = self.client(sources, address, SourceKind::Outside, format!("a host outside ({address})"));
        sources.common.push(source);
        self.beside_other_interfaces(family, sources);
    }

    /// Adds hosts in the networks of the node's further interfaces.
    fn beside_other_interfaces(&self, family: Family, sources: &mut Sources) {
        let Some(network) = &self.snapshot.network else { return };
        let is_uplink = |name: &str| sources.uplink.as_deref() == Some(name);
        let is_of_machines = |name: &str| {
            let link = network.links.iter().find(|link| link.name == name);
            link.is_some_and(|link| {
                link.controller.is_none() && matches!(link.kind.as_deref(), None | Some("vlan" | "bond"))
            })
        };
        let others = network.addresses.iter().filter(|own| {
            let own_family = Family::of(own.address.addr()) == family && !is_link_local(own.address.addr());
            own_family && !is_uplink(&own.interface) && own.interface != "lo" && is_of_machines(&own.interface)
        });
        let found: Vec<(String, IpAddr)> = others
            .filter_map(|own| {
                let free = (2..250).rev().filter_map(|number| nth(own.address.trunc(), number));
                let is_free = |address: &IpAddr| {
                    !self.is_node(*address)
                        && !self.is_gateway(*address)
                        && !self.known.endpoints.contains_key(address)
                        && self.is_direct(*address)
                        && self.interface_towards(*address).as_deref() == Some(own.interface.as_str())
                };
                Some((own.interface.clone(), free.into_iter().find(is_free)?))
            })
            .take(INTERFACES)
            .collect();
        for (interface, address) in found {
            let label = format!("a host on {interface} ({address})");
            let source = self.client(sources, address, SourceKind::Outside, label);
            sources.common.push(source);
        }
    }

    fn beside_the_node(&self, family: Family) -> Option<IpAddr> {
        let first = self.known.nodes.get(&self.known.node)?.iter().find(|own| Family::of(**own) == family)?;
        let network = self.snapshot.network.as_ref()?;
        let range = network.addresses.iter().find(|own| own.address.addr() == *first)?.address;
        let free = (2..250).rev().filter_map(|number| nth(range.trunc(), number));
        free.into_iter().find(|address| range.contains(address) && !self.is_node(*address) && self.is_direct(*address))
    }

    fn client(&self, sources: &mut Sources, address: IpAddr, kind: SourceKind, label: String) -> AuditCaller {
        let name = format!("client {address}");
        if !sources.clients.iter().any(|client| client.name == name) {
            sources.clients.push(Client { name: name.clone(), addresses: vec![address] });
            sources.peers.push(Peer { name: self.known.name(address), addresses: vec![address] });
        }
        let place = PacketSource::Outside { client: name, enters: self.known.node.clone() };
        AuditCaller { kind, place, address: Some(address), label }
    }

    /// Adds hosts at both ends of each source range, inside and outside.
    fn ranges(&self, frontends: &[ServiceFrontend], sources: &mut Sources) {
        let ranges: BTreeSet<IpNet> =
            frontends.iter().flat_map(|frontend| frontend.source_ranges.iter().copied()).collect();
        for range in ranges.into_iter().take(RANGES) {
            for (address, place) in self.ends(range, sources.uplink.as_deref()) {
                let label = format!("a host outside, {place} {range} ({address})");
                let source = self.client(sources, address, SourceKind::InRange, label);
                sources.ranges.push((range, source));
            }
        }
    }

    /// Returns usable addresses at the ends of a range: the first and the last inside, and the nearest outside.
    fn ends(&self, range: IpNet, uplink: Option<&str>) -> Vec<(IpAddr, &'static str)> {
        let is_usable = |address: &IpAddr| {
            !self.is_node(*address)
                && !self.is_gateway(*address)
                && !self.known.endpoints.contains_key(address)
                && self.interface_towards(*address).is_some_and(|interface| Some(interface.as_str()) == uplink)
        };
        let from = |start: IpAddr, up: bool, inside: bool| {
            let all = (0..64).map_while(|number| offset(start, number, up));
            all.take_while(|address| range.contains(address) == inside).find(is_usable)
        };
        let outside = |start: IpAddr, up: bool| offset(start, 1, up).and_then(|start| from(start, up, false));
        let (first, last) = (range.network(), range.broadcast());
        let mut ends: Vec<(IpAddr, &'static str)> = Vec::new();
        for (address, place) in [
            (from(first, true, true), "first in"),
            (from(last, false, true).filter(|address| Some(*address) != from(first, true, true)), "last in"),
            (outside(first, false), "before"),
            (outside(last, true), "behind"),
        ] {
            ends.extend(address.map(|address| (address, place)));
        }
        ends
    }
}

fn offset(start: IpAddr, number: u32, up: bool) -> Option<IpAddr> {
    Some(match start {
        IpAddr::V4(start) => {
            let start = start.to_bits();
            IpAddr::V4(if up { start.checked_add(number)? } else { start.checked_sub(number)? }.into())
        }
        IpAddr::V6(start) => {
            let (start, number) = (start.to_bits(), u128::from(number));
            IpAddr::V6(if up { start.checked_add(number)? } else { start.checked_sub(number)? }.into())
        }
    })
}

pub(super) fn nameless(address: IpAddr) -> PodName {
    PodName { namespace: "(unnamed)".to_owned(), name: address.to_string() }
}

pub(super) fn nth(range: IpNet, number: u32) -> Option<IpAddr> {
    let address = match range.network() {
        IpAddr::V4(first) => IpAddr::V4(first.to_bits().checked_add(number)?.into()),
        IpAddr::V6(first) => IpAddr::V6(first.to_bits().checked_add(u128::from(number))?.into()),
    };
    range.contains(&address).then_some(address)
}
