//! Families and table names.

use std::net::IpAddr;

use nix::libc;

/// `nfgen_family` (`include/uapi/linux/netfilter/nfnetlink.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Family {
    /// `NFPROTO_INET`: IPv4 and IPv6.
    Inet = 1,
    /// `NFPROTO_IPV4`.
    Ipv4 = libc::AF_INET as u8,
    /// `NFPROTO_IPV6`.
    Ipv6 = libc::AF_INET6 as u8,
}

impl Family {
    /// Returns the number in messages.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the family, if supported.
    pub fn from_code(code: u8) -> Option<Family> {
        [Family::Inet, Family::Ipv4, Family::Ipv6].into_iter().find(|family| family.code() == code)
    }

    /// Returns an address's family.
    pub fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::Ipv4,
            IpAddr::V6(_) => Family::Ipv6,
        }
    }
}

/// A table's family and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Table<'a> {
    /// The family.
    pub family: Family,
    /// Such as `nat`.
    pub name: &'a str,
}

impl<'a> Table<'a> {
    /// Returns the table with this family and name.
    pub fn new(family: Family, name: &'a str) -> Table<'a> {
        Table { family, name }
    }
}
