//! Addresses of API objects, and IP families.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

/// An IP family. Kubernetes runs one proxy per family, which ignores the other family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    pub fn of_range(range: IpNet) -> Family {
        Family::of(range.addr())
    }

    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parses an address. Ignores leading zeros (`010.096.0.1` is `10.96.0.1`), as old Go releases did, and returns an
/// IPv4-mapped address as IPv4 (KEP-4858).
pub fn parse(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    text.parse::<IpAddr>().ok().or_else(|| leading_zeros(text)).map(|address| address.to_canonical())
}

/// Clears the host bits.
pub fn parse_range(text: &str) -> Option<IpNet> {
    let (address, length) = text.trim().split_once('/')?;
    Some(IpNet::new(parse(address)?, length.parse().ok()?).ok()?.trunc())
}

fn leading_zeros(text: &str) -> Option<IpAddr> {
    let octets: Vec<u8> = text.split('.').map(decimal).collect::<Option<_>>()?;
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Digits only: `u8::from_str` also accepts `+1`.
fn decimal(octet: &str) -> Option<u8> {
    let digits = !octet.is_empty() && octet.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| octet.parse().ok()).flatten()
}

pub(crate) fn first_of(addresses: &[IpAddr], family: Family) -> Option<IpAddr> {
    addresses.iter().copied().find(|address| Family::of(*address) == family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_spellings() {
        let rows: [(&str, Option<&str>); 8] = [
            ("10.96.0.1", Some("10.96.0.1")),
            ("010.096.000.001", Some("10.96.0.1")),
            ("::ffff:10.96.0.1", Some("10.96.0.1")),
            ("fd00:0:0::1", Some("fd00::1")),
            (" 10.96.0.1 ", Some("10.96.0.1")),
            ("10.96.0", None),
            ("10.96.0.+1", None),
            ("None", None),
        ];
        for (text, wanted) in rows {
            assert_eq!(parse(text).map(|address| address.to_string()).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn odd_ranges() {
        let rows: [(&str, Option<&str>); 5] = [
            (" 203.0.113.7/24 ", Some("203.0.113.0/24")),
            ("010.0.0.0/8", Some("10.0.0.0/8")),
            ("10.0.0.0/33", None),
            ("10.0.0.0", None),
            ("fd00::/8", Some("fd00::/8")),
        ];
        for (text, wanted) in rows {
            assert_eq!(parse_range(text).map(|range| range.to_string()).as_deref(), wanted, "{text}");
        }
    }
}
