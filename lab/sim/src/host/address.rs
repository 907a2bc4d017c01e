use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use crate::masked::Masked;

/// How far an address or the destinations of a route are (`enum rt_scope_t`, include/uapi/linux/rtnetlink.h). A greater
/// number is nearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(pub u8);

impl Scope {
    /// `RT_SCOPE_UNIVERSE`.
    pub const GLOBAL: Scope = Scope(0);
    /// `RT_SCOPE_SITE`.
    pub const SITE: Scope = Scope(200);
    /// `RT_SCOPE_LINK`.
    pub const LINK: Scope = Scope(253);
    /// `RT_SCOPE_HOST`.
    pub const HOST: Scope = Scope(254);
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Address {
    pub ip: IpAddr,
    /// Prefix length.
    pub prefix: u8,
    /// IPv4: a later address of a network, never a source. IPv6: deprecated, the last choice as a source.
    pub secondary: bool,
    /// IPv4: the scope. IPv6 derives scopes from the address.
    pub scope: Scope,
    /// IPv6: a privacy address (RFC 8981), see `use_tempaddr`.
    pub temporary: bool,
    /// IPv6: duplicate address detection has not ended or has failed, so the address is never a source.
    pub tentative: bool,
}

impl Address {
    /// Returns a primary address with the scope that ip-address(8) gives it.
    #[must_use]
    pub fn new(ip: IpAddr, prefix: u8) -> Address {
        let scope = if ip.is_loopback() { Scope::HOST } else { Scope::GLOBAL };
        Address { ip, prefix, secondary: false, scope, temporary: false, tentative: false }
    }

    /// Returns the broadcast address of an IPv4 network (`fib_add_ifaddr`).
    pub(super) fn broadcast(&self) -> Option<IpAddr> {
        let network = Masked::network(self.ip, self.prefix).filter(|_| self.ip.is_ipv4() && self.prefix < 31)?;
        Some(network.with_host_of(Ipv4Addr::BROADCAST.into()))
    }
}

/// A line is not a supported `ip addr add`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line:?}: {problem} (expected: ip addr add ADDRESS/LENGTH dev NAME [preferred_lft 0|forever])")]
#[allow(missing_docs, reason = "the names say it")]
pub struct AddressError {
    pub line: String,
    /// The error.
    pub problem: String,
}

/// Parses `ip addr add ADDRESS/LENGTH dev NAME [preferred_lft …]`.
impl FromStr for Address {
    type Err = AddressError;

    fn from_str(line: &str) -> Result<Address, AddressError> {
        let wrong = |problem: String| AddressError { line: line.to_owned(), problem };
        let mut words = line.split_whitespace();
        if !words.by_ref().take(3).eq(["ip", "addr", "add"]) {
            return Err(wrong("is not ip addr add".to_owned()));
        }
        let text = words.next().unwrap_or_default();
        let parts = text.split_once('/').and_then(|(ip, prefix)| Some((ip.parse().ok()?, prefix.parse().ok()?)));
        let (ip, prefix) = parts.ok_or_else(|| wrong(format!("{text:?} is no address with a length")))?;
        if Masked::network(ip, prefix).is_none() {
            return Err(wrong(format!("{prefix} is too long")));
        }
        let mut address = Address::new(ip, prefix);
        while let Some(option) = words.next() {
            match (option, words.next()) {
                ("dev", Some(_)) => {}
                ("preferred_lft", Some("forever")) => address.secondary = false,
                ("preferred_lft", Some("0")) => address.secondary = ip.is_ipv6(),
                (option, _) => return Err(wrong(format!("{option:?} is not modelled"))),
            }
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_addr_add_lines_are_parsed() {
        for (line, ip, prefix, secondary) in [
            ("ip addr add 10.96.0.1/32 dev kube-ipvs0", "10.96.0.1", 32, false),
            ("ip addr add fd00:96::1/128 dev kube-ipvs0", "fd00:96::1", 128, false),
            ("ip addr add fd00:96::1/64 dev eth0 preferred_lft forever", "fd00:96::1", 64, false),
            ("ip addr add fd00:96::1/128 dev kube-ipvs0 preferred_lft 0", "fd00:96::1", 128, true),
            // IPv4 source selection ignores lifetimes.
            ("ip addr add 10.96.0.1/32 dev kube-ipvs0 preferred_lft 0", "10.96.0.1", 32, false),
        ] {
            let expected = Address { secondary, ..Address::new(ip.parse().unwrap(), prefix) };
            assert_eq!(line.parse(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn unsupported_lines_are_errors_with_a_reason() {
        for (line, problem) in [
            ("10.96.0.1/32", "is not ip addr add"),
            ("ip addr add 10.96.0.1 dev eth0", "no address with a length"),
            ("ip addr add 10.96.0.1/33 dev eth0", "33 is too long"),
            ("ip addr add 10.96.0.1/32 dev eth0 peer 10.0.0.1", "\"peer\" is not modelled"),
            ("ip addr add fd00::1/128 dev eth0 preferred_lft 60", "\"preferred_lft\" is not modelled"),
        ] {
            let error = line.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains(line), "{line}: {error}");
        }
    }
}
