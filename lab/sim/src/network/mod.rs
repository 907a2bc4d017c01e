//! Several machines on links: packets walk from one to the next until a socket takes them, and their answers walk back.

mod journey;
mod link;
mod outcomes;
mod run;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub use crate::trace::NotModelled;
pub use journey::{Journey, JourneyLeg, LegEnd, PacketVerdict, ReplyFailure};
pub use outcomes::{Outcomes, PacketOutcome, TooManyWays, Undecided};

use crate::chance::Chance;
use crate::conntrack::Tuple;
use crate::host::Host;
use crate::host::route::RouteDecision;
use crate::ipvs::VirtualService;
use crate::packet::Packet;
use crate::protocol::Protocol;
use crate::walk::HostState;
use link::NetworkLink;

/// A machine of a network. It means something only to the network that it was made by, and to clones of that; another
/// one may panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(crate) usize);

/// Why links or packets cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A link ends at an interface that there is not.
    #[error("host {host} has no interface {interface:?} to link")]
    NoInterface {
        /// The host.
        host: String,
        /// The interface.
        interface: String,
    },
    /// An interface is on two links.
    #[error("interface {interface:?} of host {host} is linked already")]
    Linked {
        /// The host.
        host: String,
        /// The interface.
        interface: String,
    },
    /// A flow without a source address: none was given, and the host has none that leads there.
    #[error("host {host} has no address to call {to} from")]
    NoSource {
        /// The host.
        host: String,
        /// The destination.
        to: SocketAddr,
    },
    /// A flow that no first packet can be made of.
    #[error("no first packet of {protocol} goes from {source_address} to {to}")]
    NoPacket {
        /// The protocol.
        protocol: Protocol,
        /// The source.
        source_address: IpAddr,
        /// The destination.
        to: SocketAddr,
    },
    /// Exact results were asked for, and there are too many ways.
    #[error(transparent)]
    TooManyWays(#[from] TooManyWays),
    /// The packet reached a rule that asks for something that is not modelled.
    #[error(transparent)]
    NotModelled(#[from] NotModelled),
    /// What becomes of the packet depends on what is not modelled or not known.
    #[error(transparent)]
    Undecided(#[from] Undecided),
}

/// A connection that somebody opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Where the caller is.
    pub from: HostId,
    /// Its address; none is the one that its routes choose.
    pub source: Option<IpAddr>,
    /// Its port.
    pub source_port: u16,
    /// Whom it calls.
    pub to: SocketAddr,
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
}

impl Flow {
    /// A call over TCP from port 40000 of the address that the caller's routes choose.
    #[must_use]
    pub fn tcp(from: HostId, to: SocketAddr) -> Flow {
        Flow { from, source: None, source_port: 40_000, to, protocol: Protocol::TCP }
    }

    /// Likewise over UDP.
    #[must_use]
    pub fn udp(from: HostId, to: SocketAddr) -> Flow {
        Flow { protocol: Protocol::UDP, ..Flow::tcp(from, to) }
    }

    /// From another port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Flow {
        self.source_port = port;
        self
    }

    /// From a certain address.
    #[must_use]
    pub fn source(mut self, source: IpAddr) -> Flow {
        self.source = Some(source);
        self
    }
}

/// A connection as a machine remembers it, for those that look at it from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackedConnection {
    /// How its packets looked as they came.
    pub original: Tuple,
    /// How answers look as they come.
    pub reply: Tuple,
    /// Whether it was answered.
    pub answered: bool,
}

/// Machines, links, what packets left behind, and a clock that stands still unless it is moved.
#[derive(Debug, Clone, Default)]
pub struct Network {
    hosts: Vec<Arc<Host>>,
    links: Vec<NetworkLink>,
    /// For each host and interface, its link.
    link_of: Vec<Vec<Option<usize>>>,
    states: Vec<HostState>,
    /// Milliseconds.
    clock: u64,
}

impl Network {
    /// Without machines.
    #[must_use]
    pub fn new() -> Network {
        Network::default()
    }

    /// Adds a machine.
    pub fn add(&mut self, host: impl Into<Arc<Host>>) -> HostId {
        let host = host.into();
        self.link_of.push(vec![None; host.interfaces.len()]);
        self.hosts.push(host);
        self.states.push(HostState::default());
        HostId(self.hosts.len() - 1)
    }

    /// Links interfaces, such as the two of a veth pair, or all that hang on one switch.
    ///
    /// # Errors
    /// An interface that there is not, or that is on a link already.
    pub fn link(&mut self, ends: &[(HostId, &str)]) -> Result<(), NetworkError> {
        let mut link = NetworkLink::default();
        for (id, interface) in ends {
            let host = &self.hosts[id.0];
            let names = || (host.name().to_owned(), (*interface).to_owned());
            let Some(at) = host.interface(interface) else {
                let (host, interface) = names();
                return Err(NetworkError::NoInterface { host, interface });
            };
            if self.link_of[id.0][at].is_some() || link.ends.contains(&(id.0, at)) {
                let (host, interface) = names();
                return Err(NetworkError::Linked { host, interface });
            }
            link.ends.push((id.0, at));
        }
        for (host, at) in &link.ends {
            self.link_of[*host][*at] = Some(self.links.len());
        }
        self.links.push(link);
        Ok(())
    }

    /// Puts another machine in a machine's place, as after a change of its rules: links stay (its interfaces must be
    /// the same ones in the same order), and so does what packets have left behind.
    pub fn replace(&mut self, id: HostId, host: impl Into<Arc<Host>>) {
        let host = host.into();
        self.link_of[id.0].resize(host.interfaces.len(), None);
        self.states[id.0].rules_changed(&host);
        self.hosts[id.0] = host;
    }

    /// A machine.
    #[must_use]
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0]
    }

    /// The machine of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<HostId> {
        self.hosts.iter().position(|host| host.name() == name).map(HostId)
    }

    /// Moves the clock.
    pub fn advance(&mut self, time: Duration) {
        self.clock += u64::try_from(time.as_millis()).unwrap_or(u64::MAX - self.clock);
    }

    /// The time since the beginning.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_millis(self.clock)
    }

    /// The connections that a machine remembers.
    #[must_use]
    pub fn connections(&self, id: HostId) -> Vec<TrackedConnection> {
        let known = self.states[id.0].connections.iter().filter(|connection| connection.confirmed);
        let known =
            known.map(|one| TrackedConnection { original: one.original, reply: one.reply, answered: one.seen_reply });
        known.collect()
    }

    /// How many connections to a destination of a service a machine's IPVS remembers, ended ones too (`ActiveConn` and
    /// `InActConn` of `ipvsadm -L`).
    #[must_use]
    pub fn connections_to(&self, id: HostId, service: &VirtualService, server: SocketAddr) -> usize {
        self.states[id.0].ipvs.count((service.protocol, service.address), server, self.clock)
    }

    /// Has a machine forget the connections that `which` picks, as `conntrack -D` does; returns how many.
    pub fn forget(&mut self, id: HostId, mut which: impl FnMut(&TrackedConnection) -> bool) -> usize {
        self.states[id.0].connections.remove_where(|one| {
            which(&TrackedConnection { original: one.original, reply: one.reply, answered: one.seen_reply })
        })
    }

    /// The first packet of a flow.
    ///
    /// # Errors
    /// No source address, or no such packet.
    pub fn first_packet(&self, flow: &Flow) -> Result<Packet, NetworkError> {
        let host = &self.hosts[flow.from.0];
        let chosen = || match host.route(flow.to.ip()) {
            RouteDecision::Local => Some(host.source_to_itself(flow.to.ip())),
            RouteDecision::Out(way) => way.source,
            RouteDecision::Broadcast | RouteDecision::Refused(_) | RouteDecision::NoRoute => None,
        };
        let none = || NetworkError::NoSource { host: host.name().to_owned(), to: flow.to };
        let source = flow.source.or_else(chosen).ok_or_else(none)?;
        let packet = Packet::first(flow.protocol, SocketAddr::new(source, flow.source_port), flow.to);
        packet.ok_or(NetworkError::NoPacket { protocol: flow.protocol, source_address: source, to: flow.to })
    }

    /// Opens a connection: its first packet, and the answer to it. What they leave behind stays.
    ///
    /// # Errors
    /// No packet can be made of the flow.
    pub fn send(&mut self, flow: &Flow, chance: &mut Chance) -> Result<Journey, NetworkError> {
        let packet = self.first_packet(flow)?;
        let journey = self.send_packet(flow.from, &packet, chance);
        journey.known().map_err(NetworkError::from)?;
        Ok(journey)
    }

    /// Sends any packet from a machine's socket, and the answer to it back. [`Journey::known`] says whether all of it is modelled.
    pub fn send_packet(&mut self, from: HostId, packet: &Packet, chance: &mut Chance) -> Journey {
        let mut states = std::mem::take(&mut self.states);
        let journey = run::journey(self, &mut states, chance, from, packet);
        self.states = states;
        journey
    }

    /// Every way that a flow's first packet and its answer can take, with exact probabilities. Nothing is left behind.
    ///
    /// # Errors
    /// No packet can be made of the flow; otherwise as [`Network::packet_outcomes`].
    pub fn outcomes(&self, flow: &Flow) -> Result<Outcomes, NetworkError> {
        let packet = self.first_packet(flow)?;
        self.packet_outcomes(flow.from, &packet)
    }

    /// The same for any packet.
    ///
    /// # Errors
    /// There are more than a hundred thousand ways, or what becomes of the packet depends on something that is not modelled.
    pub fn packet_outcomes(&self, from: HostId, packet: &Packet) -> Result<Outcomes, NetworkError> {
        outcomes::explore(self, &self.states, from, packet)
    }
}
