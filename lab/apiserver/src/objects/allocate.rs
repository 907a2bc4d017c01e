//! Allocates addresses and ports deterministically, from manifest and seed alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use svclab_spec::nth_address;

/// Default of `--service-node-port-range`.
pub(super) const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

#[derive(Debug, Clone, Default)]
pub(super) struct Allocations {
    addresses: BTreeMap<IpAddr, String>,
    node_ports: BTreeMap<(u16, String), String>,
    /// The owners of ports at addresses that several Services share.
    frontends: BTreeMap<(IpAddr, u16, String), String>,
    held: BTreeMap<String, OwnedAllocations>,
    /// A host number per range below which all are taken. Searches skip these, which avoids quadratic time.
    taken_below: BTreeMap<IpNet, u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnedAllocations {
    addresses: BTreeSet<IpAddr>,
    node_ports: BTreeSet<(u16, String)>,
    frontends: BTreeSet<(IpAddr, u16, String)>,
}

impl Allocations {
    /// The error is the present owner.
    pub(super) fn claim_address(&mut self, address: IpAddr, owner: &str) -> Result<(), String> {
        match self.addresses.get(&address) {
            Some(present) if present != owner => Err(present.clone()),
            _ => {
                self.addresses.insert(address, owner.to_owned());
                self.held.entry(owner.to_owned()).or_default().addresses.insert(address);
                Ok(())
            }
        }
    }

    /// Claims ports (number, protocol) of an address that several owners may share; the error is the present owner.
    pub(super) fn share_address(
        &mut self,
        address: IpAddr,
        ports: &[(u16, String)],
        owner: &str,
    ) -> Result<(), String> {
        let present = self.addresses.get(&address).filter(|present| *present != owner);
        if let Some(present) = present.filter(|present| !self.sharers(address).any(|sharer| sharer == *present)) {
            return Err(present.clone());
        }
        let wanted: Vec<_> = ports.iter().map(|(port, protocol)| (address, *port, protocol.clone())).collect();
        if let Some(other) = wanted.iter().filter_map(|port| self.frontends.get(port)).find(|other| *other != owner) {
            return Err(other.clone());
        }
        self.addresses.entry(address).or_insert_with(|| owner.to_owned());
        self.frontends.extend(wanted.iter().map(|port| (port.clone(), owner.to_owned())));
        let held = self.held.entry(owner.to_owned()).or_default();
        held.addresses.insert(address);
        held.frontends.extend(wanted);
        Ok(())
    }

    fn sharers(&self, address: IpAddr) -> impl Iterator<Item = &String> {
        let from = (address, 0, String::new());
        self.frontends.range(from..).take_while(move |((of, ..), _)| *of == address).map(|(_, owner)| owner)
    }

    /// The error is the present owner.
    pub(super) fn claim_port(&mut self, port: u16, protocol: &str, owner: &str) -> Result<(), String> {
        let port = (port, protocol.to_owned());
        match self.node_ports.get(&port) {
            Some(present) if present != owner => Err(present.clone()),
            _ => {
                self.node_ports.insert(port.clone(), owner.to_owned());
                self.held.entry(owner.to_owned()).or_default().node_ports.insert(port);
                Ok(())
            }
        }
    }

    /// Begins the search at a place that `seed` and `owner` determine. Skips addresses of the ranges in `besides`.
    pub(super) fn free_address(
        &mut self,
        range: IpNet,
        besides: &[IpNet],
        (seed, owner): (u64, &str),
    ) -> Option<IpAddr> {
        let size = last_host_number(range);
        let start = mix(seed, owner) % size;
        for offset in 0..size {
            let address = nth_address(range, 1 + (start + offset) % size)?;
            let is_allowed = !besides.iter().any(|range| range.contains(&address));
            if is_allowed && self.claim_address(address, owner).is_ok() {
                return Some(address);
            }
        }
        None
    }

    pub(super) fn next_address(&mut self, range: IpNet, first: u64, owner: &str) -> Option<IpAddr> {
        let begin = self.taken_below.get(&range).copied().unwrap_or(first).max(first);
        let (number, address) = (begin..=last_host_number(range)).find_map(|number| {
            let address = nth_address(range, number)?;
            self.claim_address(address, owner).ok().map(|()| (number, address))
        })?;
        self.taken_below.insert(range, number + 1);
        Some(address)
    }

    /// `what` distinguishes the ports of one Service.
    pub(super) fn free_port(&mut self, seed: u64, protocol: &str, owner: &str, what: &str) -> Option<u16> {
        let size = u64::from(NODE_PORTS.end() - NODE_PORTS.start()) + 1;
        let start = mix(seed, &format!("{owner}:{what}")) % size;
        (0..size).find_map(|offset| {
            let port = NODE_PORTS.start() + u16::try_from((start + offset) % size).ok()?;
            let taken = self.node_ports.contains_key(&(port, protocol.to_owned()));
            (!taken && self.claim_port(port, protocol, owner).is_ok()).then_some(port)
        })
    }

    pub(super) fn release(&mut self, owner: &str) -> OwnedAllocations {
        let held = self.held.remove(owner).unwrap_or_default();
        for port in &held.frontends {
            self.frontends.remove(port);
        }
        for address in &held.addresses {
            let other = self.sharers(*address).next().cloned();
            if let Some(other) = other {
                self.addresses.insert(*address, other);
                continue;
            }
            self.addresses.remove(address);
            for (range, below) in self.taken_below.iter_mut().filter(|(range, _)| range.contains(address)) {
                *below = host_number(*range, *address).min(*below);
            }
        }
        for port in &held.node_ports {
            self.node_ports.remove(port);
        }
        held
    }

    pub(super) fn restore(&mut self, owner: &str, held: OwnedAllocations) {
        self.release(owner);
        for address in &held.addresses {
            self.addresses.entry(*address).or_insert_with(|| owner.to_owned());
        }
        self.frontends.extend(held.frontends.iter().map(|port| (port.clone(), owner.to_owned())));
        self.node_ports.extend(held.node_ports.iter().map(|port| (port.clone(), owner.to_owned())));
        self.held.insert(owner.to_owned(), held);
    }
}

/// Returns at most 16 bits, and never the IPv4 broadcast address.
fn last_host_number(range: IpNet) -> u64 {
    let bits = u32::from(range.max_prefix_len() - range.prefix_len()).min(16);
    ((1_u64 << bits).saturating_sub(2)).max(1)
}

fn host_number(range: IpNet, address: IpAddr) -> u64 {
    let offset = match (range.network(), address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => u128::from(u32::from(address).saturating_sub(u32::from(network))),
        (IpAddr::V6(network), IpAddr::V6(address)) => u128::from(address).saturating_sub(u128::from(network)),
        _ => 0,
    };
    u64::try_from(offset).unwrap_or(u64::MAX)
}

/// Returns a hash: FNV-1a with a final avalanche, so that similar seeds give unrelated values.
pub fn mix(seed: u64, name: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let hash = seed
        .to_le_bytes()
        .iter()
        .chain(name.as_bytes())
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

const NAME_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(super) fn name_characters(number: u64, count: u32) -> String {
    let base = NAME_CHARACTERS.len() as u64;
    let sign = |place: u32| {
        let index = number.checked_div(base.pow(place)).unwrap_or(0) % base;
        usize::try_from(index).ok().and_then(|index| NAME_CHARACTERS.get(index)).copied().map_or('x', char::from)
    };
    (0..count).map(sign).collect()
}

pub(crate) fn generated_name(prefix: &str, number: u64) -> String {
    // A name has at most 63 characters.
    let prefix: String = prefix.chars().take(58).collect();
    format!("{prefix}{}", name_characters(mix(number, &prefix), 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_with_different_ports_share_an_address() {
        let address: IpAddr = "10.0.0.7".parse().unwrap();
        let tcp = |port: u16| [(port, "TCP".to_owned())];
        let mut allocations = Allocations::default();
        allocations.share_address(address, &tcp(80), "a").unwrap();
        allocations.share_address(address, &tcp(25), "b").unwrap();
        assert_eq!(allocations.share_address(address, &tcp(80), "c"), Err("a".to_owned()), "that port is a's");
        assert_eq!(allocations.claim_address(address, "d"), Err("a".to_owned()), "not for one alone");
        let held = allocations.release("a");
        allocations.share_address(address, &tcp(80), "c").unwrap();
        assert_eq!(allocations.claim_address(address, "d"), Err("b".to_owned()), "b is still there");
        allocations.release("c");
        allocations.restore("a", held);
        assert_eq!(allocations.share_address(address, &tcp(80), "c"), Err("a".to_owned()));
        allocations.release("a");
        allocations.release("b");
        allocations.claim_address(address, "d").unwrap();
        assert_eq!(allocations.share_address(address, &tcp(80), "a"), Err("d".to_owned()), "d shares nothing");
    }

    #[test]
    fn a_released_address_is_allocated_again() {
        let range: IpNet = "10.0.0.0/29".parse().unwrap();
        let mut allocations = Allocations::default();
        let next = |allocations: &mut Allocations, owner: &str| {
            allocations.next_address(range, 2, owner).map(|address| host_number(range, address))
        };
        let given: Vec<_> = ["a", "b", "c"].iter().map(|owner| next(&mut allocations, owner)).collect();
        assert_eq!(given, [Some(2), Some(3), Some(4)]);
        let held = allocations.release("b");
        assert_eq!(next(&mut allocations, "d"), Some(3));
        allocations.release("d");
        allocations.restore("b", held);
        let given: Vec<_> = ["e", "f", "g"].iter().map(|owner| next(&mut allocations, owner)).collect();
        assert_eq!(given, [Some(5), Some(6), None], "what was given back is not given twice");
    }
}
