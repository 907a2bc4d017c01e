//! What can be seen of a simulated cluster without changing it: every way of a call, rules and their counters, health checks.

use std::net::IpAddr;

use serde_saphyr::{Location, Spanned};
use svclab_sim::network::{Flow, Outcomes};
use svclab_sim::protocol::Family;
use svclab_sim::relays;
use svclab_spec::Protocol;

use super::lab::{SimError, SimLab};
use super::machines::{machine, number};
use crate::scenario::file::{ProbeFile, ProtocolFile};
use crate::scenario::resolve;
use crate::scenario::values::{PlaceRef, Target};

/// A call to be explained, in the words of probes.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who calls.
    pub from: String,
    /// Whom.
    pub to: String,
    /// Over what, if the target does not say.
    pub protocol: Option<Protocol>,
    /// The node by which a client outside sends.
    pub via: Option<String>,
}

/// What can become of a call.
#[derive(Debug, Clone)]
pub struct Explained {
    /// All of it, by way of relays if it meets any.
    pub outcomes: Outcomes,
    /// The relays' own calls: who calls whom, and what can become of that.
    pub calls: Vec<(String, Outcomes)>,
}

impl SimLab {
    /// How many endpoints a node's proxy answers with at a `healthCheckNodePort`, on addresses of `address`'s family.
    pub(super) fn local_endpoints(&self, node: &str, address: IpAddr, port: u16) -> Option<usize> {
        self.rendered.get(node)?.health.get(&(Family::of(address), port)).copied()
    }

    pub(super) fn answers_healthy(&self, node: &str, address: IpAddr, port: u16) -> bool {
        self.local_endpoints(node, address, port).is_some_and(|local| local > 0)
    }

    /// Every way that a call can take, with exact probabilities; nothing is left behind.
    ///
    /// # Errors
    /// What is not there, or is no call.
    pub fn explain(&mut self, call: &Call) -> Result<Explained, SimError> {
        let unplaced = |problem: String| SimError::Step(problem);
        let from: PlaceRef = call.from.parse().map_err(unplaced)?;
        let to: Target = call.to.parse().map_err(unplaced)?;
        let (from, to) = (spanned(from), spanned(to));
        let via = call.via.clone().map(spanned);
        let protocol = call.protocol.map(|protocol| match protocol {
            Protocol::Tcp => ProtocolFile::Tcp,
            Protocol::Udp => ProtocolFile::Udp,
            Protocol::Sctp => ProtocolFile::Sctp,
        });
        let file = ProbeFile { via, protocol, ..ProbeFile::plain(&from, &to) };
        let (probe, route) =
            resolve::aim(&self.store, &file, resolve::PATIENCE).map_err(|problem| SimError::Step(problem.message))?;
        let entrances = self.entrances(&probe, route.as_ref(), &to.value)?;
        self.enter(&probe, &entrances)?;
        let from = machine(&self.spec, &probe.from);
        let from = self.machines.network().find(&from).ok_or_else(|| SimError::Step(format!("there is no {from}")))?;
        let flow = Flow { protocol: number(probe.protocol), ..Flow::tcp(from, probe.to) };
        let network = self.machines.network();
        let of = |host| {
            let node = network.host(host).name().strip_prefix("node/")?;
            Some(&self.rendered.get(node)?.state.relays)
        };
        let first = network.outcomes(&flow)?;
        let calls = self.calls_of_relays(&first, flow.protocol)?;
        Ok(Explained { outcomes: relays::through(network, &flow, first, of), calls })
    }
}

fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}
