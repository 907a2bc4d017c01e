//! Sends requests through the simulated network and the proxies' relays.

use std::net::SocketAddr;
use std::time::Duration;

use svclab_cluster::traffic::probe::{Probe, ProbeAnswer, ProbeOutcome, RESET};
use svclab_sim::network::{Flow, HostId, Journey, NetworkError, Outcomes, PacketVerdict};
use svclab_sim::packet::Packet;
use svclab_sim::protocol::{Family, Protocol as Number};
use svclab_sim::rules::target::RejectWith;
use svclab_spec::Protocol;

use super::lab::{SimError, SimLab};
use super::machines::{machine, number};
use super::targets;
use svclab_sim::relays::{Relay, RelayPort, Relays};

#[derive(Debug, Clone)]
pub(super) struct SentRequest {
    pub(super) flow: Flow,
    pub(super) packet: Packet,
    pub(super) second: Option<RelayConnection>,
    /// The socket that answered: only its kernel knows the connection.
    reached: Option<Socket>,
}

/// The machine, and both ends' addresses as it sees them.
type Socket = (HostId, SocketAddr, SocketAddr);

fn socket(verdict: &PacketVerdict) -> Option<Socket> {
    match verdict {
        PacketVerdict::Answered { by, at, saw } => Some((*by, *at, *saw)),
        _ => None,
    }
}

#[derive(Debug, Clone)]
pub(super) struct RelayConnection {
    /// The node and listening port of the relay.
    pub(super) node: String,
    pub(super) port: RelayPort,
    from: HostId,
    packet: Packet,
    pub(super) is_dead: bool,
}

impl RelayConnection {
    /// Ends the connection if its backend has stopped serving and nothing keeps it. Drains have no end here.
    pub(super) fn lose(&mut self, node: &str, (before, now): (&Relays, &Relays)) {
        let Some(old) = before.get(&self.port).filter(|_| self.node == node) else { return };
        let fate = now.get(&self.port).map_or(old.fate, |new| new.fate);
        let backend = self.packet.ports().map(|(_, to)| SocketAddr::new(self.packet.destination, to));
        let serves = |relay: &Relay| backend.is_some_and(|backend| relay.serving.contains(&backend));
        self.is_dead |= fate == Some(Duration::ZERO) && !now.get(&self.port).is_some_and(serves);
    }
}

impl SimLab {
    pub(super) fn call(&mut self, probe: &Probe) -> Result<(ProbeOutcome, SentRequest), SimError> {
        let from = machine(&self.spec, &probe.from);
        let from = self.machines.network().find(&from).ok_or_else(|| SimError::Step(format!("there is no {from}")))?;
        let source_port = probe.source_port.unwrap_or_else(|| self.port());
        let protocol = number(probe.protocol);
        let flow = Flow { from, source: probe.source_address, source_port, to: probe.to, protocol };
        let packet = self.machines.network().first_packet(&flow)?;
        let journey = self.send(from, &packet)?;
        let reached = socket(&journey.verdict);
        let (answer, second) = match self.relay_reached(&journey.verdict, protocol) {
            None => (targets::answer(self.machines.network(), &self.spec, &journey.verdict), None),
            Some((node, host, port, relay, client)) => {
                self.connect_to_backend(node, host, (port, &relay), client, &journey)?
            }
        };
        let sent = SentRequest { flow, packet, second, reached };
        if probe.protocol == Protocol::Tcp && matches!(answer, ProbeAnswer::Replied { .. }) {
            self.both_legs(&sent, |packet| Some(packet.later()))?;
        }
        Ok((self.outcome(answer, &sent.packet), sent))
    }

    pub(super) fn send_again(&mut self, sent: &SentRequest) -> Result<ProbeOutcome, SimError> {
        let later = sent.packet.clone().later();
        let journey = self.send(sent.flow.from, &later)?;
        let first = self.answer_to_open(sent, &journey.verdict);
        let answer = match (&sent.second, first) {
            (Some(second), _) if second.is_dead => ProbeAnswer::Broken(RESET.to_owned()),
            (Some(second), ProbeAnswer::Replied { .. }) => {
                let journey = self.send(second.from, &second.packet.clone().later())?;
                targets::answer(self.machines.network(), &self.spec, &journey.verdict)
            }
            (_, first) => first,
        };
        Ok(self.outcome(answer, &later))
    }

    /// Returns what the client of an open connection learns. Another machine than the connection's resets it; an ICMP
    /// error does not end it.
    fn answer_to_open(&self, sent: &SentRequest, verdict: &PacketVerdict) -> ProbeAnswer {
        let is_tcp = sent.flow.protocol == Number::TCP;
        match verdict {
            PacketVerdict::Answered { .. } if is_tcp && sent.reached.is_some() && socket(verdict) != sent.reached => {
                ProbeAnswer::Broken(RESET.to_owned())
            }
            PacketVerdict::Rejected { with, .. } if is_tcp && *with != RejectWith::TcpReset => ProbeAnswer::TimedOut,
            _ => targets::answer(self.machines.network(), &self.spec, verdict),
        }
    }

    /// Resets a connection, as the lab's clients do to leave no port in TIME_WAIT.
    pub(super) fn reset_connection(&mut self, sent: &SentRequest) -> Result<(), SimError> {
        self.both_legs(sent, Packet::reset)
    }

    fn both_legs(&mut self, sent: &SentRequest, how: impl Fn(Packet) -> Option<Packet>) -> Result<(), SimError> {
        let second = sent.second.iter().map(|second| (second.from, second.packet.clone()));
        for (from, packet) in [(sent.flow.from, sent.packet.clone())].into_iter().chain(second) {
            if let Some(packet) = how(packet) {
                self.send(from, &packet)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, from: HostId, packet: &Packet) -> Result<Journey, SimError> {
        let journey = self.machines.network_mut().send_packet(from, packet, &mut self.chance);
        if let Some(counters) = &mut self.counters {
            counters.note(&journey);
        }
        journey.known().map_err(NetworkError::from)?;
        Ok(journey)
    }

    fn relay_reached(
        &self,
        verdict: &PacketVerdict,
        protocol: Number,
    ) -> Option<(String, HostId, RelayPort, Relay, SocketAddr)> {
        let (PacketVerdict::Answered { by, at, saw } | PacketVerdict::Unanswered { by, at, saw, .. }) = verdict else {
            return None;
        };
        let node = self.machines.network().host(*by).name().strip_prefix("node/")?;
        let port = (Family::of(at.ip()), protocol, at.port());
        let relay = self.rendered.get(node)?.state.relays.get(&port)?.clone();
        Some((node.to_owned(), *by, port, relay, *saw))
    }

    pub(super) fn calls_of_relays(
        &self,
        outcomes: &Outcomes,
        protocol: Number,
    ) -> Result<Vec<(String, Outcomes)>, SimError> {
        let network = self.machines.network();
        let reached = outcomes.outcomes.iter().filter_map(|one| self.relay_reached(&one.verdict, protocol));
        let calls = reached.flat_map(|(node, from, port, relay, _)| {
            relay.to.into_iter().map(move |to| {
                let flow = Flow { protocol, ..Flow::tcp(from, to) };
                let title = format!("node/{node} relays what it takes at port {} to {to}", port.2);
                Ok((title, network.outcomes(&flow)?))
            })
        });
        calls.collect()
    }

    /// Connects a relay to a backend. TCP tries one backend after another, UDP tries one.
    fn connect_to_backend(
        &mut self,
        node: String,
        from: HostId,
        (port, relay): (RelayPort, &Relay),
        client: SocketAddr,
        first: &Journey,
    ) -> Result<(ProbeAnswer, Option<RelayConnection>), SimError> {
        let now = self.machines.network().now();
        let silence = self.silence;
        let is_tcp = port.1 == Number::TCP;
        let memory = self.memories.entry(node.clone()).or_default();
        let standing = memory.association((port, relay), client, silence, now);
        let mut candidates = match standing {
            Some(_) => Vec::new(),
            None => memory.candidates(port, relay, client.ip(), now),
        };
        candidates.truncate(if is_tcp { candidates.len() } else { 1 });
        let fresh = |lab: &mut SimLab, to| Flow { from, source: None, source_port: lab.port(), to, protocol: port.1 };
        let calls: Vec<Flow> = candidates.into_iter().map(|to| fresh(self, to)).collect();
        for call in standing.into_iter().chain(calls) {
            let packet = self.machines.network().first_packet(&call)?;
            let journey = self.send(from, &packet)?;
            let memory = self.memories.entry(node.clone()).or_default();
            if !is_tcp {
                memory.associate(port, client, call, now);
            }
            if !matches!(journey.verdict, PacketVerdict::Answered { .. }) {
                memory.refused(port, relay, client.ip());
                continue;
            }
            memory.took(port, relay, client.ip(), call.to, now);
            // The backend's answer reaches the client only if the relay's own answer does.
            let of =
                if matches!(first.verdict, PacketVerdict::Answered { .. }) { &journey.verdict } else { &first.verdict };
            let answer = targets::answer(self.machines.network(), &self.spec, of);
            return Ok((answer, Some(RelayConnection { node, port, from, packet, is_dead: false })));
        }
        Ok((if is_tcp { ProbeAnswer::Broken(RESET.to_owned()) } else { ProbeAnswer::TimedOut }, None))
    }

    fn outcome(&self, answer: ProbeAnswer, packet: &Packet) -> ProbeOutcome {
        let port = packet.ports().map(|(source, _)| source).unwrap_or_default();
        let client = Some(SocketAddr::new(packet.source, port));
        ProbeOutcome { answer, client, took: std::time::Duration::ZERO }
    }
}
