//! Requests: a journey by rules, and a second one where a program relays.

use std::net::SocketAddr;

use svclab_cluster::traffic::probe::{Probe, ProbeAnswer, ProbeOutcome};
use svclab_sim::network::{Flow, HostId, Journey, NetworkError, Outcomes, PacketVerdict};
use svclab_sim::packet::Packet;
use svclab_sim::protocol::{Family, Protocol as Number};
use svclab_spec::Protocol;

use super::lab::{SimError, SimLab};
use super::machines::{machine, number};
use super::targets;
use svclab_sim::relays::{Relay, RelayPort};

/// A request with its first packet, and the relay's own call if one led it on.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) flow: Flow,
    pub(super) packet: Packet,
    pub(super) second: Option<Second>,
}

/// A relay's call.
#[derive(Debug, Clone)]
pub(super) struct Second {
    /// The node whose proxy relays, and the port that it listens on for it.
    pub(super) node: String,
    pub(super) port: RelayPort,
    from: HostId,
    packet: Packet,
    /// Its proxy has gone, and the connection with it.
    pub(super) is_dead: bool,
}

/// Why nothing comes back from a relay without backends.
pub(super) const RESET: &str = "the relay has reset the connection";

impl SimLab {
    /// Sends one request, and what a client sends once it is answered.
    pub(super) fn call(&mut self, probe: &Probe) -> Result<(ProbeOutcome, Sent), SimError> {
        let from = machine(&self.spec, &probe.from);
        let from = self.machines.network().find(&from).ok_or_else(|| SimError::Step(format!("there is no {from}")))?;
        let source_port = probe.source_port.unwrap_or_else(|| self.port());
        let protocol = number(probe.protocol);
        let flow = Flow { from, source: probe.source_address, source_port, to: probe.to, protocol };
        let packet = self.machines.network().first_packet(&flow)?;
        let journey = self.send(from, &packet)?;
        let (answer, second) = match self.relay_reached(&journey.verdict, protocol) {
            None => (targets::answer(self.machines.network(), &self.spec, &journey.verdict), None),
            Some((node, host, port, relay, client)) => self.lead(node, host, (port, &relay), client, &journey)?,
        };
        let sent = Sent { flow, packet, second };
        if probe.protocol == Protocol::Tcp && matches!(answer, ProbeAnswer::Replied { .. }) {
            // The handshake's third packet, with the question.
            self.both_legs(&sent, |packet| Some(packet.later()))?;
        }
        Ok((self.outcome(answer, &sent.packet), sent))
    }

    /// Sends once more over a connection that stands.
    pub(super) fn call_again(&mut self, sent: &Sent) -> Result<ProbeOutcome, SimError> {
        let later = sent.packet.clone().later();
        let journey = self.send(sent.flow.from, &later)?;
        let first = targets::answer(self.machines.network(), &self.spec, &journey.verdict);
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

    /// Ends a connection of TCP as the lab's clients do: with a reset, so that no port is left in TIME_WAIT.
    pub(super) fn hang_up(&mut self, sent: &Sent) -> Result<(), SimError> {
        self.both_legs(sent, Packet::reset)
    }

    fn both_legs(&mut self, sent: &Sent, how: impl Fn(Packet) -> Option<Packet>) -> Result<(), SimError> {
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

    /// The relay that a request has met: its node and machine, its port, and the client that it sees.
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

    /// What can become of the calls that relays make which these outcomes end at.
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

    /// The relay's own call: to the backends one after the other over TCP, to one of them over UDP.
    fn lead(
        &mut self,
        node: String,
        from: HostId,
        (port, relay): (RelayPort, &Relay),
        client: SocketAddr,
        first: &Journey,
    ) -> Result<(ProbeAnswer, Option<Second>), SimError> {
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
            // What the relay says goes back as its own answer would.
            let of =
                if matches!(first.verdict, PacketVerdict::Answered { .. }) { &journey.verdict } else { &first.verdict };
            let answer = targets::answer(self.machines.network(), &self.spec, of);
            return Ok((answer, Some(Second { node, port, from, packet, is_dead: false })));
        }
        Ok((if is_tcp { ProbeAnswer::Broken(RESET.to_owned()) } else { ProbeAnswer::TimedOut }, None))
    }

    fn outcome(&self, answer: ProbeAnswer, packet: &Packet) -> ProbeOutcome {
        let port = packet.ports().map(|(source, _)| source).unwrap_or_default();
        let client = Some(SocketAddr::new(packet.source, port));
        ProbeOutcome { answer, client, took: std::time::Duration::ZERO }
    }
}
