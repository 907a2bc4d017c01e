//! Addresses of other machines: gateways, and remote ends of VXLAN tunnels.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nf_tables::netlink::Attributes;
use nix::libc;

use super::netlink::{NEIGHBOUR_HEADER, NetlinkError, NetlinkSocket, ROUTE_HEADER, Request};
use super::netlink::{ip_address, neighbour_header, route_header};
use crate::model::Family;

/// `struct rtnexthop` (`include/uapi/linux/rtnetlink.h`).
const NEXT_HOP_HEADER: usize = 8;
const NDA_DST: u16 = 1;
/// Two bytes of family, then a gateway of the other IP family.
const RTA_VIA: u16 = 18;

pub(super) fn read(socket: &mut NetlinkSocket) -> Result<Vec<IpAddr>, NetlinkError> {
    let mut found = BTreeSet::new();
    for family in Family::ALL {
        let request = Request::new(libc::RTM_GETROUTE, &route_header(family, 0), "list the node's routes");
        socket.dump(&request, |payload| gateways(payload, &mut found))?;
    }
    let operation = "list the remote ends of the node's tunnels";
    socket.dump(&Request::new(libc::RTM_GETNEIGH, &neighbour_header(), operation), |payload| {
        found.extend(Attributes::after_header(payload, NEIGHBOUR_HEADER).get(NDA_DST).and_then(ip_address));
    })?;
    // A tunnel's default destination may be unspecified or multicast.
    Ok(found.into_iter().filter(|ip| !ip.is_unspecified() && !ip.is_multicast()).collect())
}

fn gateways(route: &[u8], found: &mut BTreeSet<IpAddr>) {
    let attributes = Attributes::after_header(route, ROUTE_HEADER);
    found.extend(gateway(attributes));
    let mut hops = attributes.get(libc::RTA_MULTIPATH).unwrap_or_default();
    // Each hop has a length, then data padded to four bytes.
    while let Some(length) = hops.first_chunk().map(|length| usize::from(u16::from_ne_bytes(*length))) {
        let Some(hop) = hops.get(..length).filter(|hop| hop.len() >= NEXT_HOP_HEADER) else { return };
        found.extend(gateway(Attributes::after_header(hop, NEXT_HOP_HEADER)));
        hops = hops.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn gateway(attributes: Attributes<'_>) -> Option<IpAddr> {
    let via = || attributes.get(RTA_VIA).and_then(|value| value.get(2..));
    attributes.get(libc::RTA_GATEWAY).or_else(via).and_then(ip_address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nf_tables::netlink::AttributeWriter;

    #[test]
    fn every_hop_of_a_route_is_found_and_a_truncated_hop_ends_the_list() {
        let with = |header: usize, kind: u16, value: &[u8]| {
            let mut writer = AttributeWriter::after_header(&vec![0; header]);
            writer.put(kind, value);
            writer.bytes().to_vec()
        };
        let hop = |gateway: &[u8]| {
            let mut bytes = with(NEXT_HOP_HEADER, libc::RTA_GATEWAY, gateway);
            bytes[0] = u8::try_from(bytes.len()).unwrap();
            bytes
        };
        let paths = [hop(&[172, 18, 0, 3]), hop(&[172, 18, 0, 4]), vec![200, 0, 1]].concat();
        let mut found = BTreeSet::new();
        for (kind, value) in [
            (libc::RTA_GATEWAY, &[172, 18, 0, 2][..]),
            (libc::RTA_MULTIPATH, &paths),
            (RTA_VIA, &[&[10, 0][..], &[0xfd; 16]].concat()),
            (libc::RTA_GATEWAY, &[1, 2, 3]),
        ] {
            gateways(&with(ROUTE_HEADER, kind, value), &mut found);
        }
        let found: Vec<String> = found.iter().map(IpAddr::to_string).collect();
        let v6 = IpAddr::from([0xfd; 16]).to_string();
        assert_eq!(found, ["172.18.0.2", "172.18.0.3", "172.18.0.4", &v6]);
    }
}
