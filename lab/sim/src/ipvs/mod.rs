//! IPVS: virtual services as `ipvsadm -Sn` prints them, schedulers, and the table of connections.

pub(crate) mod connections;
mod hash;
mod read;
pub(crate) mod schedule;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

pub use read::IpvsReadError;

use crate::protocol::Protocol;

/// How a destination is chosen (net/netfilter/ipvs/ip_vs_*.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheduler {
    /// In turn.
    RoundRobin,
    /// In turn, by weight.
    WeightedRoundRobin,
    /// Whoever has the fewest connections.
    LeastConnections,
    /// Likewise, by weight.
    WeightedLeastConnections,
    /// By destination address, moved to who has fewest connections when overloaded.
    LocalityLeastConnections,
    /// Likewise, with several destinations for an address.
    LocalityLeastConnectionsReplicated,
    /// By a hash of the destination address.
    DestinationHash,
    /// By a hash of the source address.
    SourceHash,
    /// The shortest expected delay.
    ShortestExpectedDelay,
    /// Whoever is idle, else the shortest expected delay.
    NeverQueue,
    /// By Maglev's hash of the source address.
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
    /// As ipvsadm calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, scheduler)| *scheduler == self).map_or("", |(name, _)| name)
    }

    fn parse(text: &str) -> Option<Scheduler> {
        NAMES.iter().find(|(name, _)| *name == text).map(|(_, scheduler)| *scheduler)
    }
}

/// How a packet gets to its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Forwarding {
    /// `-m`: translated.
    Masquerade,
    /// `-g`: as it is, to the destination's hardware address. Read, but not walked.
    Route,
    /// `-i`: in a tunnel. Read, but not walked.
    Tunnel,
}

/// Persistence: a client stays with its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Persistence {
    /// Seconds after the last connection.
    pub seconds: u32,
    /// The length of the prefix of the client's address that counts.
    pub prefix: u8,
}

/// A destination ("real server").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RealServer {
    /// Its address and port.
    pub address: SocketAddr,
    /// How packets get there.
    pub forwarding: Forwarding,
    /// Its weight; with 0 it gets no new connections.
    pub weight: u32,
    /// It gets no new connections above so many; 0 is no limit.
    pub upper: u32,
    /// It gets new ones again below so many.
    pub lower: u32,
}

/// A virtual service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualService {
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// The address and port that clients call.
    pub address: SocketAddr,
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The scheduler's flags, as bits 1, 2, 4: for `sh` and `mh` fallback is 1, port is 2.
    pub flags: u8,
    /// Persistence.
    pub persistence: Option<Persistence>,
    /// `-o`: every datagram is scheduled anew.
    pub one_packet: bool,
    /// Its destinations, in the kernel's order, by which schedulers go: the one that was added last is the first.
    pub servers: Vec<RealServer>,
}

impl VirtualService {
    /// Scheduler flag: try another destination when the chosen one is not available.
    pub const FALLBACK: u8 = 1;
    /// Scheduler flag: the client's port counts too.
    pub const PORT: u8 = 2;
}

/// All virtual services of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VirtualServices {
    /// The services, in the order of the text.
    pub services: Vec<VirtualService>,
}

impl VirtualServices {
    /// Reads what `ipvsadm -Sn` prints.
    ///
    /// # Errors
    /// The first line that is not understood in full.
    pub fn read(text: &str) -> Result<VirtualServices, IpvsReadError> {
        read::read(text)
    }

    /// The service that a packet calls.
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
    /// As `ipvsadm -Sn` prints them.
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
