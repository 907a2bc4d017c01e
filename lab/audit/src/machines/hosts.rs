//! Builds the simulated host of a machine around the node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use svclab_sim::host::{
    Host, HostBuilder, HostInterface, LOCAL_TABLE, MAIN_TABLE, PolicyAction, PolicyRule, Route, RouteKind, Sysctls,
};
use svclab_sim::masked::Masked;
use svclab_sim::protocol::Family;

use super::entry::IngressLink;
use super::stations::{Station, StationLink, StationWay};
use super::{bits, everything, everywhere, is_link_local, link_local};

/// The interface of a machine's first way; further ways are `eth1`, `eth2`, …
pub(super) const NEAR: &str = "eth0";
const BEHIND: &str = "behind";

pub(super) fn way_interface(number: usize) -> String {
    format!("eth{number}")
}

/// A gateway's interface towards one of the machines behind it.
pub(super) fn peer_interface(number: usize) -> String {
    format!("peer{number}")
}

/// What is known of all machines.
pub(super) struct Shared<'a> {
    /// Addresses that machines on links send to the node.
    pub(super) announced: &'a [IpAddr],
    pub(super) entry: Option<&'a IngressLink>,
    /// Interfaces of Open vSwitch, whose machines send everything to the node.
    pub(super) switched: &'a BTreeSet<&'a str>,
}

/// A machine's place among the others.
pub(super) struct HostContext<'a> {
    pub(super) node: &'a Host,
    pub(super) shared: &'a Shared<'a>,
    /// By gateway, the machines behind it.
    pub(super) behind: &'a BTreeMap<&'a str, Vec<&'a Station>>,
    /// By interface of the node, the gateways on its link.
    pub(super) gateways: &'a BTreeMap<&'a str, Vec<(&'a str, &'a StationLink)>>,
}

impl HostContext<'_> {
    pub(super) fn host(&self, station: &Station) -> HostBuilder {
        let sysctls = Sysctls { ip_forward: true, ipv6_forward: true, ..Sysctls::default() };
        let mut host = everywhere(Host::builder(&station.name).sysctls(sysctls));
        if station.ways.is_empty() {
            host = host.interface(with_single(NEAR, &station.addresses));
        }
        for (number, way) in station.ways.iter().enumerate() {
            host = host.interface(self.interface(&way_interface(number), way, station, number));
        }
        let is_behind = !matches!(station.ways.first(), Some(StationWay::Link(_)));
        if !is_behind {
            host = nothing_back(host, station);
            let others: Vec<IpAddr> = station.others.iter().copied().collect();
            host = host.interface(with_single(BEHIND, &others));
        }
        if let Some(entry) = self.shared.entry.filter(|entry| station.own().any(|own| own == entry.address)) {
            host = entry.onto(host);
            host = if is_behind {
                entry.rules().into_iter().fold(host, HostBuilder::policy)
            } else {
                host.policy(entry.rule())
            };
        }
        for family in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            host = match station.ways.first() {
                Some(StationWay::Link(link)) => self.towards_node(host, (station, link), family),
                Some(StationWay::Behind(_)) => {
                    let via = link_local(family);
                    host.route(Route::via(everything(family), via, NEAR)).neighbour(NEAR, via)
                }
                None => host,
            };
        }
        self.towards_others(host, station)
    }

    fn interface(&self, name: &str, way: &StationWay, station: &Station, number: usize) -> HostInterface {
        match way {
            StationWay::Link(link) => {
                // The network that two links share is the first's: the other machines are there.
                let earlier = || station.ways.iter().take(number).filter_map(StationWay::link);
                let is_shared = |own: IpAddr| earlier().any(|link| link.addresses.contains(&own));
                let length = |own| if is_shared(own) { bits(own) } else { self.length(link, own) };
                let own = link.addresses.iter().map(|own| (*own, length(*own)));
                own.fold(HostInterface::new(name), |near, (own, length)| near.address(own, length))
            }
            StationWay::Behind(_) => with_single(name, &station.addresses),
        }
    }

    fn length(&self, link: &StationLink, address: IpAddr) -> u8 {
        if self.shared.switched.contains(link.interface.as_str()) {
            return bits(address);
        }
        let own = self.node.addresses_of(&link.interface).iter();
        let near = own.filter_map(|own| IpNet::new(own.ip, own.prefix).ok()).find(|net| net.contains(&address));
        near.map_or(bits(address), |net| net.prefix_len())
    }

    /// Adds a default route by the node's address on the link, else by the node itself.
    fn towards_node(
        &self,
        host: HostBuilder,
        (station, link): (&Station, &StationLink),
        family: IpAddr,
    ) -> HostBuilder {
        let everything = everything(family);
        let own = self.node.addresses_of(&link.interface).iter();
        let own = own.map(|own| own.ip).filter(|own| own.is_ipv4() == family.is_ipv4());
        // A global gateway address reads better than a link-local one.
        match own.clone().find(|own| !is_link_local(*own)).or_else(|| own.clone().next()) {
            Some(via) => {
                // Gateways of endpoints call nothing: thousands of them would have thousands of routes.
                let calls = station.others.is_empty() || self.behind.contains_key(station.name.as_str());
                let announced =
                    self.shared.announced.iter().filter(|address| calls && address.is_ipv4() == family.is_ipv4());
                let all = announced.map(|address| Masked::from(*address)).chain([everything]);
                all.fold(host, |host, to| host.route(Route::via(to, via, NEAR)))
            }
            None => {
                let via = link_local(family);
                host.route(Route::via(everything, via, NEAR)).neighbour(NEAR, via)
            }
        }
    }

    /// Adds routes to the machines behind this one, and to those behind other gateways of its links, which it reaches
    /// without the node.
    fn towards_others(&self, mut host: HostBuilder, station: &Station) -> HostBuilder {
        let behind = |name: &str| self.behind.get(name).into_iter().flatten();
        for (number, peer) in behind(&station.name).enumerate() {
            let link = peer_interface(number);
            host = host.interface(HostInterface::new(&link));
            for address in peer.own() {
                host = host.route(Route::link(Masked::from(address), &link));
            }
        }
        for (number, way) in station.ways.iter().enumerate() {
            let StationWay::Link(link) = way else { continue };
            let others = self.gateways.get(link.interface.as_str()).into_iter().flatten();
            for (name, gateway) in others.filter(|(name, _)| *name != station.name) {
                let is_here = |peer: &&&Station| peer.name != station.name && !is_behind(peer, &station.name);
                for address in behind(name).filter(is_here).flat_map(|peer| &peer.addresses) {
                    if let Some(via) = gateway.addresses.iter().find(|via| via.is_ipv4() == address.is_ipv4()) {
                        host = host.route(Route::via(Masked::from(*address), *via, &way_interface(number)));
                    }
                }
            }
        }
        host
    }
}

fn is_behind(station: &Station, gateway: &str) -> bool {
    station.ways.iter().any(|way| matches!(way, StationWay::Behind(name) if name == gateway))
}

fn with_single(name: &str, addresses: &[IpAddr]) -> HostInterface {
    addresses.iter().fold(HostInterface::new(name), |near, own| near.address(*own, bits(*own)))
}

/// Drops packets for unknown addresses instead of returning them by the default route.
fn nothing_back(mut host: HostBuilder, station: &Station) -> HostBuilder {
    let lookup = |table, suppress| PolicyAction::Lookup { table, suppress };
    for family in [Family::V4, Family::V6] {
        let rule = |priority, action| PolicyRule::of_all(family, priority, action);
        host = host.policy(rule(0, lookup(LOCAL_TABLE, None)));
        for number in (0..station.ways.len()).filter(|number| matches!(station.ways[*number], StationWay::Link(_))) {
            let from_node = |rule: PolicyRule| PolicyRule { input: Some(way_interface(number)), ..rule };
            host = host.policy(from_node(rule(1, lookup(MAIN_TABLE, Some(0)))));
            host = host.policy(from_node(rule(2, PolicyAction::Refuse(RouteKind::Blackhole))));
        }
        host = host.policy(rule(3, lookup(MAIN_TABLE, None)));
    }
    host
}
