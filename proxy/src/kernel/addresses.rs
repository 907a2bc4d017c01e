#![allow(unsafe_code, reason = "an AsyncFd asks for a promise about its descriptor")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use netlink_sys::protocols::NETLINK_ROUTE;
use nf_tables::netlink::Attributes;
use nix::libc;
use nix::sys::socket::SockProtocol;
use tokio::io::unix::AsyncFd;

use super::dummy::DEVICE;
use super::multicast::MulticastListener;
use super::netlink::{LINK_HEADER, NetlinkError, NetlinkSocket, Request, address_header, link_header, own_address};
use super::next_hops;
use crate::config::NodeAddresses;
use crate::model::{Family, is_link_local};

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR` (`include/uapi/linux/rtnetlink.h`).
const CHANGES: u32 = 0x1 | 0x10 | 0x100;
/// `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_ROUTE`: a new tunnel end always adds a route, too.
const ROUTE_CHANGES: u32 = 0x40 | 0x400;

/// `IFLA_EXT_MASK` and `RTEXT_FILTER_SKIP_STATS` (`include/uapi/linux/if_link.h`, `rtnetlink.h`).
const EXTENDED_MASK: u16 = 29;
const SKIP_STATS: u32 = 1 << 3;

#[derive(Debug, Clone, PartialEq, Eq)]
struct UpLink {
    name: String,
    loopback: bool,
    /// Whether packets arrive by another link, such as a bridge.
    is_port: bool,
}

/// Returns the addresses of all links that are up, except service addresses. The primary address is the first that is
/// neither loopback nor link-local, unless a Node object names another.
///
/// Does not use `getifaddrs(3)`, which misses addresses while pods' links change.
pub fn read() -> Result<NodeAddresses, NetlinkError> {
    let opened = NetlinkSocket::open(NETLINK_ROUTE);
    let mut socket = opened.map_err(|error| NetlinkError::new("open a socket for links and addresses", error))?;
    let (links, _) = links(&mut socket)?;
    let addresses = addresses(&mut socket)?;
    Ok(of(&links, &addresses))
}

fn read_for_ipvs() -> Result<NodeAddresses, NetlinkError> {
    let opened = NetlinkSocket::open(NETLINK_ROUTE);
    let mut socket = opened.map_err(|error| NetlinkError::new("open a socket for routes", error))?;
    let (links, device) = links(&mut socket)?;
    let addresses = addresses(&mut socket)?;
    let on_device = addresses.iter().filter(|(index, _)| Some(*index) == device);
    let mut of_services: Vec<IpAddr> = on_device.map(|(_, address)| *address).collect();
    of_services.sort_unstable();
    let next_hops = next_hops::read(&mut socket)?;
    Ok(NodeAddresses { next_hops, of_services: Some(of_services), ..of(&links, &addresses) })
}

pub(super) fn without_address(
    socket: &mut NetlinkSocket,
    index: u32,
    family: Family,
) -> Result<Option<String>, NetlinkError> {
    let addressed = addresses(socket)?.iter().any(|(of, address)| *of == index && Family::of(address) == family);
    let (mut links, _) = links(socket)?;
    let link = links.remove(&index).filter(|_| !addressed);
    Ok(link.map(|link| link.name))
}

pub trait Addresses {
    fn read(&mut self) -> Result<&NodeAddresses, NetlinkError>;

    /// Returns `Ready` once [`Addresses::read`] may return other addresses.
    fn poll_changed(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

#[derive(Debug, Default)]
pub struct AddressReader {
    changes: Option<Arc<MulticastListener>>,
    wakes: Option<AsyncFd<Arc<MulticastListener>>>,
    has_changed: bool,
    known: Option<NodeAddresses>,
    for_ipvs: bool,
}

impl AddressReader {
    /// With `for_ipvs`, also reads [`NodeAddresses::next_hops`], [`NodeAddresses::of_services`] and receives
    /// announcements of routes.
    pub fn new(for_ipvs: bool) -> AddressReader {
        AddressReader { for_ipvs, ..AddressReader::default() }
    }
}

impl Addresses for AddressReader {
    /// All calls read the network namespace of the first call.
    fn read(&mut self) -> Result<&NodeAddresses, NetlinkError> {
        if self.changes.is_none() {
            // If announcements are refused, every call reads again.
            let groups = if self.for_ipvs { CHANGES | ROUTE_CHANGES } else { CHANGES };
            self.changes = MulticastListener::of(SockProtocol::NetlinkRoute, groups).ok().map(Arc::new);
        }
        // Taken before the read, so that a change during it causes another read.
        let has_changed = self.changes.as_ref().is_none_or(|changes| changes.take()) | self.has_changed;
        self.has_changed = false;
        let known = self.known.take().filter(|_| !has_changed);
        let read = if self.for_ipvs { read_for_ipvs } else { read };
        Ok(self.known.insert(known.map_or_else(read, Ok)?))
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(changes) = &self.changes else { return Poll::Pending };
        if self.wakes.is_none() {
            // SAFETY: the value yields the same open descriptor for as long as the AsyncFd lives.
            self.wakes = unsafe { AsyncFd::register(Arc::clone(changes)) }.ok();
        }
        let Some(wakes) = &self.wakes else { return Poll::Pending };
        while !self.has_changed {
            let Poll::Ready(Ok(mut ready)) = wakes.poll_read_ready(context) else { return Poll::Pending };
            self.has_changed = changes.take();
            ready.clear_ready();
        }
        Poll::Ready(())
    }
}

fn of(links: &BTreeMap<u32, UpLink>, addresses: &[(u32, IpAddr)]) -> NodeAddresses {
    let mut found = NodeAddresses::default();
    let entrances = links.iter().filter(|(_, link)| !link.loopback && !link.is_port);
    let mut addressed: BTreeMap<u32, BTreeSet<Family>> =
        entrances.map(|(index, _)| (*index, BTreeSet::new())).collect();
    // Every pod's interface has a link-local IPv6 address, which concerns no service.
    let automatic = |address: &IpAddr| address.is_ipv6() && is_link_local(address);
    for (index, address) in addresses.iter().filter(|(index, address)| links.contains_key(index) && !automatic(address))
    {
        let family = Family::of(address);
        if let Some(families) = addressed.get_mut(index) {
            families.insert(family);
        }
        found.local.push(*address);
        let has_primary = found.primary.iter().any(|primary| Family::of(primary) == family);
        if !has_primary && !address.is_loopback() && !is_link_local(address) {
            found.primary.push(*address);
        }
    }
    let is_bare = |family: &Family| addressed.values().any(|families| !families.contains(family));
    // Removes duplicates: some CNIs give each pod's interface the gateway's address.
    found.local.sort_unstable();
    found.local.dedup();
    found.links =
        links.values().filter(|link| !link.loopback && !link.name.is_empty()).map(|link| link.name.clone()).collect();
    found.links.sort_unstable();
    found.bare = Family::ALL.into_iter().filter(is_bare).collect();
    found
}

fn links(socket: &mut NetlinkSocket) -> Result<(BTreeMap<u32, UpLink>, Option<u32>), NetlinkError> {
    let mut request = Request::new(libc::RTM_GETLINK, &link_header(0), "list the node's links");
    // Skips the counters, which are most of a link's attributes.
    request.body.put(EXTENDED_MASK, &SKIP_STATS.to_ne_bytes());
    let (mut links, mut device) = (BTreeMap::new(), None);
    socket.dump(&request, |payload| {
        let word = |at: usize| Some(u32::from_ne_bytes(*payload.get(at..)?.first_chunk()?));
        // `ifi_index` and `ifi_flags` of `struct ifinfomsg`.
        let (Some(index), Some(flags)) = (word(4), word(8)) else { return };
        let has = |flag: libc::c_int| flags & flag.cast_unsigned() != 0;
        if !has(libc::IFF_UP) {
            return;
        }
        let attributes = Attributes::after_header(payload, LINK_HEADER);
        let name = attributes.text(libc::IFLA_IFNAME).unwrap_or_default();
        if name == DEVICE {
            device = Some(index);
        } else {
            let is_port = attributes.get(libc::IFLA_MASTER).is_some();
            links.insert(index, UpLink { name: name.to_owned(), loopback: has(libc::IFF_LOOPBACK), is_port });
        }
    })?;
    Ok((links, device))
}

fn addresses(socket: &mut NetlinkSocket) -> Result<Vec<(u32, IpAddr)>, NetlinkError> {
    let mut addresses = Vec::new();
    let request = Request::new(libc::RTM_GETADDR, &address_header(None, 0, 0, 0), "list the node's addresses");
    socket.dump(&request, |payload| addresses.extend(own_address(payload).map(|one| (one.link, one.address))))?;
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(links: &[(u32, bool, bool)], addresses: &[(u32, &str)]) -> NodeAddresses {
        let links = links.iter().map(|(index, loopback, is_port)| {
            let link = UpLink { name: format!("link{index}"), loopback: *loopback, is_port: *is_port };
            (*index, link)
        });
        let addresses: Vec<(u32, IpAddr)> =
            addresses.iter().map(|(index, text)| (*index, text.parse().unwrap())).collect();
        of(&links.collect(), &addresses)
    }

    #[test]
    fn the_first_of_a_family_that_others_can_reach_is_the_primary_one() {
        let links = [(1, true, false), (2, false, false)];
        let found = node(
            &links,
            &[(1, "127.0.0.1"), (2, "172.18.0.2"), (2, "10.0.0.2"), (1, "::1"), (2, "fd00::2"), (9, "192.0.2.9")],
        );
        let texts = |addresses: &[IpAddr]| addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&found.primary), ["172.18.0.2", "fd00::2"]);
        assert_eq!(texts(&found.local), ["10.0.0.2", "127.0.0.1", "172.18.0.2", "::1", "fd00::2"]);
        assert!(found.bare.is_empty());
    }

    #[test]
    fn an_address_on_many_links_counts_once_whatever_their_order() {
        let pods = |links: &[u32]| {
            let up: Vec<_> = links.iter().map(|index| (*index, false, false)).collect();
            let addresses: Vec<_> = links.iter().map(|index| (*index, "10.244.1.1")).collect();
            node(&up, &[&[(9, "172.18.0.2")][..], &addresses].concat()).local
        };
        assert_eq!(pods(&[3]), pods(&[7, 4, 5]));
    }

    #[test]
    fn a_link_that_pods_come_in_by_without_an_address_is_bare_and_a_port_of_a_bridge_is_not() {
        let links = [(1, true, false), (2, false, false), (3, false, true)];
        let addresses = [(1, "127.0.0.1"), (2, "172.18.0.2"), (2, "fd00::2"), (3, "fe80::3")];
        let found = node(&links, &addresses);
        assert!(found.bare.is_empty(), "{found:?}");
        let routed = node(&[(2, false, false), (3, false, false)], &addresses);
        assert_eq!(routed.bare, Family::ALL);
        assert_eq!(routed.local.len(), 2, "link-local addresses of IPv6 are left out");
    }
}
