//! The device that holds service addresses, so that packets to them are taken for the node's own and reach IPVS: a dummy,
//! which is never up and answers nothing itself.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink_packet_core::{Emitable, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, CacheInfo};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc::{self, EADDRNOTAVAIL, EEXIST, ENODEV, ESRCH};
use nix::net::if_::if_nametoindex;

use super::netlink::{Attributes, Netlink, NetlinkError, Request, address_of};
use crate::model::Family;

/// The device's name, as upstream's.
pub const DEVICE: &str = "kube-ipvs0";

/// Whether an address may be a source (RFC 4862, section 5.5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressState {
    /// It may.
    Preferred,
    /// It is not chosen while there is another one.
    Deprecated,
}

impl AddressState {
    /// What [`AddressChange::Bind`] makes of an address.
    ///
    /// Where an interface has no address of IPv6, what leaves by it takes that of the node's which is most like the
    /// destination (RFC 6724, rule 8), and a service's may be that; but a deprecated one loses before (rule 3). IPv4 takes the
    /// first.
    pub fn of_bound(address: &IpAddr) -> AddressState {
        match address {
            IpAddr::V4(_) => AddressState::Preferred,
            IpAddr::V6(_) => AddressState::Deprecated,
        }
    }
}

/// One change of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressChange {
    /// It comes, or comes into the state that it should have.
    Bind(IpAddr),
    /// It goes.
    Unbind(IpAddr),
    /// It stays, so that connections from it go on, but what the node sends to it from now on comes from another of the node's
    /// addresses. Without this such packets have the very same address as their source.
    Yield {
        /// The one that stays.
        address: IpAddr,
        /// The node's other one.
        to: IpAddr,
    },
}

/// The device.
pub trait Device {
    /// Makes the device, if it is not there.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn ensure_device(&mut self) -> Result<(), NetlinkError>;

    /// Its addresses of one family, but for those that the kernel gives by itself.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn addresses(&mut self, family: Family) -> Result<BTreeMap<IpAddr, AddressState>, NetlinkError>;

    /// Makes changes, in order. An address that is there already, or not, is no error.
    ///
    /// # Errors
    /// When the kernel refuses one; others may have been made.
    fn change_addresses(&mut self, changes: &[AddressChange]) -> Result<(), NetlinkError>;

    /// Removes the device with its addresses; that there is none is no error.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn remove_device(&mut self) -> Result<(), NetlinkError>;
}

/// A device in memory. Fields are open for tests to look at and to tamper with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fake {
    /// Its addresses; `None`: it is not there.
    pub addresses: Option<BTreeMap<IpAddr, AddressState>>,
    /// Those that have yielded, and to which other one.
    pub yielded: BTreeMap<IpAddr, IpAddr>,
    /// Every change that was taken.
    pub changes: Vec<AddressChange>,
}

impl Device for Fake {
    fn ensure_device(&mut self) -> Result<(), NetlinkError> {
        self.addresses.get_or_insert_default();
        Ok(())
    }

    fn addresses(&mut self, family: Family) -> Result<BTreeMap<IpAddr, AddressState>, NetlinkError> {
        let all = self.addresses.iter().flatten();
        Ok(all
            .filter(|(address, _)| Family::of(address) == family)
            .map(|(address, state)| (*address, *state))
            .collect())
    }

    fn change_addresses(&mut self, changes: &[AddressChange]) -> Result<(), NetlinkError> {
        for change in changes {
            let gone = || NetlinkError::new(format!("{change:?}"), io::Error::from_raw_os_error(ENODEV));
            let addresses = self.addresses.as_mut().ok_or_else(gone)?;
            match change {
                AddressChange::Bind(address) => drop(addresses.insert(*address, AddressState::of_bound(address))),
                AddressChange::Unbind(address) => {
                    addresses.remove(address);
                    self.yielded.remove(address);
                }
                AddressChange::Yield { address, to } => drop(self.yielded.insert(*address, *to)),
            }
            self.changes.push(*change);
        }
        Ok(())
    }

    fn remove_device(&mut self) -> Result<(), NetlinkError> {
        self.addresses = None;
        Ok(())
    }
}

/// The kernel's device, by routing netlink.
pub struct Rtnetlink(Netlink);

impl Rtnetlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the kernel has none for us.
    pub fn open() -> Result<Rtnetlink, NetlinkError> {
        let opened = Netlink::open(NETLINK_ROUTE);
        opened.map(Rtnetlink).map_err(|error| NetlinkError::new("open a socket for routing netlink", error))
    }
}

impl Device for Rtnetlink {
    fn ensure_device(&mut self) -> Result<(), NetlinkError> {
        self.0.send(&[make_device()])
    }

    fn addresses(&mut self, family: Family) -> Result<BTreeMap<IpAddr, AddressState>, NetlinkError> {
        let operation = format!("list the addresses of {DEVICE}");
        let Ok(index) = if_nametoindex(DEVICE) else { return Ok(BTreeMap::new()) };
        let mut found = BTreeMap::new();
        let mut message = AddressMessage::default();
        message.header.family = address_family(family);
        let request = request(libc::RTM_GETADDR, 0, &message, operation, &[]);
        self.0.ask(&request, true, |payload| {
            let Some((header, address)) = address_of(payload) else { return };
            if header.index != index || is_automatic(&address) {
                return;
            }
            // IPv4 has lifetimes, too, but chooses no source by them.
            let deprecated = family == Family::V6 && header.flags.contains(AddressHeaderFlags::Deprecated);
            let state = if deprecated { AddressState::Deprecated } else { AddressState::Preferred };
            found.insert(address, state);
        })?;
        Ok(found)
    }

    fn change_addresses(&mut self, changes: &[AddressChange]) -> Result<(), NetlinkError> {
        if changes.is_empty() {
            return Ok(());
        }
        let index = if_nametoindex(DEVICE)
            .map_err(|error| NetlinkError::new(format!("find the device {DEVICE}"), io::Error::from(error)))?;
        let requests = changes.iter().flat_map(|change| match *change {
            AddressChange::Bind(address) => vec![bind(address, index)],
            AddressChange::Unbind(address) => vec![unbind(address, index), end_yielding(address)],
            AddressChange::Yield { address, to } => yield_to(address, to, index),
        });
        self.0.send(&requests.collect::<Vec<_>>())
    }

    fn remove_device(&mut self) -> Result<(), NetlinkError> {
        let Ok(index) = if_nametoindex(DEVICE) else { return Ok(()) };
        self.0.send(&[remove_device(index)])
    }
}

fn request(kind: u16, flags: u16, message: &impl Emitable, operation: String, harmless: &'static [i32]) -> Request {
    let mut header = vec![0; message.buffer_len()];
    message.emit(&mut header);
    Request { kind, flags, header, attributes: Attributes::new(), operation, harmless }
}

fn make_device() -> Request {
    let mut link = LinkMessage::default();
    link.attributes.push(LinkAttribute::IfName(DEVICE.to_owned()));
    link.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Dummy)]));
    let operation = format!("make the device {DEVICE} (module dummy)");
    request(libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link, operation, &[EEXIST])
}

fn remove_device(index: u32) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = index;
    request(libc::RTM_DELLINK, 0, &link, format!("remove the device {DEVICE}"), &[ENODEV])
}

fn address_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

fn bind(address: IpAddr, index: u32) -> Request {
    let operation = format!("bind {address} ({DEVICE})");
    let mut message = of_device(address, index);
    match Family::of(&address) {
        Family::V4 => request(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &message, operation, &[EEXIST]),
        // One that is there stays, with its routes, and is deprecated from now on (`inet6_addr_modify`, net/ipv6/addrconf.c).
        // Without duplicate address detection it is usable at once.
        Family::V6 => {
            message.header.flags = AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::CacheInfo(deprecated_for_ever()));
            request(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &message, operation, &[])
        }
    }
}

/// The preferred lifetime is over, the valid one has no end (all bits set).
fn deprecated_for_ever() -> CacheInfo {
    let mut lifetimes = CacheInfo::default();
    (lifetimes.ifa_preferred, lifetimes.ifa_valid) = (0, u32::MAX);
    lifetimes
}

fn unbind(address: IpAddr, index: u32) -> Request {
    let operation = format!("unbind {address} ({DEVICE})");
    request(libc::RTM_DELADDR, 0, &of_device(address, index), operation, &[EADDRNOTAVAIL])
}

fn of_device(address: IpAddr, index: u32) -> AddressMessage {
    let family = Family::of(&address);
    let mut message = AddressMessage::default();
    message.header.family = address_family(family);
    message.header.prefix_len = family.address_bits();
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    message
}

/// The route that the kernel made with the address gives way to one that names another source. It leads to the loopback
/// device, because IPv6 takes no route to a device that is down; for delivery to the node itself it makes no difference.
fn yield_to(address: IpAddr, to: IpAddr, index: u32) -> Vec<Request> {
    let operation = format!("let {address} ({DEVICE}) yield to {to} as a source");
    let mut route = local_route(address, LOOPBACK);
    route.attributes.push(RouteAttribute::PrefSource(RouteAddress::from(to)));
    let replacement = request(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &route, operation, &[]);
    match Family::of(&address) {
        Family::V4 => vec![replacement],
        // IPv6 gives every route of ours a worse metric than its own, which stays beside it.
        Family::V6 => vec![replacement, delete_route(address, index)],
    }
}

/// The kernel does not take away with the address what it has not made with it.
fn end_yielding(address: IpAddr) -> Request {
    delete_route(address, LOOPBACK)
}

/// That there is none is no error.
fn delete_route(address: IpAddr, index: u32) -> Request {
    let operation = format!("delete the local route to {address} ({DEVICE})");
    request(libc::RTM_DELROUTE, 0, &local_route(address, index), operation, &[ESRCH])
}

/// Index of the loopback device in every network namespace (`LOOPBACK_IFINDEX`, `include/net/flow.h`).
const LOOPBACK: u32 = 1;

/// The route to one address of the node's own.
fn local_route(address: IpAddr, index: u32) -> RouteMessage {
    let family = Family::of(&address);
    let mut route = RouteMessage::default();
    route.header = RouteHeader {
        address_family: address_family(family),
        destination_prefix_length: family.address_bits(),
        table: libc::RT_TABLE_LOCAL,
        protocol: RouteProtocol::Kernel,
        scope: RouteScope::Host,
        kind: RouteType::Local,
        ..RouteHeader::default()
    };
    route.attributes = vec![RouteAttribute::Destination(RouteAddress::from(address)), RouteAttribute::Oif(index)];
    route
}

/// The link-local address that IPv6 puts on every device.
fn is_automatic(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What follows the netlink header, as the kernel of Linux 6.18 has taken it.
    #[test]
    fn messages_are_those_that_the_kernel_takes() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let [v4, v6] = ["10.96.0.10", "fd00:96::a"].map(address);
        let mut requests =
            vec![make_device(), remove_device(7), bind(v4, 7), bind(v6, 7), unbind(v4, 7), unbind(v6, 7)];
        requests.extend([end_yielding(v4), end_yielding(v6)]);
        requests.extend(yield_to(v4, address("172.18.0.2"), 7));
        requests.extend(yield_to(v6, address("fd00::2"), 7));
        let sent: Vec<String> =
            requests.iter().map(|request| data_encoding::HEXLOWER.encode(&request.header)).collect();
        let expected = [
            "000000000000000000000000000000000f0003006b7562652d69707673300000100012000a00010064756d6d79000000",
            "00000000070000000000000000000000",
            "0220000007000000080002000a60000a080001000a60000a",
            "0a8002000700000014000200fd00009600000000000000000000000a14000100fd00009600000000000000000000000a1400060000000000ffffffff0000000000000000",
            "0220000007000000080002000a60000a080001000a60000a",
            "0a8000000700000014000200fd00009600000000000000000000000a14000100fd00009600000000000000000000000a",
            "02200000ff02fe0200000000080001000a60000a0800040001000000",
            "0a800000ff02fe020000000014000100fd00009600000000000000000000000a0800040001000000",
            "02200000ff02fe0200000000080001000a60000a080004000100000008000700ac120002",
            "0a800000ff02fe020000000014000100fd00009600000000000000000000000a080004000100000014000700fd000000000000000000000000000002",
            "0a800000ff02fe020000000014000100fd00009600000000000000000000000a0800040007000000",
        ];
        assert_eq!(sent, expected);
    }
}
