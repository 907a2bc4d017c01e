use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::discovery::Hop;
use super::journey::{Journey, JourneyLeg, LegEnd, PacketVerdict, ReplyFailure};
use super::link::PortsOf;
use super::{HostId, HostStates, Network};
use crate::chance::Chance;
use crate::packet::{IcmpKind, Packet, PacketBody, TcpFlags};
use crate::protocol::Family;
use crate::trace::{DropReason, ElementRef, Event, Trace};
use crate::walk::arp::{ArpWay, REPLY, REQUEST};
use crate::walk::{BridgePorts, PacketExit, Skb, Walker};

const HOPS: usize = 64;

pub(super) struct NetworkWalk<'a> {
    pub(super) network: &'a Network,
    states: &'a mut HostStates,
    chance: &'a mut Chance,
    /// Neighbours that hosts learned from ARP packets on this journey.
    learned: BTreeSet<(usize, IpAddr)>,
    elements: Vec<ElementRef>,
}

enum LegStart {
    Socket(Packet),
    Kernel(Box<Skb>),
}

pub(super) fn journey(
    network: &Network,
    states: &mut HostStates,
    chance: &mut Chance,
    from: HostId,
    packet: &Packet,
) -> Journey {
    let mut run = NetworkWalk { network, states, chance, learned: BTreeSet::new(), elements: Vec::new() };
    let journey = both_ways(&mut run, from, packet);
    Journey { elements: run.elements, ..journey }
}

fn both_ways(run: &mut NetworkWalk<'_>, from: HostId, packet: &Packet) -> Journey {
    let (network, elements) = (run.network, Vec::new());
    let (mut request, answer) = run.leg(from, LegStart::Socket(packet.clone()));
    let (host, arrived) = match &request.end {
        LegEnd::Reached { host, packet } => (*host, packet.clone()),
        LegEnd::Rejected { host, with } => {
            let (host, with) = (*host, *with);
            let reply = answer.map(|answer| run.leg(host, LegStart::Kernel(answer)).0);
            let delivered = reply.as_ref().is_some_and(|reply| delivered(reply, from, packet));
            return Journey {
                request,
                reply,
                verdict: PacketVerdict::Rejected { by: host, with, delivered },
                elements,
            };
        }
        LegEnd::Lost { host, why } => {
            let verdict = PacketVerdict::Dropped { by: *host, why: why.clone() };
            return Journey { request, reply: None, verdict, elements };
        }
    };
    let (source, destination) = arrived.ports().unwrap_or((0, 0));
    let (at, saw) = (SocketAddr::new(arrived.destination, destination), SocketAddr::new(arrived.source, source));
    let this = &network.hosts[host.0];
    let echo = matches!(arrived.body, PacketBody::Echo { .. });
    if !echo && !this.listens(arrived.protocol(), arrived.destination, destination) {
        request.trace.push(Event::Refused { host: this.name.clone(), packet: arrived.clone() });
        let reply = refusal(&arrived).map(|refusal| run.leg(host, LegStart::Kernel(Box::new(Skb::new(refusal)))).0);
        let delivered = reply.as_ref().is_some_and(|reply| delivered(reply, from, packet));
        return Journey { request, reply, verdict: PacketVerdict::Refused { by: host, at, delivered }, elements };
    }
    request.trace.push(Event::Delivered { host: this.name.clone(), packet: arrived.clone() });
    let Some(answer) = arrived.answer() else {
        let verdict = PacketVerdict::Unanswered { by: host, at, saw, why: ReplyFailure::None };
        return Journey { request, reply: None, verdict, elements };
    };
    // The kernel, not a socket, answers echo requests.
    let start = if echo { LegStart::Kernel(Box::new(Skb::new(answer))) } else { LegStart::Socket(answer) };
    let (mut reply, _) = run.leg(host, start);
    let verdict = match broken(&reply, from, packet) {
        None => {
            let name = network.hosts[from.0].name.clone();
            if let LegEnd::Reached { packet, .. } = &reply.end {
                reply.trace.push(Event::Delivered { host: name, packet: packet.clone() });
            }
            PacketVerdict::Answered { by: host, at, saw }
        }
        Some(why) => PacketVerdict::Unanswered { by: host, at, saw, why },
    };
    Journey { request, reply: Some(reply), verdict, elements }
}

fn refusal(packet: &Packet) -> Option<Packet> {
    match packet.body {
        PacketBody::Tcp { source, destination, flags, .. } if !flags.has(TcpFlags::RST) => {
            let flags = TcpFlags(TcpFlags::RST | TcpFlags::ACK);
            let body = PacketBody::Tcp { source: destination, destination: source, flags, out_of_window: false };
            Some(Packet { source: packet.destination, destination: packet.source, body })
        }
        PacketBody::Udp { .. } | PacketBody::Sctp { .. } => {
            let kind = match packet.family() {
                Family::V4 => IcmpKind { kind: 3, code: 3 },
                Family::V6 => IcmpKind { kind: 1, code: 4 },
            };
            let body = PacketBody::Error { kind, about: Box::new(packet.clone()) };
            Some(Packet { source: packet.destination, destination: packet.source, body })
        }
        _ => None,
    }
}

fn broken(reply: &JourneyLeg, from: HostId, sent: &Packet) -> Option<ReplyFailure> {
    let (host, packet) = match &reply.end {
        LegEnd::Reached { host, packet } => (*host, packet),
        LegEnd::Rejected { host, with } => return Some(ReplyFailure::Rejected { host: *host, with: *with }),
        LegEnd::Lost { host, why } => return Some(ReplyFailure::Lost { host: *host, why: why.clone() }),
    };
    let (back, there) = (packet.ports().unwrap_or((0, 0)), sent.ports().unwrap_or((0, 0)));
    if host != from || packet.destination != sent.source || back.1 != there.0 {
        return Some(ReplyFailure::Strayed { host });
    }
    let source = SocketAddr::new(packet.source, back.0);
    (source != SocketAddr::new(sent.destination, there.1)).then_some(ReplyFailure::WrongSource { from: source })
}

fn delivered(reply: &JourneyLeg, from: HostId, sent: &Packet) -> bool {
    match &reply.end {
        LegEnd::Reached { host, packet: Packet { body: PacketBody::Error { about, .. }, .. } } => {
            *host == from
                && (about.source, about.destination) == (sent.source, sent.destination)
                && about.ports() == sent.ports()
        }
        _ => broken(reply, from, sent).is_none(),
    }
}

impl NetworkWalk<'_> {
    fn walker<'b>(&'b mut self, host: usize, ports: &'b PortsOf<'b>, trace: &'b mut Trace) -> Walker<'b> {
        Walker {
            host: &self.network.hosts[host],
            state: self.states.entry(host).or_default(),
            chance: self.chance,
            trace,
            elements: &mut self.elements,
            ports,
            now: self.network.clock,
        }
    }

    /// Walks one direction; also returns the error packet of a rejection.
    fn leg(&mut self, from: HostId, start: LegStart) -> (JourneyLeg, Option<Box<Skb>>) {
        let network = self.network;
        let mut trace = Trace::with_capacity(48);
        let mut host = from.0;
        let ports = PortsOf { network, host };
        let mut leaves = match start {
            LegStart::Socket(packet) => self.walker(host, &ports, &mut trace).send(packet),
            LegStart::Kernel(skb) => self.walker(host, &ports, &mut trace).emit(*skb),
        };
        let mut searched = None;
        for _ in 0..HOPS {
            let at = HostId(host);
            let bridged = matches!(leaves, PacketExit::Port { .. });
            let (interface, next_hop, packet) = match leaves {
                PacketExit::Here(packet) => {
                    return (JourneyLeg { end: LegEnd::Reached { host: at, packet }, trace }, None);
                }
                PacketExit::Lost(why) => return (JourneyLeg { end: LegEnd::Lost { host: at, why }, trace }, None),
                PacketExit::Rejected { with, answer } => {
                    return (JourneyLeg { end: LegEnd::Rejected { host: at, with }, trace }, answer);
                }
                PacketExit::Port { port, next_hop, packet } => (Some(port), next_hop, packet),
                PacketExit::Out { interface, next_hop, packet } => {
                    if let Some((at, why)) = self.resolve(host, interface, next_hop, &packet, &mut trace) {
                        return (JourneyLeg { end: LegEnd::Lost { host: HostId(at), why }, trace }, None);
                    }
                    (self.port_or_interface(host, interface, next_hop), next_hop, packet)
                }
            };
            let mut lost = |host: HostId, why: DropReason| {
                trace.push(Event::Lost(why.clone()));
                (JourneyLeg { end: LegEnd::Lost { host, why }, trace: std::mem::take(&mut trace) }, None)
            };
            if let Some(why) = interface.and_then(|interface| network.hosts[host].blocked(interface)) {
                return lost(at, why);
            }
            let next = interface.and_then(|interface| network.neighbour(host, interface, next_hop));
            let Some(next @ (far, far_interface)) = next else {
                return lost(at, DropReason::NoNeighbour(next_hop));
            };
            let from = (host, interface.unwrap_or(far_interface));
            let hop = Hop { packet: &packet, next_hop, from, to: next };
            // A bridge passes frames on without a search of its own, unless DNAT has changed their destination.
            let is_known = bridged && searched == Some(next_hop);
            searched = Some(next_hop);
            if let Some(why) = network.hosts[far].blocked(far_interface) {
                return lost(HostId(far), why);
            }
            if let Some((host, why)) = if is_known { None } else { self.stopped_discovery(&hop) } {
                return lost(host, why);
            }
            host = far;
            let ports = PortsOf { network, host };
            leaves = self.walker(host, &ports, &mut trace).arrive(packet, far_interface, next_hop);
        }
        trace.push(Event::Lost(DropReason::TooManyHops));
        (JourneyLeg { end: LegEnd::Lost { host: HostId(host), why: DropReason::TooManyHops }, trace }, None)
    }

    /// Walks the ARP request for `next_hop` and its reply through the rules of both machines, or of the bridge between
    /// them. Returns where and why one of them is lost.
    fn resolve(
        &mut self,
        host: usize,
        interface: usize,
        next_hop: IpAddr,
        packet: &Packet,
        trace: &mut Trace,
    ) -> Option<(usize, DropReason)> {
        let network = self.network;
        if !network.sees_frames || next_hop.is_ipv6() || self.learned.contains(&(host, next_hop)) {
            return None;
        }
        let this = &network.hosts[host];
        let near = self.port_or_interface(host, interface, next_hop)?;
        if this.neighbours.contains(&(near, next_hop)) || this.resolved.contains(&(interface, next_hop)) {
            return None;
        }
        let (far, far_interface) = network.neighbour(host, near, next_hop)?;
        let that = &network.hosts[far];
        let own = Some(packet.source).filter(|source| this.is_local(*source));
        let sender = own.or_else(|| this.masquerade_source(interface, next_hop, next_hop)).unwrap_or(packet.source);
        let mut steps = vec![(host, REQUEST, ArpWay::Out(interface, next_hop))];
        match that.bridge_of[far_interface] {
            Some(bridge) if !that.is_local(next_hop) => {
                let port = PortsOf { network, host: far }.port_towards(bridge, next_hop)?;
                steps.push((far, REQUEST, ArpWay::Across(far_interface, port)));
                steps.push((far, REPLY, ArpWay::Across(port, far_interface)));
            }
            bridge => {
                steps.push((far, REQUEST, ArpWay::In(far_interface)));
                steps.push((far, REPLY, ArpWay::Out(bridge.unwrap_or(far_interface), sender)));
            }
        }
        steps.push((host, REPLY, ArpWay::In(near)));
        for (at, operation, way) in steps {
            let (from, to) = if operation == REQUEST { (sender, next_hop) } else { (next_hop, sender) };
            let ports = PortsOf { network, host: at };
            if let Some(why) = self.walker(at, &ports, trace).arp(operation, from, to, way) {
                return Some((at, why));
            }
            if matches!(way, ArpWay::In(_)) {
                self.learned.insert((at, from));
            }
        }
        None
    }

    fn port_or_interface(&self, host: usize, interface: usize, next_hop: IpAddr) -> Option<usize> {
        let bridge = self.network.hosts[host].bridge_of.contains(&Some(interface));
        if !bridge {
            return Some(interface);
        }
        PortsOf { network: self.network, host }.port_towards(interface, next_hop)
    }
}
