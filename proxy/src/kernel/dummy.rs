//! The dummy device that makes service addresses local, so that packets to them reach IPVS. It is never up.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc::{self, EADDRNOTAVAIL, EEXIST, ENODEV, ESRCH};
use nix::net::if_::if_nametoindex;

use super::netlink::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NetlinkError, NetlinkSocket, Request};
use super::netlink::{address_header, link_header, own_address, route_header};
use crate::model::Family;

pub const DEVICE: &str = "kube-ipvs0";

/// RFC 4862, section 5.5.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressState {
    Preferred,
    /// A source address only if no other exists.
    Deprecated,
}

impl AddressState {
    /// Returns a bound address's state. On a link without IPv6 addresses the kernel chooses the node's address that is
    /// most like the destination (RFC 6724, rule 8). It must not choose a service address, which is therefore
    /// deprecated (rule 3).
    pub fn of_bound(address: &IpAddr) -> AddressState {
        match address {
            IpAddr::V4(_) => AddressState::Preferred,
            IpAddr::V6(_) => AddressState::Deprecated,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressChange {
    /// Adds the address, or corrects its state.
    Bind(IpAddr),
    Unbind(IpAddr),
    /// Keeps the address, but gives new packets to it another source.
    Yield {
        address: IpAddr,
        to: IpAddr,
    },
}

pub trait ServiceDevice {
    fn ensure_device(&mut self) -> Result<(), NetlinkError>;

    /// Excludes automatic (link-local) addresses.
    fn addresses(&mut self, family: Family) -> Result<BTreeMap<IpAddr, AddressState>, NetlinkError>;

    /// Applies changes in order; ignores existing and missing addresses.
    fn change_addresses(&mut self, changes: &[AddressChange]) -> Result<(), NetlinkError>;

    fn remove_device(&mut self) -> Result<(), NetlinkError>;
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FakeDevice {
    pub addresses: Option<BTreeMap<IpAddr, AddressState>>,
    /// The source that replaces each address ([`AddressChange::Yield`]).
    pub yielded: BTreeMap<IpAddr, IpAddr>,
    pub changes: Vec<AddressChange>,
}

impl ServiceDevice for FakeDevice {
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

pub struct Rtnetlink(NetlinkSocket);

impl Rtnetlink {
    pub fn open() -> Result<Rtnetlink, NetlinkError> {
        let opened = NetlinkSocket::open(NETLINK_ROUTE);
        opened.map(Rtnetlink).map_err(|error| NetlinkError::new("open a socket for routing netlink", error))
    }
}

impl ServiceDevice for Rtnetlink {
    fn ensure_device(&mut self) -> Result<(), NetlinkError> {
        self.0.send(&[create_device()])
    }

    fn addresses(&mut self, family: Family) -> Result<BTreeMap<IpAddr, AddressState>, NetlinkError> {
        let Ok(index) = if_nametoindex(DEVICE) else { return Ok(BTreeMap::new()) };
        let header = address_header(Some(family), 0, 0, 0);
        let request = Request::new(libc::RTM_GETADDR, &header, format!("list the addresses of {DEVICE}"));
        let mut found = BTreeMap::new();
        self.0.dump(&request, |payload| {
            let Some(one) = own_address(payload).filter(|one| one.link == index) else { return };
            if is_automatic(&one.address) {
                return;
            }
            // The kernel ignores the lifetimes of IPv4 addresses.
            let is_deprecated = family == Family::V6 && u32::from(one.flags) & libc::IFA_F_DEPRECATED != 0;
            let state = if is_deprecated { AddressState::Deprecated } else { AddressState::Preferred };
            found.insert(one.address, state);
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
            AddressChange::Unbind(address) => vec![unbind(address, index), delete_route(address, LOOPBACK)],
            AddressChange::Yield { address, to } => yield_to(address, to, index),
        });
        self.0.send(&requests.collect::<Vec<_>>())
    }

    fn remove_device(&mut self) -> Result<(), NetlinkError> {
        let Ok(index) = if_nametoindex(DEVICE) else { return Ok(()) };
        self.0.send(&[remove_device(index)])
    }
}

/// `IFLA_LINKINFO` and `IFLA_INFO_KIND` (`include/uapi/linux/if_link.h`).
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
/// `IFA_CACHEINFO` (`include/uapi/linux/if_addr.h`).
const CACHE_INFO: u16 = 6;
/// `LOOPBACK_IFINDEX` (`include/net/flow.h`).
const LOOPBACK: u32 = 1;

fn create_device() -> Request {
    let operation = format!("make the device {DEVICE} (module dummy)");
    let mut request = Request::new(libc::RTM_NEWLINK, &link_header(0), operation);
    (request.flags, request.harmless) = (NLM_F_CREATE | NLM_F_EXCL, &[EEXIST]);
    request.body.name(libc::IFLA_IFNAME, "device", DEVICE);
    let info = request.body.open(LINK_INFO);
    request.body.name(INFO_KIND, "kind of link", "dummy");
    request.body.close(info);
    request
}

fn remove_device(index: u32) -> Request {
    let request = Request::new(libc::RTM_DELLINK, &link_header(index), format!("remove the device {DEVICE}"));
    Request { harmless: &[ENODEV], ..request }
}

fn bind(address: IpAddr, index: u32) -> Request {
    let operation = format!("bind {address} ({DEVICE})");
    match Family::of(&address) {
        Family::V4 => {
            let request = address_request(libc::RTM_NEWADDR, address, 0, index, operation);
            Request { flags: NLM_F_CREATE | NLM_F_EXCL, harmless: &[EEXIST], ..request }
        }
        // An existing address stays and becomes deprecated (`inet6_addr_modify`, net/ipv6/addrconf.c).
        Family::V6 => {
            let flags = u8::try_from(libc::IFA_F_NODAD).unwrap_or_default();
            let mut request = address_request(libc::RTM_NEWADDR, address, flags, index, operation);
            request.flags = NLM_F_CREATE | NLM_F_REPLACE;
            // `struct ifa_cacheinfo`: preferred lifetime 0, valid for ever.
            let lifetimes = [0, u32::MAX, 0, 0].map(u32::to_ne_bytes);
            request.body.put(CACHE_INFO, lifetimes.as_flattened());
            request
        }
    }
}

fn unbind(address: IpAddr, index: u32) -> Request {
    let operation = format!("unbind {address} ({DEVICE})");
    Request { harmless: &[EADDRNOTAVAIL], ..address_request(libc::RTM_DELADDR, address, 0, index, operation) }
}

fn address_request(kind: u16, address: IpAddr, flags: u8, index: u32, operation: String) -> Request {
    let family = Family::of(&address);
    let mut request = Request::new(kind, &address_header(Some(family), family.address_bits(), flags, index), operation);
    put_address(libc::IFA_LOCAL, address, &mut request);
    put_address(libc::IFA_ADDRESS, address, &mut request);
    request
}

fn put_address(kind: u16, address: IpAddr, request: &mut Request) {
    match address {
        IpAddr::V4(v4) => request.body.put(kind, &v4.octets()),
        IpAddr::V6(v6) => request.body.put(kind, &v6.octets()),
    }
}

/// Replaces the kernel's route to the address by one with another source. It is on the loopback device: IPv6 accepts no
/// route to a device that is down.
fn yield_to(address: IpAddr, to: IpAddr, index: u32) -> Vec<Request> {
    let operation = format!("let {address} ({DEVICE}) yield to {to} as a source");
    let mut replacement = local_route(libc::RTM_NEWROUTE, address, LOOPBACK, operation);
    replacement.flags = NLM_F_CREATE | NLM_F_REPLACE;
    put_address(libc::RTA_PREFSRC, to, &mut replacement);
    match Family::of(&address) {
        Family::V4 => vec![replacement],
        // IPv6 keeps the kernel's route with a better metric.
        Family::V6 => vec![replacement, delete_route(address, index)],
    }
}

/// Deletes a local route. The kernel keeps that of [`yield_to`] when it deletes the address.
fn delete_route(address: IpAddr, index: u32) -> Request {
    let operation = format!("delete the local route to {address} ({DEVICE})");
    Request { harmless: &[ESRCH], ..local_route(libc::RTM_DELROUTE, address, index, operation) }
}

fn local_route(kind: u16, address: IpAddr, index: u32, operation: String) -> Request {
    let family = Family::of(&address);
    let mut header = route_header(family, family.address_bits());
    header[4..8].copy_from_slice(&[libc::RT_TABLE_LOCAL, libc::RTPROT_KERNEL, libc::RT_SCOPE_HOST, libc::RTN_LOCAL]);
    let mut request = Request::new(kind, &header, operation);
    put_address(libc::RTA_DST, address, &mut request);
    request.body.put(libc::RTA_OIF, &index.to_ne_bytes());
    request
}

fn is_automatic(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_that_the_kernel_takes() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let [v4, v6] = ["10.96.0.10", "fd00:96::a"].map(address);
        let mut requests =
            vec![create_device(), remove_device(7), bind(v4, 7), bind(v6, 7), unbind(v4, 7), unbind(v6, 7)];
        requests.extend([v4, v6].map(|address| delete_route(address, LOOPBACK)));
        requests.extend(yield_to(v4, address("172.18.0.2"), 7));
        requests.extend(yield_to(v6, address("fd00::2"), 7));
        let sent: Vec<String> =
            requests.iter().map(|request| data_encoding::HEXLOWER.encode(request.body.bytes())).collect();
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
