//! Route lookup (net/ipv4/fib_*.c, net/ipv6/addrconf.c).

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr};

use super::policy::{LOCAL_TABLE, MAIN_TABLE};
use super::{Address, Host, HostInterface, LOOPBACK};
use crate::masked::{Masked, bits};
use crate::protocol::Family;

/// A route's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    /// Forwards.
    Unicast,
    /// Drops silently.
    Blackhole,
    /// Rejects as unreachable.
    Unreachable,
    /// Rejects as prohibited.
    Prohibit,
    /// `ip route add local`.
    Local,
    /// Ends this table's lookup; the next policy routing rule follows.
    Throw,
}

/// A route, in addition to those that addresses add.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Route {
    pub to: Masked,
    /// The gateway; `None` if destinations are neighbours.
    pub via: Option<IpAddr>,
    /// The output interface; `None` if the route forwards nothing.
    pub interface: Option<String>,
    /// Preferred source.
    pub source: Option<IpAddr>,
    /// The metric; the lowest wins among equal prefixes.
    pub metric: u32,
    pub kind: RouteKind,
    /// The routing table.
    pub table: u32,
}

impl Route {
    /// Returns a route through a gateway.
    #[must_use]
    pub fn via(to: Masked, gateway: IpAddr, interface: &str) -> Route {
        Route { via: Some(gateway), ..Route::link(to, interface) }
    }

    /// Returns a route to neighbours.
    #[must_use]
    pub fn link(to: Masked, interface: &str) -> Route {
        let interface = Some(interface.to_owned());
        Route { to, via: None, interface, source: None, metric: 0, kind: RouteKind::Unicast, table: MAIN_TABLE }
    }

    /// Returns a route that forwards nothing.
    #[must_use]
    pub fn nowhere(to: Masked, kind: RouteKind) -> Route {
        Route { to, via: None, interface: None, source: None, metric: 0, kind, table: MAIN_TABLE }
    }

    /// Changes the table.
    #[must_use]
    pub fn in_table(mut self, table: u32) -> Route {
        self.table = table;
        self
    }

    /// Sets the preferred source.
    #[must_use]
    pub fn from_address(mut self, source: IpAddr) -> Route {
        self.source = Some(source);
        self
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ResolvedRoute {
    pub(crate) to: Masked,
    pub(crate) via: Option<IpAddr>,
    pub(crate) interface: usize,
    pub(crate) source: Option<IpAddr>,
    pub(crate) metric: u32,
    pub(crate) kind: RouteKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputRoute {
    pub(crate) interface: usize,
    pub(crate) next_hop: IpAddr,
    pub(crate) source: Option<IpAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteDecision {
    Local,
    Broadcast,
    Out(OutputRoute),
    Refused(RouteKind),
    NoRoute,
}

/// The key of a route lookup (`struct flowi4`, `struct flowi6`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteQuery {
    pub(crate) to: IpAddr,
    pub(crate) from: Option<IpAddr>,
    pub(crate) mark: u32,
    pub(crate) input: usize,
}

impl RouteQuery {
    pub(crate) fn out(to: IpAddr) -> RouteQuery {
        RouteQuery { to, from: None, mark: 0, input: LOOPBACK }
    }
}

impl Host {
    pub(crate) fn route(&self, to: IpAddr) -> RouteDecision {
        self.look_up(&RouteQuery::out(to))
    }

    /// Models `fib_rules_lookup`; without policy rules, looks up the local, then the main table.
    pub(crate) fn look_up(&self, look: &RouteQuery) -> RouteDecision {
        if self.policy.rules_of(look.to).is_empty() {
            let decided = self.local_table(look.to).or_else(|| self.in_table(&self.routes, look.to, None));
            return decided.unwrap_or(RouteDecision::NoRoute);
        }
        self.policy.decide(self, look)
    }

    pub(super) fn local_table(&self, to: IpAddr) -> Option<RouteDecision> {
        if self.is_local(to) {
            return Some(RouteDecision::Local);
        }
        if self.is_broadcast(to) {
            return Some(RouteDecision::Broadcast);
        }
        self.policy.table(LOCAL_TABLE).and_then(|routes| self.in_table(routes, to, None))
    }

    /// Looks up a route; ignores routes with prefixes up to `suppressed`.
    pub(super) fn in_table(
        &self,
        routes: &[ResolvedRoute],
        to: IpAddr,
        suppressed: Option<u8>,
    ) -> Option<RouteDecision> {
        let route = routes.iter().find(|route| route.to.contains(to))?;
        if suppressed.is_some_and(|length| route.to.prefix().unwrap_or(0) <= length) {
            return None;
        }
        Some(match route.kind {
            RouteKind::Throw => return None,
            RouteKind::Local => RouteDecision::Local,
            RouteKind::Unicast => {
                let next_hop = route.via.unwrap_or(to);
                let source = route.source.or_else(|| self.source_for(route.interface, next_hop, to));
                RouteDecision::Out(OutputRoute { interface: route.interface, next_hop, source })
            }
            refused => RouteDecision::Refused(refused),
        })
    }

    pub(crate) fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(v4) = address else {
            return address.is_multicast();
        };
        let of = |own: &Address| {
            own.ip.is_ipv4()
                && own.prefix < 31
                && Masked::network(own.ip, own.prefix).is_some_and(|network| {
                    network.contains(address)
                        && bits(address) == bits(network.address()) | !bits(network.mask()) & 0xffff_ffff
                })
        };
        v4.is_broadcast() || v4.is_multicast() || self.interfaces.iter().flat_map(|one| &one.addresses).any(of)
    }

    pub(crate) fn source_for(&self, interface: usize, next_hop: IpAddr, to: IpAddr) -> Option<IpAddr> {
        match Family::of(to) {
            Family::V4 => self.source_v4(interface, next_hop),
            Family::V6 => self.source_v6(interface, to),
        }
    }

    /// Returns the source of packets to an own address: that address, its network's primary one, or 127.0.0.1
    /// (`fib_add_ifaddr`, net/ipv4/fib_frontend.c).
    pub(crate) fn source_to_itself(&self, to: IpAddr) -> IpAddr {
        if to.is_ipv4() && to.is_loopback() {
            return Ipv4Addr::LOCALHOST.into();
        }
        let has = |one: &&HostInterface| one.addresses.iter().any(|own| own.ip == to && to.is_ipv4() && own.secondary);
        let primary = |one: &HostInterface| {
            let near = |own: &&Address| {
                !own.secondary && Masked::network(own.ip, own.prefix).is_some_and(|network| network.contains(to))
            };
            one.addresses.iter().find(near).map(|own| own.ip)
        };
        self.interfaces.iter().find(has).and_then(primary).unwrap_or(to)
    }

    /// `inet_select_addr`: the interface's address in the next hop's network, else its first, else another interface's.
    /// Skips loopback, which has host scope.
    fn source_v4(&self, interface: usize, next_hop: IpAddr) -> Option<IpAddr> {
        let usable = |address: &&Address| address.ip.is_ipv4() && !address.ip.is_loopback() && !address.secondary;
        let own = || self.interfaces[interface].addresses.iter().filter(usable);
        let near = own().find(|address| {
            Masked::network(address.ip, address.prefix).is_some_and(|network| network.contains(next_hop))
        });
        let others = || {
            let others = self.interfaces.iter().enumerate().filter(|(at, _)| *at != LOOPBACK && *at != interface);
            others.flat_map(|(_, one)| &one.addresses).find(usable)
        };
        near.or_else(|| own().next()).or_else(others).map(|address| address.ip)
    }

    /// Models `ipv6_dev_get_saddr`. Prefers, in this order: addresses not deprecated, on the output interface, with the
    /// longest common prefix, on the earliest interface (`for_each_netdev_rcu`), added last (`ipv6_link_dev_addr`).
    fn source_v6(&self, interface: usize, to: IpAddr) -> Option<IpAddr> {
        let link_local = |address: IpAddr| bits(address) >> 118 == 0xfe80 >> 6;
        let candidates = self.interfaces.iter().enumerate().filter(|(at, _)| *at != LOOPBACK).flat_map(|(at, one)| {
            let usable =
                one.addresses.iter().filter(|address| address.ip.is_ipv6() && link_local(address.ip) == link_local(to));
            usable.map(move |address| {
                let common = (bits(address.ip) ^ bits(to)).leading_zeros().min(u32::from(address.prefix));
                ((!address.secondary, at == interface, common, Reverse(at)), address.ip)
            })
        });
        candidates.max_by_key(|(rank, _)| *rank).map(|(_, ip)| ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observed on Linux 6.1 and 6.12, with `eth0` created before `eth1`.
    #[test]
    fn equally_near_addresses_choose_the_first_interfaces_last_one() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let eth0 = HostInterface::new("eth0").address(ip("fd00:172:18::2"), 64).address(ip("fd00:172:18::3"), 64);
        let eth1 = HostInterface::new("eth1").address(ip("fd00:172:19::2"), 64);
        let host =
            Host::builder("n").interface(eth0).interface(eth1).interface(HostInterface::new("veth0")).build().unwrap();
        let veth = host.interfaces.iter().position(|one| one.name == "veth0").unwrap();
        let to = ip("fd00:10:244:1::e");
        assert_eq!(host.source_for(veth, to, to), Some(ip("fd00:172:18::3")));
        let near = ip("fd00:172:19::77");
        assert_eq!(host.source_for(veth, near, near), Some(ip("fd00:172:19::2")), "the longest common prefix first");
    }
}
