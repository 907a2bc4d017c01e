//! IP sets, which rules of iptables look things up in.

mod fake;
mod netlink;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

pub use fake::Fake;
pub use netlink::Nfnetlink;
pub(crate) use netlink::fuzz;

use super::netlink::NetlinkError;
use crate::model::{Family, Protocol};

/// Members that a hash has room for by default (`IPSET_DEFAULT_MAXELEM`).
pub const DEFAULT_MAXELEM: u32 = 65_536;
/// Buckets that a hash begins with by default (`IPSET_DEFAULT_HASHSIZE`).
pub const DEFAULT_HASHSIZE: u32 = 1024;

/// A type of set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Ports, by one bit each.
    BitmapPort,
    /// Addresses.
    HashIp,
    /// Addresses with protocol and port.
    HashIpPort,
    /// The same with a second address.
    HashIpPortIp,
    /// The same with a range.
    HashIpPortNet,
}

impl Kind {
    /// All that are used here.
    pub const ALL: [Kind; 5] =
        [Kind::BitmapPort, Kind::HashIp, Kind::HashIpPort, Kind::HashIpPortIp, Kind::HashIpPortNet];

    /// The kernel's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::BitmapPort => "bitmap:port",
            Kind::HashIp => "hash:ip",
            Kind::HashIpPort => "hash:ip,port",
            Kind::HashIpPortIp => "hash:ip,port,ip",
            Kind::HashIpPortNet => "hash:ip,port,net",
        }
    }
}

/// What a set is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetHeader {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// The family of its addresses; a bitmap has none.
    pub family: Family,
    /// Most members (of a hash).
    pub maxelem: u32,
}

/// As `ipset save` writes it.
impl fmt::Display for SetHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "create {} {}", self.name, self.kind.as_str())?;
        let family = match self.family {
            _ if self.kind == Kind::BitmapPort => return write!(f, " range 0-65535"),
            Family::V4 => "inet",
            Family::V6 => "inet6",
        };
        write!(f, " family {family} hashsize {DEFAULT_HASHSIZE} maxelem {}", self.maxelem)
    }
}

/// A member of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// Of a `bitmap:port`.
    Port(u16),
    /// Of a `hash:ip`.
    Ip(IpAddr),
    /// Of a `hash:ip,port`.
    IpPort(IpAddr, Protocol, u16),
    /// Of a `hash:ip,port,ip`.
    IpPortIp(IpAddr, Protocol, u16, IpAddr),
    /// Of a `hash:ip,port,net`; the range has no bits beyond its length, and its length is not 0.
    IpPortNet(IpAddr, Protocol, u16, IpNet),
}

impl Member {
    /// The type of set that it can be in.
    pub fn kind(&self) -> Kind {
        match self {
            Member::Port(_) => Kind::BitmapPort,
            Member::Ip(_) => Kind::HashIp,
            Member::IpPort(..) => Kind::HashIpPort,
            Member::IpPortIp(..) => Kind::HashIpPortIp,
            Member::IpPortNet(..) => Kind::HashIpPortNet,
        }
    }

    /// Its first address.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Member::Port(_) => None,
            Member::Ip(ip) | Member::IpPort(ip, ..) | Member::IpPortIp(ip, ..) | Member::IpPortNet(ip, ..) => Some(*ip),
        }
    }
}

/// As `ipset save` writes it. A range of a single address is written as the address.
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Member::Port(port) => write!(f, "{port}"),
            Member::Ip(ip) => write!(f, "{ip}"),
            Member::IpPort(ip, protocol, port) => write!(f, "{ip},{protocol}:{port}"),
            Member::IpPortIp(ip, protocol, port, second) => write!(f, "{ip},{protocol}:{port},{second}"),
            Member::IpPortNet(ip, protocol, port, range) => {
                write!(f, "{ip},{protocol}:{port},")?;
                if range.prefix_len() == range.max_prefix_len() {
                    write!(f, "{}", range.addr())
                } else {
                    write!(f, "{range}")
                }
            }
        }
    }
}

/// A set as the kernel lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    /// The name of its type.
    pub kind: String,
    /// Most members (0: of a bitmap).
    pub maxelem: u32,
    /// The members that could be read.
    pub members: BTreeSet<Member>,
}

/// Members that come into or leave one set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetChange {
    /// The set's name.
    pub set: String,
    /// They come.
    pub add: bool,
    /// Which.
    pub members: Vec<Member>,
}

/// The IP sets of one network namespace.
pub trait Sets {
    /// A set with its members, if there is one of the name.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn set(&mut self, name: &str) -> Result<Option<Set>, NetlinkError>;

    /// Makes an empty set.
    ///
    /// # Errors
    /// When the kernel refuses; that there is one already is an error.
    fn create_set(&mut self, header: &SetHeader) -> Result<(), NetlinkError>;

    /// Brings in and takes out members, in order. Members that are there already, or not, are no error.
    ///
    /// # Errors
    /// When the kernel refuses one; others may have been changed.
    fn change_sets(&mut self, changes: &[SetChange]) -> Result<(), NetlinkError>;

    /// Exchanges the contents of two sets of one type; rules see either the one or the other.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn swap_sets(&mut self, one: &str, other: &str) -> Result<(), NetlinkError>;

    /// Removes a set; that there is none is no error.
    ///
    /// # Errors
    /// When the kernel refuses, as it does while a rule refers to it.
    fn destroy_set(&mut self, name: &str) -> Result<(), NetlinkError>;
}
