//! The source address that the kernel chooses (net/ipv4/devinet.c, net/ipv6/addrconf.c).

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::policy::LOCAL_TABLE;
use super::route::ResolvedRoute;
use super::{Address, Host, HostInterface, LOOPBACK, Scope};
use crate::masked::{Masked, bits};
use crate::protocol::Family;

/// Prefixes and labels of RFC 6724's policy table as Linux has it (`ip6addrlbl_init_table`, net/ipv6/addrlabel.c),
/// longest first.
const LABELS: [(Ipv6Addr, u8, u8); 10] = [
    (Ipv6Addr::LOCALHOST, 128, 0),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 4),
    (Ipv6Addr::UNSPECIFIED, 96, 3),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 6),
    (Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28, 7),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 2),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, 12),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, 11),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, 5),
    (Ipv6Addr::UNSPECIFIED, 0, 1),
];

impl Host {
    /// Returns the source of a new connection along a route without `src` (`fib_result_prefsrc`, `ip6_route_get_saddr`).
    pub(super) fn route_source(&self, route: &ResolvedRoute, to: IpAddr) -> Option<IpAddr> {
        match Family::of(to) {
            Family::V4 => self.select_v4(route.interface, route.via, route.scope),
            Family::V6 => self.select_v6(route.interface, to),
        }
    }

    /// Returns the source of masqueraded packets (`nf_nat_masquerade_ipv4`, `_ipv6`).
    pub(crate) fn masquerade_source(&self, interface: usize, next_hop: IpAddr, to: IpAddr) -> Option<IpAddr> {
        match Family::of(to) {
            Family::V4 => self.select_v4(interface, Some(next_hop), Scope::GLOBAL),
            Family::V6 => self.select_v6(interface, to),
        }
    }

    /// Returns the source of packets to an own address: that address, its network's primary one, that of the local
    /// route, or 127.0.0.1 (`fib_add_ifaddr`, net/ipv4/fib_frontend.c).
    pub(crate) fn source_to_itself(&self, to: IpAddr) -> IpAddr {
        if to.is_ipv4() && to.is_loopback() {
            return Ipv4Addr::LOCALHOST.into();
        }
        let primary = |one: &HostInterface| {
            let secondary = one.addresses.iter().find(|own| own.ip == to && to.is_ipv4() && own.secondary)?;
            let network = Masked::network(to, secondary.prefix)?;
            let fits = |own: &&Address| !own.secondary && own.prefix == secondary.prefix && network.contains(own.ip);
            one.addresses.iter().find(fits).map(|own| own.ip)
        };
        if let Some(primary) = self.interfaces.iter().find_map(primary) {
            return primary;
        }
        // A network of loopback is local as a whole.
        let local = self.policy.table(LOCAL_TABLE).and_then(|table| table.find(to));
        local.and_then(|route| route.source).filter(|_| !self.is_local(to)).unwrap_or(to)
    }

    /// `inet_select_addr`: an address of the interface in the gateway's network, else its first, else the first of the
    /// first interface that has one, loopback included. A more distant route needs an address of wider scope.
    fn select_v4(&self, interface: usize, gateway: Option<IpAddr>, scope: Scope) -> Option<IpAddr> {
        let primary = |address: &&Address| address.ip.is_ipv4() && !address.secondary;
        // With route_localnet, addresses of scope host count as link.
        let widest = if self.settings(interface).route_localnet { Scope::LINK } else { Scope::HOST };
        let own = || {
            let own = self.interfaces[interface].addresses.iter().filter(primary);
            own.filter(|address| address.scope.min(widest) <= scope)
        };
        let near = own().find(|address| {
            let network = Masked::network(address.ip, address.prefix);
            gateway.is_none_or(|gateway| network.is_some_and(|network| network.contains(gateway)))
        });
        let others = || {
            let all = self.interfaces.iter().flat_map(|one| &one.addresses).filter(primary);
            all.into_iter().find(|address| address.scope != Scope::LINK && address.scope <= scope)
        };
        near.or_else(|| own().next()).or_else(others).map(|address| address.ip)
    }

    /// `ipv6_dev_get_saddr`: RFC 6724's rules 1 to 8 in Linux's order. Among equals the first interface wins
    /// (`for_each_netdev_rcu`), and on it the address added last (`ipv6_link_dev_addr`).
    fn select_v6(&self, interface: usize, to: IpAddr) -> Option<IpAddr> {
        let only_output = scope_v6(to) <= LINK_LOCAL || self.settings(interface).oif_addresses_only;
        let devices = self.interfaces.iter().enumerate().filter(|(at, _)| !only_output || *at == interface);
        let candidates = devices.flat_map(|(at, one)| {
            let usable = one.addresses.iter().filter(|address| address.ip.is_ipv6() && !address.tentative);
            usable.map(move |address| (self.rank(at, address, interface, to), address.ip))
        });
        candidates.max_by_key(|(rank, _)| *rank).map(|(_, ip)| ip)
    }

    /// `ipv6_get_saddr_eval`.
    fn rank(&self, at: usize, address: &Address, interface: usize, to: IpAddr) -> impl Ord + Copy + use<> {
        let (own, wanted) = (scope_v6(address.ip), scope_v6(to));
        // The smallest sufficient scope, else the greatest.
        let scope = if own >= wanted { -i16::from(own) } else { i16::from(own) - 128 };
        let preferred = !address.secondary || at == LOOPBACK && address.ip.is_loopback();
        let privacy = address.temporary == self.settings(at).prefer_temporary;
        let common = (bits(address.ip) ^ bits(to)).leading_zeros().min(u32::from(address.prefix));
        let rules = (address.ip == to, scope, preferred, at == interface, label(address.ip) == label(to), privacy);
        (rules, is_orchid(address.ip) == is_orchid(to), common, Reverse(at))
    }
}

const LINK_LOCAL: u8 = 2;

/// `__ipv6_addr_src_scope`; loopback counts as link-local.
fn scope_v6(address: IpAddr) -> u8 {
    match bits(address) >> 118 {
        0x3fa => LINK_LOCAL,
        0x3fb => 5,
        _ if address.is_loopback() => LINK_LOCAL,
        _ => 14,
    }
}

fn label(address: IpAddr) -> u8 {
    let within = |(prefix, length, _): &&(Ipv6Addr, u8, u8)| {
        Masked::network(IpAddr::V6(*prefix), *length).is_some_and(|range| range.contains(address))
    };
    LABELS.iter().find(within).map_or(1, |(_, _, label)| *label)
}

/// 2001:10::/28 (RFC 4843).
fn is_orchid(address: IpAddr) -> bool {
    label(address) == 7
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
        assert_eq!(host.masquerade_source(veth, to, to), Some(ip("fd00:172:18::3")));
        let near = ip("fd00:172:19::77");
        assert_eq!(
            host.masquerade_source(veth, near, near),
            Some(ip("fd00:172:19::2")),
            "the longest common prefix first"
        );
    }
}
