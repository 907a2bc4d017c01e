//! Which way a machine sends, for those who build the machines around it.

use std::net::IpAddr;

use super::Host;
use super::route::RouteDecision;

/// Where a machine sends what goes to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteTo {
    /// It is the machine's own.
    Itself,
    /// Out by an interface, to a neighbour.
    Out {
        /// The interface.
        interface: String,
        /// The neighbour: the address itself, or a gateway.
        next_hop: IpAddr,
    },
    /// Nowhere.
    Nowhere,
}

impl Host {
    /// The way of what this machine itself sends there, from no address yet and without a mark.
    #[must_use]
    pub fn way_to(&self, to: IpAddr) -> RouteTo {
        match self.route(to) {
            RouteDecision::Local => RouteTo::Itself,
            RouteDecision::Out(way) => {
                RouteTo::Out { interface: self.interfaces[way.interface].name.clone(), next_hop: way.next_hop }
            }
            RouteDecision::Broadcast | RouteDecision::Refused(_) | RouteDecision::NoRoute => RouteTo::Nowhere,
        }
    }

    /// The addresses of an interface, as they were added.
    #[must_use]
    pub fn addresses_of(&self, interface: &str) -> &[super::Address] {
        self.interface(interface).map_or(&[], |at| &self.interfaces[at].addresses)
    }
}
