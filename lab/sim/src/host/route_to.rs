//! Route lookup for code that builds a host's neighbours.

use std::net::IpAddr;

use super::route::RouteDecision;
use super::{Host, HostInterface, LinkState};
use crate::masked::Masked;
use crate::protocol::Family;

/// A packet's next step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum RouteTo {
    /// To this machine.
    Itself,
    /// Through an interface to a neighbour.
    Out {
        interface: String,
        /// The destination or gateway.
        next_hop: IpAddr,
    },
    /// Nowhere: there is no route.
    Nowhere,
}

impl Host {
    /// Looks up a route, without source address and mark.
    #[must_use]
    pub fn way_to(&self, to: IpAddr) -> RouteTo {
        self.route_to(self.route(to))
    }

    fn route_to(&self, decision: RouteDecision) -> RouteTo {
        match decision {
            RouteDecision::Local => RouteTo::Itself,
            RouteDecision::Out(way) => {
                RouteTo::Out { interface: self.interfaces[way.interface].name.clone(), next_hop: way.next_hop }
            }
            RouteDecision::Broadcast | RouteDecision::Refused(_) | RouteDecision::NoRoute => RouteTo::Nowhere,
        }
    }

    /// Returns where a machine with this address is, although the kernel removes the routes of an interface that is down:
    /// by the node's route, or on the interface that is down and whose network has the address.
    #[must_use]
    pub fn place_of(&self, address: IpAddr) -> RouteTo {
        let way = self.way_to(address);
        let is_neighbour = matches!(way, RouteTo::Out { next_hop, .. } if next_hop == address);
        match self.down_towards(address).filter(|_| !is_neighbour && way != RouteTo::Itself) {
            Some(interface) => RouteTo::Out { interface: interface.to_owned(), next_hop: address },
            None => way,
        }
    }

    /// Returns the interface that is set down and whose network has the address.
    #[must_use]
    pub fn down_towards(&self, address: IpAddr) -> Option<&str> {
        let down = self.interfaces.iter().filter(|one| one.state == LinkState::Down);
        let has = |one: &&HostInterface| {
            let networks = one.addresses.iter().filter(|own| own.prefix < Family::of(own.ip).bits());
            networks.into_iter().any(|own| {
                own.ip != address
                    && Masked::network(own.ip, own.prefix).is_some_and(|network| network.contains(address))
            })
        };
        down.into_iter().find(has).map(|one| one.name.as_str())
    }

    /// Returns every way that some packet to the address may take, by mark, source and input interface: that of
    /// [`Host::place_of`], then those of all tables that rules of policy routing name.
    #[must_use]
    pub fn ways_to(&self, to: IpAddr) -> Vec<RouteTo> {
        let mut ways = vec![self.place_of(to)];
        if ways[0] != self.way_to(to) {
            return ways;
        }
        for decision in self.policy.decisions(self, to) {
            let way = self.route_to(decision);
            if matches!(way, RouteTo::Out { .. }) && !ways.contains(&way) {
                ways.push(way);
            }
        }
        ways.retain(|way| *way != RouteTo::Nowhere);
        ways
    }

    /// Returns an interface's addresses in the order of addition.
    #[must_use]
    pub fn addresses_of(&self, interface: &str) -> &[super::Address] {
        self.interface(interface).map_or(&[], |at| &self.interfaces[at].addresses)
    }
}
