//! The link that the node's default route leads out by, and the source address that MASQUERADE gives there.

use std::net::{IpAddr, Ipv4Addr};

use netlink_sys::protocols::NETLINK_ROUTE;
use nf_tables::netlink::Attributes;
use nix::libc;

use super::addresses;
use super::netlink::{NetlinkError, NetlinkSocket, ROUTE_HEADER, Request, route_header};
use crate::model::Family;

/// Of a range for documentation (RFC 5737): no other route than the default one leads there.
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A source address that MASQUERADE borrows from another link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Borrowed {
    /// The link of the default route.
    pub link: String,
    /// The first address that any other link has.
    pub source: IpAddr,
}

/// Where the default route of IPv4 leads out by a link without an address, the one that MASQUERADE takes: the first of all links
/// (`inet_select_addr` in net/ipv4/devinet.c). It does not ask which source the route prefers. IPv6 does (`ipv6_dev_get_saddr`).
///
/// # Errors
/// When the kernel does not answer.
pub fn borrowed() -> Result<Option<Borrowed>, NetlinkError> {
    let opened = NetlinkSocket::open(NETLINK_ROUTE);
    let mut socket = opened.map_err(|error| NetlinkError::new("open a socket for routes", error))?;
    let Some(index) = outgoing(&mut socket)? else { return Ok(None) };
    let link = addresses::without_address(&mut socket, index, Family::V4)?;
    let source = addresses::read()?.primary.into_iter().find(IpAddr::is_ipv4);
    Ok(link.zip(source).map(|(link, source)| Borrowed { link, source }))
}

/// The index of the link of the default route, if there is one.
fn outgoing(socket: &mut NetlinkSocket) -> Result<Option<u32>, NetlinkError> {
    let mut request =
        Request::new(libc::RTM_GETROUTE, &route_header(Family::V4, 32), "look up the node's default route");
    request.body.put(libc::RTA_DST, &FAR.octets());
    // There is no such route.
    request.harmless = &[libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL];
    let mut index = None;
    socket.ask(&request, |payload| index = Attributes::after_header(payload, ROUTE_HEADER).u32(libc::RTA_OIF))?;
    Ok(index)
}
