//! The device that holds service addresses, so that packets to them are taken for the node's own and reach IPVS: a dummy,
//! which is never up and answers nothing itself.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc::{self, EADDRNOTAVAIL, EEXIST, ENODEV, ESRCH};
use nix::net::if_::if_nametoindex;

use super::netlink::{Attributes, IFA_ADDRESS, IFA_LOCAL, Netlink, NetlinkError, Parsed, Request, own_address};
use crate::model::Family;

/// The device's name, as upstream's.
pub const DEVICE: &str = "kube-ipvs0";

/// `IFLA_IFNAME`, `IFLA_LINKINFO`, `IFLA_INFO_KIND` (`include/uapi/linux/if_link.h`).
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
/// `IFA_CACHEINFO` (`include/uapi/linux/if_addr.h`).
const IFA_CACHEINFO: u16 = 6;
/// `RTA_DST`, `RTA_OIF`, `RTA_PREFSRC` (`include/uapi/linux/rtnetlink.h`).
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;
/// `IFA_F_NODAD`: usable at once, without asking the link who else has it.
const IFA_F_NODAD: u8 = 2;
/// `IFA_F_DEPRECATED`: its preferred lifetime is over.
const IFA_F_DEPRECATED: u8 = 0x20;

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
        let info = Attributes::new().text(IFLA_INFO_KIND, "dummy");
        let attributes = Attributes::new().text(IFLA_IFNAME, DEVICE).nested(IFLA_LINKINFO, &info);
        let operation = format!("make the device {DEVICE} (module dummy)");
        let request = request(libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, link(0), attributes, operation, &[EEXIST]);
        self.0.send(&[request])
    }

    fn addresses(&mut self, family: Family) -> Result<BTreeMap<IpAddr, AddressState>, NetlinkError> {
        let operation = format!("list the addresses of {DEVICE}");
        let Ok(index) = if_nametoindex(DEVICE) else { return Ok(BTreeMap::new()) };
        let header = address_header(family, 0, 0);
        let mut found = BTreeMap::new();
        let request = request(libc::RTM_GETADDR, 0, header, Attributes::new(), operation, &[]);
        self.0.ask(&request, true, |payload| {
            let of_device = payload.get(4..8) == Some(&index.to_ne_bytes());
            let attributes = Parsed::read(payload.get(8..).unwrap_or_default());
            let address = own_address(&attributes).filter(|address| of_device && !is_automatic(address));
            // Flags are the third byte of `struct ifaddrmsg`. IPv4 has lifetimes, too, but chooses no source by them.
            let deprecated = family == Family::V6 && payload.get(2).is_some_and(|flags| flags & IFA_F_DEPRECATED != 0);
            let state = if deprecated { AddressState::Deprecated } else { AddressState::Preferred };
            found.extend(address.map(|address| (address, state)));
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
        let operation = format!("remove the device {DEVICE}");
        self.0.send(&[request(libc::RTM_DELLINK, 0, link(index), Attributes::new(), operation, &[ENODEV])])
    }
}

fn request(
    kind: u16,
    flags: u16,
    header: Vec<u8>,
    attributes: Attributes,
    operation: String,
    harmless: &'static [i32],
) -> Request {
    Request { kind, flags, header, attributes, operation, harmless }
}

/// `struct ifinfomsg`: family, padding, type, index, flags, change mask.
fn link(index: u32) -> Vec<u8> {
    let mut header = vec![0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

/// `struct ifaddrmsg`: family, prefix length, flags, scope, index.
fn address_header(family: Family, flags: u8, index: u32) -> Vec<u8> {
    let mut header = vec![number(family), family.address_bits(), flags, 0];
    header.extend(index.to_ne_bytes());
    header
}

fn number(family: Family) -> u8 {
    let number = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    u8::try_from(number).unwrap_or_default()
}

fn bind(address: IpAddr, index: u32) -> Request {
    let family = Family::of(&address);
    let operation = format!("bind {address} ({DEVICE})");
    match family {
        Family::V4 => {
            let header = address_header(family, 0, index);
            request(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, header, both(address), operation, &[EEXIST])
        }
        // One that is there stays, with its routes, and is deprecated from now on (`inet6_addr_modify`, net/ipv6/addrconf.c).
        Family::V6 => {
            let header = address_header(family, IFA_F_NODAD, index);
            let attributes = both(address).bytes(IFA_CACHEINFO, &deprecated_for_ever());
            request(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, header, attributes, operation, &[])
        }
    }
}

/// `struct ifa_cacheinfo`: preferred and valid lifetimes in seconds, then two times that the kernel fills in. All bits set are
/// no end.
fn deprecated_for_ever() -> Vec<u8> {
    [0, u32::MAX, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect()
}

fn unbind(address: IpAddr, index: u32) -> Request {
    let header = address_header(Family::of(&address), 0, index);
    let operation = format!("unbind {address} ({DEVICE})");
    request(libc::RTM_DELADDR, 0, header, both(address), operation, &[EADDRNOTAVAIL])
}

fn both(address: IpAddr) -> Attributes {
    Attributes::new().bytes(IFA_LOCAL, &octets(address)).bytes(IFA_ADDRESS, &octets(address))
}

/// The route that the kernel made with the address gives way to one that names another source. It leads to the loopback
/// device, because IPv6 takes no route to a device that is down; for delivery to the node itself it makes no difference.
fn yield_to(address: IpAddr, to: IpAddr, index: u32) -> Vec<Request> {
    let family = Family::of(&address);
    let operation = format!("let {address} ({DEVICE}) yield to {to} as a source");
    let attributes = route_to(address, LOOPBACK).bytes(RTA_PREFSRC, &octets(to));
    let flags = NLM_F_CREATE | NLM_F_REPLACE;
    let replacement = request(libc::RTM_NEWROUTE, flags, local_route(family), attributes, operation, &[]);
    match family {
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
    request(libc::RTM_DELROUTE, 0, local_route(Family::of(&address)), route_to(address, index), operation, &[ESRCH])
}

/// Index of the loopback device in every network namespace (`LOOPBACK_IFINDEX`, `include/net/flow.h`).
const LOOPBACK: u32 = 1;

fn route_to(address: IpAddr, index: u32) -> Attributes {
    Attributes::new().bytes(RTA_DST, &octets(address)).bytes(RTA_OIF, &index.to_ne_bytes())
}

/// `struct rtmsg` of one address in the table `local`: family, lengths of destination and source, TOS, table, protocol,
/// scope, type, flags.
fn local_route(family: Family) -> Vec<u8> {
    let mut header = vec![number(family), family.address_bits(), 0, 0];
    header.extend([libc::RT_TABLE_LOCAL, libc::RTPROT_KERNEL, libc::RT_SCOPE_HOST, libc::RTN_LOCAL]);
    header.extend([0; 4]);
    header
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The link-local address that IPv6 puts on every device.
fn is_automatic(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}
