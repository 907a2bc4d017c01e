//! Walking from machine to machine.

use std::net::SocketAddr;

use super::journey::{Broken, End, Journey, Leg, Verdict};
use super::link::PortsOf;
use super::{HostId, Network};
use crate::chance::Chance;
use crate::packet::{Body, IcmpKind, Packet, TcpFlags};
use crate::protocol::Family;
use crate::trace::{Event, Lost, Trace};
use crate::walk::{Leaves, Skb, State, Walker};

/// More than the default hop limit allows.
const HOPS: usize = 64;

struct Run<'a> {
    network: &'a Network,
    states: &'a mut [State],
    chance: &'a mut Chance,
}

/// What sets a packet on its way.
enum Start {
    Socket(Packet),
    Kernel(Box<Skb>),
}

/// The way of `packet` from a socket of `from`, and of what comes back.
pub(super) fn journey(
    network: &Network,
    states: &mut [State],
    chance: &mut Chance,
    from: HostId,
    packet: &Packet,
) -> Journey {
    let mut run = Run { network, states, chance };
    let (mut request, answer) = run.leg(from, Start::Socket(packet.clone()));
    let (host, arrived) = match &request.end {
        End::Reached { host, packet } => (*host, packet.clone()),
        End::Rejected { host, with } => {
            let (host, with) = (*host, *with);
            let reply = answer.map(|answer| run.leg(host, Start::Kernel(answer)).0);
            let delivered = reply.as_ref().is_some_and(|reply| delivered(reply, from, packet));
            return Journey { request, reply, verdict: Verdict::Rejected { by: host, with, delivered } };
        }
        End::Lost { host, why } => {
            let verdict = Verdict::Dropped { by: *host, why: why.clone() };
            return Journey { request, reply: None, verdict };
        }
    };
    let (source, destination) = arrived.ports().unwrap_or((0, 0));
    let (at, saw) = (SocketAddr::new(arrived.destination, destination), SocketAddr::new(arrived.source, source));
    let this = &network.hosts[host.0];
    let echo = matches!(arrived.body, Body::Echo { .. });
    if !echo && !this.listens(arrived.protocol(), arrived.destination, destination) {
        request.trace.push(Event::Refused { host: this.name.clone(), packet: arrived.clone() });
        let reply = refusal(&arrived).map(|refusal| run.leg(host, Start::Kernel(Box::new(Skb::new(refusal)))).0);
        let delivered = reply.as_ref().is_some_and(|reply| delivered(reply, from, packet));
        return Journey { request, reply, verdict: Verdict::Refused { by: host, at, delivered } };
    }
    request.trace.push(Event::Delivered { host: this.name.clone(), packet: arrived.clone() });
    let Some(answer) = arrived.answer() else {
        let verdict = Verdict::Unanswered { by: host, at, saw, why: Broken::None };
        return Journey { request, reply: None, verdict };
    };
    // Echoes are answered by the kernel.
    let start = if echo { Start::Kernel(Box::new(Skb::new(answer))) } else { Start::Socket(answer) };
    let (mut reply, _) = run.leg(host, start);
    let verdict = match broken(&reply, from, packet) {
        None => {
            let name = network.hosts[from.0].name.clone();
            if let End::Reached { packet, .. } = &reply.end {
                reply.trace.push(Event::Delivered { host: name, packet: packet.clone() });
            }
            Verdict::Answered { by: host, at, saw }
        }
        Some(why) => Verdict::Unanswered { by: host, at, saw, why },
    };
    Journey { request, reply: Some(reply), verdict }
}

/// What a machine sends back where no socket waits.
fn refusal(packet: &Packet) -> Option<Packet> {
    match packet.body {
        Body::Tcp { source, destination, flags, .. } if !flags.has(TcpFlags::RST) => {
            let flags = TcpFlags(TcpFlags::RST | TcpFlags::ACK);
            let body = Body::Tcp { source: destination, destination: source, flags, out_of_window: false };
            Some(Packet { source: packet.destination, destination: packet.source, body })
        }
        Body::Udp { .. } | Body::Sctp { .. } => {
            let kind = match packet.family() {
                Family::V4 => IcmpKind { kind: 3, code: 3 },
                Family::V6 => IcmpKind { kind: 1, code: 4 },
            };
            let body = Body::Error { kind, about: Box::new(packet.clone()) };
            Some(Packet { source: packet.destination, destination: packet.source, body })
        }
        _ => None,
    }
}

/// Whether the packet comes back to where `sent` came from, as an answer to it.
fn broken(reply: &Leg, from: HostId, sent: &Packet) -> Option<Broken> {
    let (host, packet) = match &reply.end {
        End::Reached { host, packet } => (*host, packet),
        End::Rejected { host, with } => return Some(Broken::Rejected { host: *host, with: *with }),
        End::Lost { host, why } => return Some(Broken::Lost { host: *host, why: why.clone() }),
    };
    let (back, there) = (packet.ports().unwrap_or((0, 0)), sent.ports().unwrap_or((0, 0)));
    if host != from || packet.destination != sent.source || back.1 != there.0 {
        return Some(Broken::Strayed { host });
    }
    let source = SocketAddr::new(packet.source, back.0);
    (source != SocketAddr::new(sent.destination, there.1)).then_some(Broken::WrongSource { from: source })
}

/// Whether a rejection reaches the socket that `sent` came from.
fn delivered(reply: &Leg, from: HostId, sent: &Packet) -> bool {
    match &reply.end {
        End::Reached { host, packet: Packet { body: Body::Error { about, .. }, .. } } => {
            *host == from
                && (about.source, about.destination) == (sent.source, sent.destination)
                && about.ports() == sent.ports()
        }
        _ => broken(reply, from, sent).is_none(),
    }
}

impl Run<'_> {
    fn walker<'b>(&'b mut self, host: usize, ports: &'b PortsOf<'b>, trace: &'b mut Trace) -> Walker<'b> {
        Walker {
            host: &self.network.hosts[host],
            state: &mut self.states[host],
            chance: self.chance,
            trace,
            ports,
            now: self.network.clock,
        }
    }

    /// One way; and what the kernel answers if it is rejected.
    fn leg(&mut self, from: HostId, start: Start) -> (Leg, Option<Box<Skb>>) {
        let network = self.network;
        let mut trace = Trace::with_capacity(48);
        let mut host = from.0;
        let ports = PortsOf { network, host };
        let mut leaves = match start {
            Start::Socket(packet) => self.walker(host, &ports, &mut trace).send(packet),
            Start::Kernel(skb) => self.walker(host, &ports, &mut trace).emit(*skb),
        };
        for _ in 0..HOPS {
            let at = HostId(host);
            let (interface, next_hop, packet) = match leaves {
                Leaves::Here(packet) => return (Leg { end: End::Reached { host: at, packet }, trace }, None),
                Leaves::Lost(why) => return (Leg { end: End::Lost { host: at, why }, trace }, None),
                Leaves::Rejected { with, answer } => {
                    return (Leg { end: End::Rejected { host: at, with }, trace }, answer);
                }
                Leaves::Port { port, next_hop, packet } => (Some(port), next_hop, packet),
                Leaves::Out { interface, next_hop, packet } => {
                    (self.port_or_interface(host, interface, next_hop), next_hop, packet)
                }
            };
            let next = interface.and_then(|interface| network.neighbour(host, interface, next_hop));
            let Some((far, far_interface)) = next else {
                let why = Lost::NoNeighbour(next_hop);
                trace.push(Event::Lost(why.clone()));
                return (Leg { end: End::Lost { host: at, why }, trace }, None);
            };
            host = far;
            let ports = PortsOf { network, host };
            leaves = self.walker(host, &ports, &mut trace).arrive(packet, far_interface, next_hop);
        }
        trace.push(Event::Lost(Lost::TooManyHops));
        (Leg { end: End::Lost { host: HostId(host), why: Lost::TooManyHops }, trace }, None)
    }

    /// Of a bridge the port that leads to the neighbour.
    fn port_or_interface(&self, host: usize, interface: usize, next_hop: std::net::IpAddr) -> Option<usize> {
        use crate::walk::Ports;
        let bridge = self.network.hosts[host].bridge_of.contains(&Some(interface));
        if !bridge {
            return Some(interface);
        }
        PortsOf { network: self.network, host }.port_towards(interface, next_hop)
    }
}
