mod fake;
mod netlink;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

pub use fake::FakeIpvs;
pub use netlink::Genetlink;
pub(crate) use netlink::fuzz;

use super::netlink::NetlinkError;
pub use crate::config::IpvsTimeouts as Timeouts;
use crate::model::{Family, Protocol};

/// `IP_VS_SVC_F_SCHED2`: the scheduler `mh` also hashes the source port.
pub const FLAG_SCHED2: u32 = 0x10;
/// `IP_VS_SVC_F_SCHED1` to `3`.
pub const SCHEDULER_FLAGS: u32 = 0x38;

/// The schedulers that Kubernetes allows (`ipvs.scheduler`).
pub const SCHEDULERS: [&str; 11] = ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerKey {
    pub protocol: Protocol,
    pub address: SocketAddr,
}

impl ServerKey {
    pub fn family(&self) -> Family {
        Family::of(&self.address.ip())
    }
}

/// In the format of `ipvsadm -Sn`: `-t 10.96.0.1:80`.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    pub scheduler: String,
    /// Bits of [`SCHEDULER_FLAGS`].
    pub flags: u32,
    /// The timeout in seconds.
    pub persistence: Option<u32>,
    pub netmask: u32,
}

impl ServerSpec {
    /// The persistence mask that distinguishes all clients.
    pub fn whole_address(family: Family) -> u32 {
        match family {
            Family::V4 => u32::MAX,
            Family::V6 => 128,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IpvsDestination {
    /// 0: no new connections.
    pub weight: u32,
    pub connections: u64,
}

pub type Destinations = BTreeMap<SocketAddr, IpvsDestination>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerChange {
    Add(ServerKey, ServerSpec),
    /// Changes the server; its connections stay.
    Set(ServerKey, ServerSpec),
    Delete(ServerKey),
    /// The number is the weight.
    AddDestination(ServerKey, SocketAddr, u32),
    SetWeight(ServerKey, SocketAddr, u32),
    /// Each connection ends at its next packet (`expire_nodest_conn`).
    DeleteDestination(ServerKey, SocketAddr),
}

pub trait VirtualServers {
    fn servers(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError>;

    fn destinations(&mut self, keys: &[ServerKey]) -> Result<Vec<Destinations>, NetlinkError>;

    fn change_servers(&mut self, changes: &[ServerChange]) -> Result<(), NetlinkError>;
}
