//! Addresses of links, as rtnetlink reports them.

use std::net::IpAddr;

use netlink_packet_core::Parseable;
use netlink_packet_route::address::{AddressAttribute, AddressHeader, AddressMessage};

/// A link's own address in an `RTM_NEWADDR`: `IFA_LOCAL`, or `IFA_ADDRESS` where there is no other; where they differ the latter is
/// the other end's (`include/uapi/linux/if_addr.h`).
pub fn address_of(payload: &[u8]) -> Option<(AddressHeader, IpAddr)> {
    let AddressMessage { header, attributes, .. } = AddressMessage::parse(payload).ok()?;
    let local = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let any = || {
        attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    };
    let address = local.or_else(any)?;
    Some((header, address))
}
