//! A request's outcomes, and health checks.

use std::net::IpAddr;

use svclab_sim::network::{Flow, Outcomes};
use svclab_sim::protocol::Family;
use svclab_sim::relays;
use svclab_spec::Protocol;

use super::lab::{SimError, SimLab};
use super::machines::{machine, number};
use crate::scenario::file::{OneFamily, ProbeFile, ProtocolFile};
use crate::scenario::resolve;
use crate::scenario::values::{PlaceRef, ProbeTarget, spanned};

#[derive(Debug, Clone)]
pub struct CallText {
    pub from: String,
    pub to: String,
    /// The protocol, for targets that name none.
    pub protocol: Option<Protocol>,
    /// Default: the cluster's primary family.
    pub family: Option<OneFamily>,
    /// The node that a client sends to.
    pub via: Option<String>,
}

#[derive(Debug, Clone)]
pub struct CallOutcomes {
    pub outcomes: Outcomes,
    pub calls: Vec<(String, Outcomes)>,
}

impl SimLab {
    pub(super) fn local_endpoints(&self, node: &str, address: IpAddr, port: u16) -> Option<usize> {
        self.rendered.get(node)?.health.get(&(Family::of(address), port)).copied()
    }

    pub(super) fn answers_healthy(&self, node: &str, address: IpAddr, port: u16) -> bool {
        self.local_endpoints(node, address, port).is_some_and(|local| local > 0)
    }

    /// Returns all outcomes with exact probabilities. Leaves no state.
    pub fn explain(&mut self, call: &CallText) -> Result<CallOutcomes, SimError> {
        let unplaced = |problem: String| SimError::Step(problem);
        let from: PlaceRef = call.from.parse().map_err(unplaced)?;
        let to: ProbeTarget = call.to.parse().map_err(unplaced)?;
        let (from, to) = (spanned(from), spanned(to));
        let via = call.via.clone().map(spanned);
        let protocol = call.protocol.map(|protocol| match protocol {
            Protocol::Tcp => ProtocolFile::Tcp,
            Protocol::Udp => ProtocolFile::Udp,
            Protocol::Sctp => ProtocolFile::Sctp,
        });
        let file = ProbeFile { via, protocol, family: call.family.map(spanned), ..ProbeFile::plain(&from, &to) };
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
        Ok(CallOutcomes { outcomes: relays::through(network, &flow, first, of), calls })
    }
}
