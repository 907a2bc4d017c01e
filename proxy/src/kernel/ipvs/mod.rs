//! Virtual servers of the kernel's IPVS.

mod fake;
mod netlink;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

pub use fake::Fake;
pub use netlink::Genetlink;
pub(crate) use netlink::fuzz;

use super::netlink::NetlinkError;
pub use crate::config::IpvsTimeouts as Timeouts;
use crate::model::{Family, Protocol};

/// `IP_VS_SVC_F_SCHED2`: the second flag of a scheduler's own; of `mh`, that the source port counts.
pub const FLAG_SCHED2: u32 = 0x10;
/// `IP_VS_SVC_F_SCHED1` to `3`: the flags that are a scheduler's own.
pub const SCHEDULER_FLAGS: u32 = 0x38;

/// The schedulers that Kubernetes names (`ipvs.scheduler`).
pub const SCHEDULERS: [&str; 11] = ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh"];

/// What a virtual server is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerKey {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its address and port.
    pub address: SocketAddr,
}

impl ServerKey {
    /// Its family.
    pub fn family(&self) -> Family {
        Family::of(&self.address.ip())
    }
}

/// As `ipvsadm -Sn` writes it: `-t 10.96.0.1:80`.
impl fmt::Display for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = match self.protocol {
            Protocol::Tcp => "-t",
            Protocol::Udp => "-u",
            Protocol::Sctp => "--sctp-service",
        };
        write!(f, "{option} {}", self.address)
    }
}

/// What else there is to a virtual server, besides its destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// The scheduler's name.
    pub scheduler: String,
    /// The scheduler's own flags ([`SCHEDULER_FLAGS`]).
    pub flags: u32,
    /// A client goes to the same destination again within so many seconds.
    pub persistence: Option<u32>,
    /// What of a client's address counts: a mask (IPv4), or a prefix length (IPv6), as the kernel keeps it.
    pub netmask: u32,
}

impl ServerSpec {
    /// The netmask under which every client counts for itself.
    pub fn whole_address(family: Family) -> u32 {
        match family {
            Family::V4 => u32::MAX,
            Family::V6 => 128,
        }
    }
}

/// A destination as the kernel has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Destination {
    /// 0: no new connections.
    pub weight: u32,
    /// Connections, both those that are open and those that wait for their end to be over.
    pub connections: u64,
}

/// The destinations of a virtual server.
pub type Destinations = BTreeMap<SocketAddr, Destination>;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerChange {
    /// A new virtual server.
    Add(ServerKey, ServerSpec),
    /// Another scheduler, persistence or flags; its connections stay.
    Set(ServerKey, ServerSpec),
    /// It goes, and with it its destinations.
    Delete(ServerKey),
    /// A new destination of this weight.
    AddDestination(ServerKey, SocketAddr, u32),
    /// Another weight.
    SetWeight(ServerKey, SocketAddr, u32),
    /// It goes; its connections end with their next packet (`expire_nodest_conn`).
    DeleteDestination(ServerKey, SocketAddr),
}

/// The virtual servers of one network namespace.
pub trait Servers {
    /// Every virtual server of a family that has an address (and not a mark).
    ///
    /// # Errors
    /// When the kernel refuses.
    fn servers(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError>;

    /// The destinations of virtual servers, in the order asked for.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn destinations(&mut self, keys: &[ServerKey]) -> Result<Vec<Destinations>, NetlinkError>;

    /// Makes changes, in order.
    ///
    /// # Errors
    /// When the kernel refuses one; others may have been made.
    fn change_servers(&mut self, changes: &[ServerChange]) -> Result<(), NetlinkError>;
}
