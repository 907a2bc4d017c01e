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

impl Forwarding {
    fn option(self) -> &'static str {
        match self {
            Forwarding::Masquerade => "-m",
            Forwarding::Route => "-g",
            Forwarding::Tunnel => "-i",
        }
    }
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
    /// Options that are not modelled, as text: a scheduler, its flags, a persistence engine.
    pub unmodelled: Vec<String>,
}

impl VirtualService {
    /// Flag: replaces unavailable servers.
    pub const FALLBACK: u8 = 1;
    /// Flag: hashes the client's port.
    pub const PORT: u8 = 2;

    fn name(&self) -> String {
        format!("{} {}", service_option(self.protocol), self.address)
    }

    /// Returns why the choice of a server is not modelled.
    fn unmodelled(&self) -> Option<Unmodelled> {
        let of = |what: &str, why| Some(Unmodelled { service: self.name(), what: what.to_owned(), why });
        if !self.unmodelled.is_empty() {
            return of(&self.unmodelled.join(" "), "is not modelled");
        }
        if self.address.port() == 0 {
            return of("port 0", "serves every port, which is not modelled");
        }
        let server = self.servers.iter().find(|server| server.lower > 0)?;
        of(&format!("-y {}", server.lower), "is a lower threshold, which is not modelled")
    }
}

/// A virtual service of packets with a mark (`-f`); read, not simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct MarkService {
    pub mark: u32,
    /// As `ipvsadm` prints it, with its servers.
    pub lines: Vec<String>,
}

/// A virtual service that a packet reaches and whose effect is not modelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unmodelled {
    /// Such as `-t 192.0.2.200:443`.
    pub(crate) service: String,
    /// The option.
    pub(crate) what: String,
    /// A predicate of the option.
    pub(crate) why: &'static str,
}

pub(crate) enum CalledService<'a> {
    None,
    Modelled(&'a VirtualService),
    Unmodelled(Unmodelled),
}

/// All virtual services of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VirtualServices {
    /// In the order of the text.
    pub services: Vec<VirtualService>,
    /// Services of marked packets.
    pub marks: Vec<MarkService>,
}

impl VirtualServices {
    /// Reads the output of `ipvsadm -Sn`.
    pub fn read(text: &str) -> Result<VirtualServices, IpvsReadError> {
        read::read(text)
    }

    /// Whether there are no virtual services.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.marks.is_empty()
    }

    /// Models `ip_vs_service_find`: by the mark, then by address and port, then port 0.
    pub(crate) fn called(&self, protocol: Protocol, to: SocketAddr, mark: u32) -> CalledService<'_> {
        if self.marks.iter().any(|service| service.mark == mark && mark != 0) {
            let (service, what) = (format!("-f {mark}"), format!("-f {mark}"));
            return CalledService::Unmodelled(Unmodelled {
                service,
                what,
                why: "serves marked packets, which is not modelled",
            });
        }
        let found = self.find(protocol, to.ip(), to.port()).or_else(|| self.find(protocol, to.ip(), 0));
        let Some(service) = found.map(|at| &self.services[at]) else { return CalledService::None };
        service.unmodelled().map_or(CalledService::Modelled(service), CalledService::Unmodelled)
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
            write!(f, "-A {option} {address}")?;
            if !service.unmodelled.iter().any(|option| option.starts_with("-s ")) {
                write!(f, " -s {}", service.scheduler.name())?;
            }
            service.unmodelled.iter().try_for_each(|option| write!(f, " {option}"))?;
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
                let method = server.forwarding.option();
                write!(f, "-a {option} {address} -r {} {method} -w {}", server.address, server.weight)?;
                if server.upper != 0 || server.lower != 0 {
                    write!(f, " -x {} -y {}", server.upper, server.lower)?;
                }
                writeln!(f)?;
            }
        }
        self.marks.iter().flat_map(|service| &service.lines).try_for_each(|line| writeln!(f, "{line}"))
    }
}
