//! Addresses of links, as rtnetlink reports them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::Emitable;
use netlink_packet_route::address::AddressHeader;
use nix::libc::{IFA_ADDRESS, IFA_LOCAL};

use super::Parsed;

/// A link's own address in an `RTM_NEWADDR`: `IFA_LOCAL`, or `IFA_ADDRESS` where there is no other; where they differ the latter is
/// the other end's (`include/uapi/linux/if_addr.h`).
///
/// Not read as a whole message: one attribute that the crate takes for malformed, such as a label that is not UTF-8, would hide
/// the address.
pub fn address_of(payload: &[u8]) -> Option<(AddressHeader, IpAddr)> {
    let header = AddressHeader::parse(payload).ok()?;
    let attributes = Parsed::read(payload.get(header.buffer_len()..)?);
    let bytes = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS))?;
    let v4 = <[u8; 4]>::try_from(bytes).map(|octets| IpAddr::from(Ipv4Addr::from(octets))).ok();
    let address = v4.or_else(|| <[u8; 16]>::try_from(bytes).map(|octets| IpAddr::from(Ipv6Addr::from(octets))).ok())?;
    Some((header, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::netlink::Attributes;

    #[test]
    fn no_other_attribute_hides_an_address() {
        /// `IFA_LABEL`.
        const LABEL: u16 = 3;
        let header = AddressHeader { index: 7, ..AddressHeader::default() };
        let mut payload = vec![0; header.buffer_len()];
        header.emit(&mut payload);
        let attributes = Attributes::new().bytes(LABEL, b"\xff\xfe\0").bytes(IFA_LOCAL, &[192, 0, 2, 1]);
        attributes.append_to(&mut payload);
        let (header, address) = address_of(&payload).unwrap();
        assert_eq!((header.index, address), (7, IpAddr::from([192, 0, 2, 1])));
    }
}
