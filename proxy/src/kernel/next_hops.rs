//! The other machines that the kernel sends packets to: gateways of routes, and remote ends of VXLAN tunnels.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_packet_core::Emitable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::RouteMessage;
use nix::libc;

use super::netlink::{Attributes, Netlink, NetlinkError, Parsed, Request};
use crate::model::Family;

/// Lengths of `struct rtmsg`, `struct ndmsg` and `struct rtnexthop` (`include/uapi/linux/rtnetlink.h`, `neighbour.h`).
const ROUTE_HEADER: usize = 12;
const NEIGHBOUR_HEADER: usize = 12;
const NEXT_HOP_HEADER: usize = 8;
/// `NDA_DST`: in an entry of a VXLAN device's table, the other end of the tunnel.
const NDA_DST: u16 = 1;
/// `RTA_VIA`: a gateway of the other family, after two bytes that name it.
const RTA_VIA: u16 = 18;

/// Reads them all; each once, sorted.
///
/// # Errors
/// When the kernel does not answer.
pub(super) fn read(socket: &mut Netlink) -> Result<Vec<IpAddr>, NetlinkError> {
    let mut found = BTreeSet::new();
    for family in Family::ALL {
        let mut question = RouteMessage::default();
        question.header.address_family = match family {
            Family::V4 => AddressFamily::Inet,
            Family::V6 => AddressFamily::Inet6,
        };
        let request = dump(libc::RTM_GETROUTE, &question, "list the node's routes");
        socket.ask(&request, true, |payload| gateways(payload, &mut found))?;
    }
    let mut question = NeighbourMessage::default();
    question.header.family = AddressFamily::Bridge;
    let request = dump(libc::RTM_GETNEIGH, &question, "list the remote ends of the node's tunnels");
    socket.ask(&request, true, |payload| {
        let attributes = Parsed::read(payload.get(NEIGHBOUR_HEADER..).unwrap_or_default());
        found.extend(attributes.get(NDA_DST).and_then(address));
    })?;
    // A tunnel's default destination may be unset or a multicast group.
    Ok(found.into_iter().filter(|ip| !ip.is_unspecified() && !ip.is_multicast()).collect())
}

fn dump(kind: u16, message: &impl Emitable, operation: &str) -> Request {
    let mut header = vec![0; message.buffer_len()];
    message.emit(&mut header);
    Request { kind, flags: 0, header, attributes: Attributes::new(), operation: operation.to_owned(), harmless: &[] }
}

/// The gateways of a route. Not read as a whole message: one attribute that the crate takes for malformed would hide the others.
fn gateways(payload: &[u8], found: &mut BTreeSet<IpAddr>) {
    let attributes = Parsed::read(payload.get(ROUTE_HEADER..).unwrap_or_default());
    found.extend(gateway(&attributes));
    let mut hops = attributes.get(libc::RTA_MULTIPATH).unwrap_or_default();
    // Each begins with its length, header included, and is padded to four bytes.
    while let Some(length) = hops.first_chunk().map(|length| usize::from(u16::from_ne_bytes(*length))) {
        let Some(hop) = hops.get(NEXT_HOP_HEADER..length) else { return };
        found.extend(gateway(&Parsed::read(hop)));
        hops = hops.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn gateway(attributes: &Parsed) -> Option<IpAddr> {
    let via = || attributes.get(RTA_VIA).and_then(|value| value.get(2..));
    attributes.get(libc::RTA_GATEWAY).or_else(via).and_then(address)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hop_of_a_route_is_found_and_what_is_cut_off_ends_the_reading() {
        let hop = |gateway: &[u8]| {
            let attributes = Attributes::new().bytes(libc::RTA_GATEWAY, gateway);
            let mut bytes = vec![0; NEXT_HOP_HEADER];
            attributes.append_to(&mut bytes);
            let length = u16::try_from(bytes.len()).unwrap();
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            bytes
        };
        let paths = [hop(&[172, 18, 0, 3]), hop(&[172, 18, 0, 4]), vec![200, 0, 1]].concat();
        let via = [&[10, 0][..], &[0xfd; 16]].concat();
        let routes = [
            Attributes::new().bytes(libc::RTA_GATEWAY, &[172, 18, 0, 2]),
            Attributes::new().bytes(libc::RTA_MULTIPATH, &paths),
            Attributes::new().bytes(RTA_VIA, &via),
            Attributes::new().bytes(libc::RTA_GATEWAY, &[1, 2, 3]),
        ];
        let mut found = BTreeSet::new();
        for route in routes {
            let mut payload = vec![0; ROUTE_HEADER];
            route.append_to(&mut payload);
            gateways(&payload, &mut found);
        }
        let found: Vec<String> = found.iter().map(IpAddr::to_string).collect();
        let v6 = IpAddr::from([0xfd; 16]).to_string();
        assert_eq!(found, ["172.18.0.2", "172.18.0.3", "172.18.0.4", &v6]);
    }
}
