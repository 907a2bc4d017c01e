//! Route lookup for code that builds a host's neighbours.

use std::net::IpAddr;

use super::Host;
use super::route::RouteDecision;

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
        match self.route(to) {
            RouteDecision::Local => RouteTo::Itself,
            RouteDecision::Out(way) => {
                RouteTo::Out { interface: self.interfaces[way.interface].name.clone(), next_hop: way.next_hop }
            }
            RouteDecision::Broadcast | RouteDecision::Refused(_) | RouteDecision::NoRoute => RouteTo::Nowhere,
        }
    }

    /// Returns an interface's addresses in the order of addition.
    #[must_use]
    pub fn addresses_of(&self, interface: &str) -> &[super::Address] {
        self.interface(interface).map_or(&[], |at| &self.interfaces[at].addresses)
    }
}
