//! Route lookup (net/ipv4/fib_*.c).

use std::net::IpAddr;

use super::policy::{LOCAL_TABLE, MAIN_TABLE};
use super::route_table::RouteTable;
use super::{Host, LOOPBACK, Scope};
use crate::masked::Masked;

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
    /// IPv4: limits the source addresses. `None`: as ip-route(8) derives it.
    pub scope: Option<Scope>,
    /// The tunnel header that the route adds (`encap`), which is not modelled.
    pub encap: Option<String>,
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
        let (kind, table) = (RouteKind::Unicast, MAIN_TABLE);
        Route { to, via: None, interface, source: None, metric: 0, kind, table, scope: None, encap: None }
    }

    /// Returns a route that forwards nothing.
    #[must_use]
    pub fn nowhere(to: Masked, kind: RouteKind) -> Route {
        let table = MAIN_TABLE;
        Route { to, via: None, interface: None, source: None, metric: 0, kind, table, scope: None, encap: None }
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

    pub(super) fn scope(&self) -> Scope {
        let derived = match (self.kind, self.via) {
            (RouteKind::Local, _) => Scope::HOST,
            (RouteKind::Unicast, None) => Scope::LINK,
            _ => Scope::GLOBAL,
        };
        self.scope.unwrap_or(derived)
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
    pub(crate) scope: Scope,
    /// Position in [`Host::encaps`].
    pub(crate) encap: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputRoute {
    pub(crate) interface: usize,
    pub(crate) next_hop: IpAddr,
    pub(crate) source: Option<IpAddr>,
    /// Position in [`Host::encaps`].
    pub(crate) encap: Option<usize>,
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

    /// Models `fib_rules_lookup`; without policy rules there are the kernel's.
    pub(crate) fn look_up(&self, look: &RouteQuery) -> RouteDecision {
        if self.policy.is_usual(look.to) {
            return self.in_merged_tables(look.to).unwrap_or(RouteDecision::NoRoute);
        }
        self.policy.decide(self, look)
    }

    /// Without rules of its own, a node has one trie for the local and the main table of IPv4: the longest prefix wins,
    /// the local one among equals (`fib_trie_alias`, `fib_unmerge`).
    fn in_merged_tables(&self, to: IpAddr) -> Option<RouteDecision> {
        let local = self.policy.table(LOCAL_TABLE).and_then(|table| table.find(to));
        let main = self.routes.find(to).filter(|_| to.is_ipv4());
        let length = |route: &ResolvedRoute| route.to.prefix().unwrap_or(0);
        let is_nearer = local.zip(main).is_some_and(|(local, main)| length(main) > length(local));
        let decided = if is_nearer { self.own(to) } else { self.local_table(to) };
        decided.or_else(|| self.in_table(&self.routes, to, None))
    }

    pub(super) fn local_table(&self, to: IpAddr) -> Option<RouteDecision> {
        let decided = || self.policy.table(LOCAL_TABLE).and_then(|routes| self.in_table(routes, to, None));
        self.own(to).or_else(decided)
    }

    fn own(&self, to: IpAddr) -> Option<RouteDecision> {
        if self.is_local(to) {
            return Some(RouteDecision::Local);
        }
        self.is_broadcast(to).then_some(RouteDecision::Broadcast)
    }

    /// Looks up a route; ignores routes with prefixes up to `suppressed`.
    pub(super) fn in_table(&self, routes: &RouteTable, to: IpAddr, suppressed: Option<u8>) -> Option<RouteDecision> {
        let route = routes.find(to)?;
        if suppressed.is_some_and(|length| route.to.prefix().unwrap_or(0) <= length) {
            return None;
        }
        Some(match route.kind {
            RouteKind::Throw => return None,
            RouteKind::Local => RouteDecision::Local,
            RouteKind::Unicast => {
                let next_hop = route.via.unwrap_or(to);
                let source = route.source.or_else(|| self.route_source(route, to));
                let (interface, encap) = (route.interface, route.encap);
                RouteDecision::Out(OutputRoute { interface, next_hop, source, encap })
            }
            refused => RouteDecision::Refused(refused),
        })
    }

    pub(crate) fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(v4) = address else {
            return address.is_multicast();
        };
        v4.is_broadcast() || v4.is_multicast() || self.broadcasts.contains(&address)
    }
}
