use std::net::IpAddr;

use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteLwEnCapType, RouteMessage, RouteNextHop, RouteType, RouteVia,
};

use super::links::{InterfaceNames, scope};
use super::{nowhere, range};
use crate::network::{Hop, Route};

/// `None` for a family other than IP. The kernel resolves nexthop objects (`net.ipv4.nexthop_compat_mode`, on by
/// default).
pub(super) fn route(message: &RouteMessage, names: &InterfaceNames) -> Option<Route> {
    let header = &message.header;
    let mut table = u32::from(header.table);
    let mut to = nowhere(header.address_family)?;
    let mut route_source = None;
    let mut metric = 0;
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Destination(address) => to = ip(address)?,
            RouteAttribute::PrefSource(address) => route_source = ip(address),
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::MultiPath(ways) => hops.extend(ways.iter().map(|way| way_of_several(way, names))),
            _ => {}
        }
    }
    if hops.is_empty() {
        hops.extend(way(&message.attributes, names));
    }
    Some(Route {
        table,
        to: range(to, header.destination_prefix_length)?,
        kind: kind(header.kind),
        hops,
        source: route_source,
        metric,
        scope: to.is_ipv4().then(|| scope(u8::from(header.scope))),
    })
}

/// Whether the route has conditions that [`Route`] lacks: a source range (IPv6, `from`) or a TOS.
pub(super) fn is_narrower(message: &RouteMessage) -> bool {
    message.header.source_prefix_length != 0 || message.header.tos != 0
}

fn way(attributes: &[RouteAttribute], names: &InterfaceNames) -> Option<Hop> {
    let interface = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(names.get(*index)),
        _ => None,
    });
    let via = via(attributes);
    (interface.is_some() || via.is_some()).then_some(Hop { via, interface, weight: 1, encap: encap(attributes) })
}

/// `rtnh_hops` is the weight minus 1 (rtnetlink(7)).
fn way_of_several(hop: &RouteNextHop, names: &InterfaceNames) -> Hop {
    let interface = (hop.interface_index != 0).then(|| names.get(hop.interface_index));
    let encap = encap(&hop.attributes);
    Hop { via: via(&hop.attributes), interface, weight: u32::from(hop.hops) + 1, encap }
}

/// `RTA_VIA` is a gateway of another family.
fn via(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    })
}

fn encap(attributes: &[RouteAttribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::EncapType(RouteLwEnCapType::None) => None,
        RouteAttribute::EncapType(kind) => Some(match u16::from(*kind) {
            // `LWTUNNEL_ENCAP_…` (include/uapi/linux/lwtunnel.h).
            1 => "mpls".to_owned(),
            2 => "ip".to_owned(),
            3 => "ila".to_owned(),
            4 => "ip6".to_owned(),
            5 => "seg6".to_owned(),
            6 => "bpf".to_owned(),
            7 => "seg6local".to_owned(),
            8 => "rpl".to_owned(),
            9 => "ioam6".to_owned(),
            10 => "xfrm".to_owned(),
            other => other.to_string(),
        }),
        _ => None,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn kind(kind: RouteType) -> String {
    let name = match kind {
        RouteType::Unspec => "unspec",
        RouteType::Unicast => "unicast",
        RouteType::Local => "local",
        RouteType::Broadcast => "broadcast",
        RouteType::Anycast => "anycast",
        RouteType::Multicast => "multicast",
        RouteType::BlackHole => "blackhole",
        RouteType::Unreachable => "unreachable",
        RouteType::Prohibit => "prohibit",
        RouteType::Throw => "throw",
        RouteType::Nat => "nat",
        RouteType::ExternalResolve => "xresolve",
        other => return u8::from(other).to_string(),
    };
    name.to_owned()
}
