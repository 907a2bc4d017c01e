//! Addresses of links, as rtnetlink tells them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Parsed;

/// `IFA_ADDRESS`, `IFA_LOCAL` (`include/uapi/linux/if_addr.h`); where they differ the first is the other end's.
pub const IFA_ADDRESS: u16 = 1;
/// See [`IFA_ADDRESS`].
pub const IFA_LOCAL: u16 = 2;

/// The link's own address in the attributes of an `RTM_NEWADDR`.
pub fn own_address(attributes: &Parsed) -> Option<IpAddr> {
    let bytes = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS))?;
    let v4 = <[u8; 4]>::try_from(bytes).map(|octets| IpAddr::from(Ipv4Addr::from(octets))).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(|octets| IpAddr::from(Ipv6Addr::from(octets))).ok())
}
