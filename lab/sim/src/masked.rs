//! Masked addresses in rules.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::protocol::Family;

pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

pub(crate) fn from_bits(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

pub(crate) fn prefix_mask(family: Family, length: u8) -> u128 {
    let width = family.bits();
    let all = if width == 128 { u128::MAX } else { (1 << width) - 1 };
    let host = u32::from(width.saturating_sub(length));
    all & u128::MAX.checked_shl(host).unwrap_or(0)
}

/// An address with a mask, which need not be a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Masked {
    /// The address family.
    pub family: Family,
    value: u128,
    mask: u128,
}

impl From<IpAddr> for Masked {
    fn from(address: IpAddr) -> Masked {
        let family = Family::of(address);
        Masked { family, value: bits(address), mask: prefix_mask(family, family.bits()) }
    }
}

impl From<IpNet> for Masked {
    fn from(net: IpNet) -> Masked {
        let family = Family::of(net.addr());
        let mask = prefix_mask(family, net.prefix_len());
        Masked { family, value: bits(net.addr()) & mask, mask }
    }
}

impl Masked {
    /// `None` if address and mask are of different families.
    #[must_use]
    pub fn new(address: IpAddr, mask: IpAddr) -> Option<Masked> {
        let family = Family::of(address);
        let mask = (Family::of(mask) == family).then(|| bits(mask))?;
        Some(Masked { family, value: bits(address) & mask, mask })
    }

    /// Returns a network; `None` if the prefix is too long.
    #[must_use]
    pub fn network(address: IpAddr, length: u8) -> Option<Masked> {
        let family = Family::of(address);
        let mask = (length <= family.bits()).then(|| prefix_mask(family, length))?;
        Some(Masked { family, value: bits(address) & mask, mask })
    }

    /// Parses `10.0.0.1`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `fd00::/8`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Masked> {
        let Some((address, mask)) = text.split_once('/') else {
            let address: IpAddr = text.parse().ok()?;
            return Masked::network(address, Family::of(address).bits());
        };
        let address = address.parse().ok()?;
        match mask.parse::<u8>() {
            Ok(length) => Masked::network(address, length),
            Err(_) => Masked::new(address, mask.parse().ok()?),
        }
    }

    /// Whether the network contains `address`.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(address) == self.family && bits(address) & self.mask == self.value
    }

    pub(crate) fn with_host_of(&self, address: IpAddr) -> IpAddr {
        from_bits(self.family, self.value | (bits(address) & !self.mask))
    }

    /// The prefix length; `None` if the mask is not a prefix.
    #[must_use]
    pub fn prefix(&self) -> Option<u8> {
        let length = self.mask.count_ones() as u8;
        (prefix_mask(self.family, length) == self.mask).then_some(length)
    }

    /// The mask as an address.
    #[must_use]
    pub fn mask(&self) -> IpAddr {
        from_bits(self.family, self.mask)
    }

    /// The network's address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        from_bits(self.family, self.value)
    }
}

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix() {
            Some(length) => write!(f, "{}/{length}", self.address()),
            None => write!(f, "{}/{}", self.address(), self.mask()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_print_as_iptables_save() {
        for (text, printed) in [
            ("10.0.0.1", "10.0.0.1/32"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.0.0.0/255.0.255.0", "10.0.0.0/255.0.255.0"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("fd00::/16", "fd00::/16"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(Masked::parse(text).map(|masked| masked.to_string()).as_deref(), Some(printed));
        }
        for wrong in ["10.0.0.0/33", "10.0.0", "10.0.0.0/fd00::", "fd00::/129", ""] {
            assert_eq!(Masked::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn contains_by_the_bits_of_the_mask() -> Result<(), std::net::AddrParseError> {
        let odd = Masked::parse("10.0.7.0/255.0.255.0");
        assert!(odd.is_some_and(|odd| odd.contains(IpAddr::V4(Ipv4Addr::new(10, 9, 7, 9)))));
        let any = Masked::parse("0.0.0.0/0");
        assert_eq!(any.map(|any| any.contains("::1".parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)))), Some(false));
        Ok(())
    }
}
