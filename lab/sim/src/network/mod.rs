//! Machines on links, between which packets and replies walk.

mod discovery;
mod journey;
mod link;
mod outcomes;
mod run;

use std::collections::BTreeMap;
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

/// A machine's id, valid in the network that returned it and in that network's clones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(crate) usize);

/// An impossible link or packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum NetworkError {
    /// A missing interface.
    #[error("host {host} has no interface {interface:?} to link")]
    NoInterface {
        /// The host.
        host: String,
        /// The interface.
        interface: String,
    },
    /// The interface already has a link.
    #[error("interface {interface:?} of host {host} is linked already")]
    Linked {
        /// The host.
        host: String,
        /// The interface.
        interface: String,
    },
    /// No source address: none given, and no route chooses one.
    #[error("host {host} has no source address for {to}")]
    NoSource {
        /// The host.
        host: String,
        /// The destination.
        to: SocketAddr,
    },
    /// The protocol has no ports, or the addresses' families differ.
    #[error("cannot build a first packet of {protocol} from {source_address} to {to}")]
    NoPacket { protocol: Protocol, source_address: IpAddr, to: SocketAddr },
    #[error(transparent)]
    TooManyWays(#[from] TooManyWays),
    #[error(transparent)]
    NotModelled(#[from] NotModelled),
    #[error(transparent)]
    Undecided(#[from] Undecided),
}

/// A new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Flow {
    /// The caller.
    pub from: HostId,
    /// The source address; `None` if routes choose it.
    pub source: Option<IpAddr>,
    pub source_port: u16,
    pub to: SocketAddr,
    /// TCP, UDP, SCTP.
    pub protocol: Protocol,
}

impl Flow {
    /// Returns a TCP flow from port 40000; routes choose the address.
    #[must_use]
    pub fn tcp(from: HostId, to: SocketAddr) -> Flow {
        Flow { from, source: None, source_port: 40_000, to, protocol: Protocol::TCP }
    }

    /// Like [`Flow::tcp`], over UDP.
    #[must_use]
    pub fn udp(from: HostId, to: SocketAddr) -> Flow {
        Flow { protocol: Protocol::UDP, ..Flow::tcp(from, to) }
    }

    /// Sets the source port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Flow {
        self.source_port = port;
        self
    }

    /// Sets the source address.
    #[must_use]
    pub fn source(mut self, source: IpAddr) -> Flow {
        self.source = Some(source);
        self
    }
}

/// A conntrack entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TrackedConnection {
    pub original: Tuple,
    pub reply: Tuple,
    /// Whether a reply was seen.
    pub answered: bool,
}

pub(crate) type HostStates = BTreeMap<usize, HostState>;

/// Machines, links and state; [`Network::advance`] moves the clock.
#[derive(Debug, Clone, Default)]
pub struct Network {
    hosts: Arc<Vec<Arc<Host>>>,
    links: Arc<Vec<NetworkLink>>,
    /// Link index per host and interface.
    link_of: Arc<Vec<Vec<Option<usize>>>>,
    /// By host; missing: no packet was there.
    states: HostStates,
    /// Milliseconds.
    clock: u64,
    /// Whether any machine has chains that see frames.
    sees_frames: bool,
}

impl Network {
    /// Returns an empty network.
    #[must_use]
    pub fn new() -> Network {
        Network::default()
    }

    /// Adds a machine without links.
    pub fn add(&mut self, host: impl Into<Arc<Host>>) -> HostId {
        let host = host.into();
        self.sees_frames |= host.nft.sees_frames();
        Arc::make_mut(&mut self.link_of).push(vec![None; host.interfaces.len()]);
        Arc::make_mut(&mut self.hosts).push(host);
        HostId(self.hosts.len() - 1)
    }

    /// Connects interfaces: two by a veth pair, more by a switch.
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
            Arc::make_mut(&mut self.link_of)[*host][*at] = Some(self.links.len());
        }
        Arc::make_mut(&mut self.links).push(link);
        Ok(())
    }

    /// Replaces a machine. Its links and state remain, so the interfaces must be the same in the same order.
    pub fn replace(&mut self, id: HostId, host: impl Into<Arc<Host>>) {
        let host = host.into();
        self.sees_frames |= host.nft.sees_frames();
        Arc::make_mut(&mut self.link_of)[id.0].resize(host.interfaces.len(), None);
        if let Some(state) = self.states.get_mut(&id.0) {
            state.rules_changed(&host);
        }
        for link in self.link_of[id.0].iter().flatten() {
            Arc::make_mut(&mut self.links)[*link].forget_addresses();
        }
        Arc::make_mut(&mut self.hosts)[id.0] = host;
    }

    /// Returns a machine. Panics for an id of another network.
    #[must_use]
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0]
    }

    /// Finds a machine by name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<HostId> {
        self.hosts.iter().position(|host| host.name() == name).map(HostId)
    }

    /// Moves the clock forward.
    pub fn advance(&mut self, time: Duration) {
        self.clock += u64::try_from(time.as_millis()).unwrap_or(u64::MAX - self.clock);
    }

    /// The time since the network's start.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_millis(self.clock)
    }

    /// Returns a machine's confirmed conntrack entries.
    #[must_use]
    pub fn connections(&self, id: HostId) -> Vec<TrackedConnection> {
        let state = self.states.get(&id.0).into_iter();
        let known = state.flat_map(|state| state.connections.iter()).filter(|connection| connection.confirmed);
        let known =
            known.map(|one| TrackedConnection { original: one.original, reply: one.reply, answered: one.seen_reply });
        known.collect()
    }

    /// The number of IPVS connections, as `ActiveConn` plus `InActConn` of `ipvsadm -L`.
    #[must_use]
    pub fn connections_to(&self, id: HostId, service: &VirtualService, server: SocketAddr) -> usize {
        self.states
            .get(&id.0)
            .map_or(0, |state| state.ipvs.count((service.protocol, service.address), server, self.clock))
    }

    /// Deletes conntrack entries like `conntrack -D`; returns their number.
    pub fn forget(&mut self, id: HostId, mut which: impl FnMut(&TrackedConnection) -> bool) -> usize {
        let Some(state) = self.states.get_mut(&id.0) else { return 0 };
        state.connections.remove_where(|one| {
            which(&TrackedConnection { original: one.original, reply: one.reply, answered: one.seen_reply })
        })
    }

    /// Returns the first packet of a flow.
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

    /// Sends a flow's first packet and its reply; keeps the state.
    pub fn send(&mut self, flow: &Flow, chance: &mut Chance) -> Result<Journey, NetworkError> {
        let packet = self.first_packet(flow)?;
        let journey = self.send_packet(flow.from, &packet, chance);
        journey.known().map_err(NetworkError::from)?;
        Ok(journey)
    }

    /// Like [`Network::send`], for any packet; see [`Journey::known`].
    pub fn send_packet(&mut self, from: HostId, packet: &Packet, chance: &mut Chance) -> Journey {
        let mut states = std::mem::take(&mut self.states);
        let journey = run::journey(self, &mut states, chance, from, packet);
        self.states = states;
        journey
    }

    /// Returns the outcomes of first packet and reply with exact probabilities.
    pub fn outcomes(&self, flow: &Flow) -> Result<Outcomes, NetworkError> {
        let packet = self.first_packet(flow)?;
        self.packet_outcomes(flow.from, &packet)
    }

    /// Calls `visit` with each path of a flow's first packet and the network after it, until `visit` returns false. Paths
    /// that depend on unknown facts are left out.
    pub fn each_way(&self, flow: &Flow, mut visit: impl FnMut(&Journey, Network) -> bool) -> Result<(), NetworkError> {
        let packet = self.first_packet(flow)?;
        outcomes::each_way(self, flow.from, &packet, |journey, states| {
            journey.known().is_err() || visit(&journey, Network { states, ..self.clone() })
        });
        Ok(())
    }

    /// Like [`Network::outcomes`], for any packet. Fails above 100,000 paths, and if the outcome depends on an unknown
    /// fact.
    pub fn packet_outcomes(&self, from: HostId, packet: &Packet) -> Result<Outcomes, NetworkError> {
        outcomes::explore(self, &self.states, from, packet)
    }
}
