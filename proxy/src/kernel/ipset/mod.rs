mod fake;
mod netlink;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

pub use fake::FakeIpSets;
pub use netlink::Nfnetlink;
pub(crate) use netlink::fuzz;

use super::netlink::NetlinkError;
use crate::model::{Family, Protocol};

/// `IPSET_DEFAULT_MAXELEM`: the default for hash sets.
pub const DEFAULT_MAXELEM: u32 = 65_536;
/// `IPSET_DEFAULT_HASHSIZE`, in buckets.
pub const DEFAULT_HASHSIZE: u32 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetType {
    BitmapPort,
    HashIp,
    HashIpPort,
    HashIpPortIp,
    HashIpPortNet,
}

impl SetType {
    pub const ALL: [SetType; 5] =
        [SetType::BitmapPort, SetType::HashIp, SetType::HashIpPort, SetType::HashIpPortIp, SetType::HashIpPortNet];

    pub fn as_str(self) -> &'static str {
        match self {
            SetType::BitmapPort => "bitmap:port",
            SetType::HashIp => "hash:ip",
            SetType::HashIpPort => "hash:ip,port",
            SetType::HashIpPortIp => "hash:ip,port,ip",
            SetType::HashIpPortNet => "hash:ip,port,net",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetHeader {
    pub name: String,
    pub kind: SetType,
    /// Ignored for a bitmap.
    pub family: Family,
    pub maxelem: u32,
}

/// In the format of `ipset save`.
impl fmt::Display for SetHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "create {} {}", self.name, self.kind.as_str())?;
        let family = match self.family {
            _ if self.kind == SetType::BitmapPort => return write!(f, " range 0-65535"),
            Family::V4 => "inet",
            Family::V6 => "inet6",
        };
        write!(f, " family {family} hashsize {DEFAULT_HASHSIZE} maxelem {}", self.maxelem)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetMember {
    Port(u16),
    Ip(IpAddr),
    IpPort(IpAddr, Protocol, u16),
    IpPortIp(IpAddr, Protocol, u16, IpAddr),
    /// The network has no host bits, and is not /0.
    IpPortNet(IpAddr, Protocol, u16, IpNet),
}

impl SetMember {
    pub fn kind(&self) -> SetType {
        match self {
            SetMember::Port(_) => SetType::BitmapPort,
            SetMember::Ip(_) => SetType::HashIp,
            SetMember::IpPort(..) => SetType::HashIpPort,
            SetMember::IpPortIp(..) => SetType::HashIpPortIp,
            SetMember::IpPortNet(..) => SetType::HashIpPortNet,
        }
    }

    pub fn address(&self) -> Option<IpAddr> {
        match self {
            SetMember::Port(_) => None,
            SetMember::Ip(ip)
            | SetMember::IpPort(ip, ..)
            | SetMember::IpPortIp(ip, ..)
            | SetMember::IpPortNet(ip, ..) => Some(*ip),
        }
    }
}

/// In the format of `ipset save`.
impl fmt::Display for SetMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetMember::Port(port) => write!(f, "{port}"),
            SetMember::Ip(ip) => write!(f, "{ip}"),
            SetMember::IpPort(ip, protocol, port) => write!(f, "{ip},{protocol}:{port}"),
            SetMember::IpPortIp(ip, protocol, port, second) => write!(f, "{ip},{protocol}:{port},{second}"),
            SetMember::IpPortNet(ip, protocol, port, range) => {
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

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    pub kind: String,
    /// 0 for a bitmap.
    pub maxelem: u32,
    /// Excludes undecodable members.
    pub members: BTreeSet<SetMember>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetChange {
    pub set: String,
    pub add: bool,
    pub members: Vec<SetMember>,
}

pub trait IpSets {
    fn set(&mut self, name: &str) -> Result<Option<Set>, NetlinkError>;

    fn create_set(&mut self, header: &SetHeader) -> Result<(), NetlinkError>;

    /// Applies changes in order; ignores existing and missing members.
    fn change_sets(&mut self, changes: &[SetChange]) -> Result<(), NetlinkError>;

    /// Swaps two sets of one type atomically.
    fn swap_sets(&mut self, one: &str, other: &str) -> Result<(), NetlinkError>;

    /// Ignores a missing set. Fails while a rule refers to the set.
    fn destroy_set(&mut self, name: &str) -> Result<(), NetlinkError>;
}
