//! What can be seen of a simulated cluster without changing it: every way of a call, rules and their counters, health checks.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_saphyr::{Location, Spanned};
use svclab_sim::network::{Flow, Outcomes};
use svclab_sim::protocol::Family;
use svclab_sim::relays;

use super::aim;
use super::counters::Counters;
use super::lab::{SimError, SimLab};
use super::machines::{machine, number};
use super::program::Program;
use crate::cluster::spec::Protocol;
use crate::objects::ObjectKey;
use crate::scenario::file::{Mode, ProbeFile, ProtocolFile, RuleFamily, RuleFile};
use crate::scenario::look::{Nodes, Saved};
use crate::scenario::resolve;
use crate::scenario::words::{PlaceRef, Target};
use crate::traffic::probe::Place;

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
    pub(super) fn health(&self, node: &str, address: IpAddr, port: u16) -> Option<usize> {
        self.programs.get(node)?.health.get(&(Family::of(address), port)).copied()
    }

    pub(super) fn answers_healthy(&self, node: &str, address: IpAddr, port: u16) -> bool {
        self.health(node, address, port).is_some_and(|local| local > 0)
    }

    /// The nodes that a service's published address leads to, and the address.
    pub(super) fn balanced(&self, service: &ObjectKey) -> Result<(IpAddr, Vec<String>), SimError> {
        let address = resolve::vip(&self.store, service).map_err(|problem| SimError::Step(problem.message))?;
        let vip = self.store.vips_of(service).into_iter().find(|vip| vip.address == address);
        let healthy = |node: &str, address, port| self.answers_healthy(node, address, port);
        Ok((address, vip.map(|vip| aim::sends_to(&self.store, &vip, &healthy)).unwrap_or_default()))
    }

    /// What `iptables-save -c` would print on the nodes that these rules are about.
    pub(super) fn saved(&self, rules: &[RuleFile]) -> Result<Saved, SimError> {
        let mut saved = Saved::new();
        for rule in rules {
            for node in self.nodes(&|node| self.mode_of(node)).of(rule).map_err(SimError::Step)? {
                let nothing = Program::default();
                let program = self.programs.get(&node).unwrap_or(&nothing);
                let of = match rule.family {
                    RuleFamily::Ipv4 => &program.v4,
                    RuleFamily::Ipv6 => &program.v6,
                };
                let machine = Place::Node(node.clone()).to_string();
                saved.insert((node, rule.family), Counters::ruleset(self.counters.as_ref(), &machine, of));
            }
        }
        Ok(saved)
    }

    /// The nodes, for [`look::compare`](crate::scenario::look::compare).
    pub(super) fn nodes<'a>(&self, mode_of: &'a dyn Fn(&str) -> Mode) -> Nodes<'a> {
        Nodes { names: self.setups.keys().cloned().collect(), mode_of }
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
        let ports: BTreeMap<String, relays::Relays> = self.programs.iter().map(plain_relays).collect();
        let of = |host| ports.get(network.host(host).name());
        let first = network.outcomes(&flow)?;
        let calls = self.calls_of_relays(&first, flow.protocol)?;
        Ok(Explained { outcomes: relays::through(network, &flow, first, of), calls })
    }
}

/// A node's machine, and where its listening ports lead.
fn plain_relays((node, program): (&String, &Program)) -> (String, relays::Relays) {
    let ports = program.relays.iter().map(|(port, relay)| (*port, relay.to.clone()));
    (Place::Node(node.clone()).to_string(), ports.collect())
}

fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}
