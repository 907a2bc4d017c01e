//! The default route's link, and MASQUERADE's source address there.

use std::net::{IpAddr, Ipv4Addr};

use netlink_sys::protocols::NETLINK_ROUTE;
use nf_tables::netlink::Attributes;
use nix::libc;

use super::addresses;
use super::netlink::{NetlinkError, NetlinkSocket, ROUTE_HEADER, Request, route_header};
use crate::model::Family;

/// Documentation address (RFC 5737): only the default route reaches it.
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BorrowedSource {
    pub link: String,
    pub source: IpAddr,
}

/// Returns the source address if MASQUERADE borrows it from another link. If the IPv4 default route's link has no
/// address, MASQUERADE uses the first address of all links (`inet_select_addr` in net/ipv4/devinet.c), and ignores the
/// route's preferred source. IPv6 chooses by the destination (`ipv6_dev_get_saddr`).
pub fn borrowed() -> Result<Option<BorrowedSource>, NetlinkError> {
    let opened = NetlinkSocket::open(NETLINK_ROUTE);
    let mut socket = opened.map_err(|error| NetlinkError::new("open a socket for routes", error))?;
    let Some(index) = outgoing(&mut socket)? else { return Ok(None) };
    let link = addresses::without_address(&mut socket, index, Family::V4)?;
    let source = addresses::read()?.primary.into_iter().find(IpAddr::is_ipv4);
    Ok(link.zip(source).map(|(link, source)| BorrowedSource { link, source }))
}

fn outgoing(socket: &mut NetlinkSocket) -> Result<Option<u32>, NetlinkError> {
    let mut request =
        Request::new(libc::RTM_GETROUTE, &route_header(Family::V4, 32), "look up the node's default route");
    request.body.put(libc::RTA_DST, &FAR.octets());
    // Without a default route the kernel answers with one of these errors.
    request.harmless = &[libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL];
    let mut index = None;
    socket.ask(&request, |payload| index = Attributes::after_header(payload, ROUTE_HEADER).u32(libc::RTA_OIF))?;
    Ok(index)
}
