use std::collections::BTreeMap;
use std::net::IpAddr;

use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoBridgePort, InfoKind, InfoPortData, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};

use super::range;
use crate::network::{Address, Forwarding, Link, Neighbour, UnresolvedNeighbour};

/// The states of usable neighbours: `NUD_REACHABLE`, `NUD_STALE`, `NUD_DELAY`, `NUD_PROBE`, `NUD_PERMANENT`
/// (`include/uapi/linux/neighbour.h`).
const USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | PERMANENT;
/// `NUD_INCOMPLETE` and `NUD_FAILED`.
const UNRESOLVED: [(u16, &str); 2] = [(0x01, "incomplete"), (0x20, "failed")];
/// `NUD_PERMANENT`; in a bridge's table it marks the bridge's own addresses.
const PERMANENT: u16 = 0x80;

pub(super) struct InterfaceNames(BTreeMap<u32, String>);

impl InterfaceNames {
    pub(super) fn of(links: &[LinkMessage]) -> InterfaceNames {
        InterfaceNames(links.iter().map(|link| (link.header.index, name(link))).collect())
    }

    pub(super) fn get(&self, index: u32) -> String {
        self.0.get(&index).cloned().unwrap_or_else(|| format!("#{index}"))
    }
}

fn name(link: &LinkMessage) -> String {
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    });
    name.unwrap_or_else(|| format!("#{}", link.header.index))
}

pub(super) fn link(message: &LinkMessage, names: &InterfaceNames) -> Link {
    let mut link = Link {
        index: message.header.index,
        name: name(message),
        up: message.header.flags.contains(LinkFlags::Up),
        carrier: Some(message.header.flags.contains(LinkFlags::LowerUp)),
        ..Link::default()
    };
    let is_elsewhere = message.attributes.iter().any(|one| matches!(one, LinkAttribute::LinkNetNsId(_)));
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Address(bytes) if !bytes.is_empty() => link.mac = Some(hardware(bytes)),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Link(index) if !is_elsewhere && *index != 0 => link.lower = Some(names.get(*index)),
            LinkAttribute::Controller(index) => link.controller = Some(names.get(*index)),
            LinkAttribute::LinkInfo(infos) => infos.iter().for_each(|info| note_info(&mut link, info)),
            _ => {}
        }
    }
    link
}

fn note_info(link: &mut Link, info: &LinkInfo) {
    match info {
        LinkInfo::Kind(InfoKind::Other(kind)) => link.kind = Some(kind.clone()),
        LinkInfo::Kind(kind) => link.kind = Some(kind.to_string()),
        LinkInfo::PortData(InfoPortData::BridgePort(settings)) => {
            link.hairpin = settings.contains(&InfoBridgePort::HairpinMode(true));
            link.isolated = settings.contains(&InfoBridgePort::Isolated(true));
            link.port_state = settings.iter().find_map(|setting| match setting {
                InfoBridgePort::State(state) => Some(state.to_string()),
                _ => None,
            });
        }
        _ => {}
    }
}

pub(super) fn address(message: &AddressMessage, names: &InterfaceNames) -> Option<Address> {
    let find = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(wanted);
    // On a point-to-point interface `IFA_ADDRESS` is the peer's address.
    let local = find(|attribute| if let AddressAttribute::Local(local) = attribute { Some(*local) } else { None });
    let other = || find(|attribute| if let AddressAttribute::Address(other) = attribute { Some(*other) } else { None });
    let address = local.or_else(other)?;
    let all = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    let flags = all.unwrap_or(AddressFlags::from_bits_retain(u32::from(message.header.flags.bits())));
    Some(Address {
        interface: names.get(message.header.index),
        address: range(address, message.header.prefix_len)?,
        secondary: address.is_ipv4() && flags.contains(AddressFlags::Secondary),
        deprecated: flags.contains(AddressFlags::Deprecated),
        temporary: !address.is_ipv4() && flags.contains(AddressFlags::Secondary),
        tentative: flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic),
        scope: scope(u8::from(message.header.scope)),
    })
}

/// `RT_SCOPE_…` (include/uapi/linux/rtnetlink.h).
pub(super) fn scope(number: u8) -> String {
    match number {
        0 => "global".to_owned(),
        200 => "site".to_owned(),
        253 => "link".to_owned(),
        254 => "host".to_owned(),
        255 => "nowhere".to_owned(),
        other => other.to_string(),
    }
}

/// `None` if the kernel would not send to the neighbour.
pub(super) fn neighbour(message: &NeighbourMessage, names: &InterfaceNames) -> Option<Neighbour> {
    let state = u16::from(message.header.state);
    (state & USABLE != 0).then_some(())?;
    Some(Neighbour {
        interface: names.get(message.header.ifindex),
        address: destination(message)?,
        mac: hardware(link_layer(message)?),
        permanent: state & PERMANENT != 0,
    })
}

/// `None` if the neighbour answered or was never asked.
pub(super) fn unresolved(message: &NeighbourMessage, names: &InterfaceNames) -> Option<UnresolvedNeighbour> {
    let state = u16::from(message.header.state);
    let (_, state) = UNRESOLVED.into_iter().find(|(bit, _)| state & bit != 0)?;
    let interface = names.get(message.header.ifindex);
    Some(UnresolvedNeighbour { interface, address: destination(message)?, state: state.to_owned() })
}

fn destination(message: &NeighbourMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::from(*address)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::from(*address)),
        _ => None,
    })
}

/// `None` for the addresses of the bridge's own ports.
pub(super) fn forwarding(message: &NeighbourMessage, names: &InterfaceNames) -> Option<Forwarding> {
    let of_bridge = message.attributes.iter().any(|attribute| matches!(attribute, NeighbourAttribute::Controller(_)));
    let own = u16::from(message.header.state) & PERMANENT != 0;
    if !of_bridge || own {
        return None;
    }
    Some(Forwarding { port: names.get(message.header.ifindex), mac: hardware(link_layer(message)?) })
}

fn link_layer(message: &NeighbourMessage) -> Option<&[u8]> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) if !bytes.is_empty() => Some(&bytes[..]),
        _ => None,
    })
}

fn hardware(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}
