//! rtnetlink's headers and addresses.

use std::net::IpAddr;

use nf_tables::netlink::Attributes;
use nix::libc;

use super::ip_address;
use crate::model::Family;

/// `include/uapi/linux/if_addr.h`, `rtnetlink.h`, `neighbour.h`.
const ADDRESS_HEADER: usize = 8;
pub const LINK_HEADER: usize = 16;
pub const ROUTE_HEADER: usize = 12;
pub const NEIGHBOUR_HEADER: usize = 12;

fn family_number(family: Family) -> u8 {
    let number = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    u8::try_from(number).unwrap_or_default()
}

pub fn address_header(family: Option<Family>, prefix_length: u8, flags: u8, link: u32) -> [u8; ADDRESS_HEADER] {
    let [a, b, c, d] = link.to_ne_bytes();
    [family.map_or(0, family_number), prefix_length, flags, 0, a, b, c, d]
}

pub fn link_header(link: u32) -> [u8; LINK_HEADER] {
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&link.to_ne_bytes());
    header
}

pub fn route_header(family: Family, destination_prefix_length: u8) -> [u8; ROUTE_HEADER] {
    let mut header = [0; ROUTE_HEADER];
    [header[0], header[1]] = [family_number(family), destination_prefix_length];
    header
}

/// Returns a `struct ndmsg` for bridges and tunnels.
pub fn neighbour_header() -> [u8; NEIGHBOUR_HEADER] {
    let mut header = [0; NEIGHBOUR_HEADER];
    header[0] = u8::try_from(libc::AF_BRIDGE).unwrap_or_default();
    header
}

pub struct LinkAddress {
    pub link: u32,
    /// `IFA_F_*` (`include/uapi/linux/if_addr.h`).
    pub flags: u8,
    pub address: IpAddr,
}

/// Reads an `RTM_NEWADDR`. If `IFA_LOCAL` exists, `IFA_ADDRESS` is the other end's.
pub fn own_address(payload: &[u8]) -> Option<LinkAddress> {
    let link = u32::from_ne_bytes(payload.get(4..ADDRESS_HEADER)?.try_into().ok()?);
    let attributes = Attributes::after_header(payload, ADDRESS_HEADER);
    let address = attributes.get(libc::IFA_LOCAL).or_else(|| attributes.get(libc::IFA_ADDRESS)).and_then(ip_address)?;
    Some(LinkAddress { link, flags: *payload.get(2)?, address })
}
