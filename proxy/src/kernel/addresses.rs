//! The node's own addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::dummy::DEVICE;
use crate::config::NodeAddresses;
use crate::model::Family;

/// Reads every address of every interface that is up, but for the device that holds service addresses. The primary address of a family is the first that is neither
/// loopback nor link-local; a Node object, where there is one, says better.
///
/// # Errors
/// When the kernel does not answer `getifaddrs(3)`.
pub fn read() -> std::io::Result<NodeAddresses> {
    let mut found = NodeAddresses::default();
    // What each interface that packets may come in by has an address of.
    let mut addressed: BTreeMap<String, BTreeSet<Family>> = BTreeMap::new();
    for interface in getifaddrs()? {
        let up = interface.flags.contains(InterfaceFlags::IFF_UP);
        if up && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK) && interface.interface_name != DEVICE {
            let families = addressed.entry(interface.interface_name.clone()).or_default();
            let address = interface.address.as_ref().and_then(ip);
            families.extend(address.filter(|ip| ip.is_ipv4() || !is_link_local(ip)).map(|ip| Family::of(&ip)));
        }
        let Some(address) = interface.address.as_ref().and_then(ip) else { continue };
        if !interface.flags.contains(InterfaceFlags::IFF_UP) || interface.interface_name == DEVICE {
            continue;
        }
        // Every pod's interface brings a link-local address of IPv6 along: a change that concerns no service.
        if address.is_ipv6() && is_link_local(&address) {
            continue;
        }
        found.local.push(address);
        let family = Family::of(&address);
        let has_primary = found.primary.iter().any(|p| Family::of(p) == family);
        if !has_primary && !address.is_loopback() && !is_link_local(&address) {
            found.primary.push(address);
        }
    }
    // What comes in by the port of a bridge has come in by the bridge.
    addressed.retain(|name, _| !Path::new("/sys/class/net").join(name).join("master").exists());
    let is_bare = |family: &Family| addressed.values().any(|families| !families.contains(family));
    found.bare = Family::ALL.into_iter().filter(is_bare).collect();
    Ok(found)
}

fn ip(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
