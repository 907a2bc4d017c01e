//! IPVS: virtual services, schedulers, connections.

pub(crate) mod connections;
mod hash;
mod read;
pub(crate) mod schedule;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

pub use read::IpvsReadError;

use crate::names;
use crate::protocol::Protocol;

/// A scheduler (net/netfilter/ipvs/ip_vs_*.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheduler {
    /// `rr`.
    RoundRobin,
    /// `wrr`.
    WeightedRoundRobin,
    /// `lc`.
    LeastConnections,
    /// `wlc`.
    WeightedLeastConnections,
    /// `lblc`.
    LocalityLeastConnections,
    /// `lblcr`.
    LocalityLeastConnectionsReplicated,
    /// `dh`.
    DestinationHash,
    /// `sh`.
    SourceHash,
    /// `sed`.
    ShortestExpectedDelay,
    /// `nq`.
    NeverQueue,
    /// `mh`.
    Maglev,
}

const NAMES: [(&str, Scheduler); 11] = [
    ("rr", Scheduler::RoundRobin),
    ("wrr", Scheduler::WeightedRoundRobin),
    ("lc", Scheduler::LeastConnections),
    ("wlc", Scheduler::WeightedLeastConnections),
    ("lblc", Scheduler::LocalityLeastConnections),
    ("lblcr", Scheduler::LocalityLeastConnectionsReplicated),
    ("dh", Scheduler::DestinationHash),
    ("sh", Scheduler::SourceHash),
    ("sed", Scheduler::ShortestExpectedDelay),
    ("nq", Scheduler::NeverQueue),
    ("mh", Scheduler::Maglev),
];

impl Scheduler {
    /// Returns the name in `ipvsadm`.
    #[must_use]
    pub fn name(self) -> &'static str {
        names::name(&NAMES, &self)
    }

    fn parse(text: &str) -> Option<Scheduler> {
        names::value(&NAMES, text)
    }
}

/// Forwarding method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Forwarding {
    /// `-m`: NAT.
    Masquerade,
    /// `-g`; read, not simulated.
    Route,
    /// `-i`; read, not simulated.
    Tunnel,
}

/// Session persistence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Persistence {
    /// Timeout in seconds after the last connection.
    pub seconds: u32,
    /// Prefix length of the client network.
    pub prefix: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RealServer {
    pub address: SocketAddr,
    pub forwarding: Forwarding,
    /// 0: no new connections.
    pub weight: u32,
    /// Upper connection threshold; 0: none.
    pub upper: u32,
    /// Lower connection threshold.
    pub lower: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct VirtualService {
    /// TCP, UDP, SCTP.
    pub protocol: Protocol,
    pub address: SocketAddr,
    pub scheduler: Scheduler,
    /// Scheduler flags 1, 2, 4.
    pub flags: u8,
    pub persistence: Option<Persistence>,
    /// `-o`: schedules each datagram.
    pub one_packet: bool,
    /// Latest first, as in the kernel.
    pub servers: Vec<RealServer>,
}

impl VirtualService {
    /// Flag: replaces unavailable servers.
    pub const FALLBACK: u8 = 1;
    /// Flag: hashes the client's port.
    pub const PORT: u8 = 2;
}

/// All virtual services of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VirtualServices {
    /// In the order of the text.
    pub services: Vec<VirtualService>,
}

impl VirtualServices {
    /// Reads the output of `ipvsadm -Sn`.
    pub fn read(text: &str) -> Result<VirtualServices, IpvsReadError> {
        read::read(text)
    }

    pub(crate) fn find(&self, protocol: Protocol, address: IpAddr, port: u16) -> Option<usize> {
        let wanted = SocketAddr::new(address, port);
        self.services.iter().position(|service| service.protocol == protocol && service.address == wanted)
    }
}

fn service_option(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::TCP => "-t",
        Protocol::UDP => "-u",
        _ => "--sctp-service",
    }
}

impl fmt::Display for VirtualServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for service in &self.services {
            let (option, address) = (service_option(service.protocol), service.address);
            write!(f, "-A {option} {address} -s {}", service.scheduler.name())?;
            if let Some(persistence) = service.persistence {
                write!(f, " -p {}", persistence.seconds)?;
                if persistence.prefix != if address.is_ipv4() { 32 } else { 128 } {
                    write!(f, " -M {}", read::netmask(address.is_ipv4(), persistence.prefix))?;
                }
            }
            if service.flags != 0 {
                write!(f, " -b {}", read::flags(service.scheduler, service.flags))?;
            }
            writeln!(f, "{}", if service.one_packet { " -o" } else { "" })?;
            for server in service.servers.iter().rev() {
                let method = match server.forwarding {
                    Forwarding::Masquerade => "-m",
                    Forwarding::Route => "-g",
                    Forwarding::Tunnel => "-i",
                };
                write!(f, "-a {option} {address} -r {} {method} -w {}", server.address, server.weight)?;
                if server.upper != 0 || server.lower != 0 {
                    write!(f, " -x {} -y {}", server.upper, server.lower)?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
