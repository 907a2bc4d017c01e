//! The link that the node's default route leads out by, and the source address that MASQUERADE gives there.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_core::Emitable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::RouteMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc;

use super::addresses;
use super::netlink::{Attributes, Netlink, NetlinkError, Parsed, Request};
use crate::model::Family;

/// Of a range for documentation (RFC 5737): no other route than the default one leads there.
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Length of `struct rtmsg`.
const ROUTE_HEADER: usize = 12;

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
    let opened = Netlink::open(NETLINK_ROUTE);
    let mut socket = opened.map_err(|error| NetlinkError::new("open a socket for routes", error))?;
    let Some(index) = outgoing(&mut socket)? else { return Ok(None) };
    let link = addresses::without_address(&mut socket, index, Family::V4)?;
    let source = addresses::read()?.primary.into_iter().find(IpAddr::is_ipv4);
    Ok(link.zip(source).map(|(link, source)| Borrowed { link, source }))
}

/// The index of the link that the default route leads out by.
fn outgoing(socket: &mut Netlink) -> Result<Option<u32>, NetlinkError> {
    let mut question = RouteMessage::default();
    question.header.address_family = AddressFamily::Inet;
    question.header.destination_prefix_length = 32;
    let mut header = vec![0; question.buffer_len()];
    question.emit(&mut header);
    let request = Request {
        kind: libc::RTM_GETROUTE,
        flags: 0,
        header,
        attributes: Attributes::new().bytes(libc::RTA_DST, &FAR.octets()),
        operation: "look up the node's default route".to_owned(),
        // There is none.
        harmless: &[libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL],
    };
    let mut index = None;
    socket.ask(&request, false, |payload| {
        let attributes = Parsed::read(payload.get(ROUTE_HEADER..).unwrap_or_default());
        let bytes = attributes.get(libc::RTA_OIF).and_then(|value| <[u8; 4]>::try_from(value).ok());
        index = bytes.map(u32::from_ne_bytes);
    })?;
    Ok(index)
}
