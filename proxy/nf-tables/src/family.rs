//! Address families and the names of tables.

use std::net::IpAddr;

use nix::libc;

/// A family (`nfgen_family` in `include/uapi/linux/netfilter/nfnetlink.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Family {
    /// IPv4 and IPv6 in one table: `NFPROTO_INET`.
    Inet = 1,
    /// `NFPROTO_IPV4`.
    Ipv4 = libc::AF_INET as u8,
    /// `NFPROTO_IPV6`.
    Ipv6 = libc::AF_INET6 as u8,
}

impl Family {
    /// The number in messages.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The family with this number, if supported.
    pub fn from_code(code: u8) -> Option<Family> {
        [Family::Inet, Family::Ipv4, Family::Ipv6].into_iter().find(|family| family.code() == code)
    }

    /// The family of an address.
    pub fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::Ipv4,
            IpAddr::V6(_) => Family::Ipv6,
        }
    }
}

/// The family and name of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Table<'a> {
    /// Its family.
    pub family: Family,
    /// Its name, such as `nat`.
    pub name: &'a str,
}

impl<'a> Table<'a> {
    /// The table `name` of `family`.
    pub fn new(family: Family, name: &'a str) -> Table<'a> {
        Table { family, name }
    }
}
