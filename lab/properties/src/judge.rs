use std::fmt;
use std::net::SocketAddr;

use svclab_audit::judge::{self, FaultKind, Judge, OtherPort};
use svclab_oracle::{ClusterModel, Oracle, PacketSource, PodName, Promise, PromisedVerdict, Question, World};
use svclab_sim::fraction::Fraction;
use svclab_sim::network::{Flow, Network, NetworkError, Outcomes, PacketVerdict as Found};
use svclab_sim::render;

use crate::machines::{self, LOAD_BALANCER, SimulatedMachines};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    Who,
    Distribution,
    Snat,
    Verdict,
    /// The rules do not change packets to no service.
    Untouched,
    Affinity,
}

impl Property {
    pub const ALL: [Property; 6] = [
        Property::Who,
        Property::Distribution,
        Property::Snat,
        Property::Verdict,
        Property::Untouched,
        Property::Affinity,
    ];
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Property::Who => "who",
            Property::Distribution => "distribution",
            Property::Snat => "snat",
            Property::Verdict => "verdict",
            Property::Untouched => "untouched",
            Property::Affinity => "affinity",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyFault {
    pub property: Property,
    pub says: String,
}

impl From<judge::Fault> for PropertyFault {
    fn from(fault: judge::Fault) -> PropertyFault {
        let property = match fault.kind {
            FaultKind::WrongEndpoint | FaultKind::MissingEndpoint => Property::Who,
            FaultKind::Share => Property::Distribution,
            FaultKind::Source | FaultKind::Answer => Property::Snat,
            FaultKind::NotTranslated if fault.found.as_ref().is_some_and(|found| found.saw().is_some()) => {
                Property::Who
            }
            FaultKind::NotTranslated
            | FaultKind::Dropped
            | FaultKind::Rejected
            | FaultKind::Delivered
            | FaultKind::Refusal => Property::Verdict,
            FaultKind::Affinity | FaultKind::AffinityAcrossPorts => Property::Affinity,
        };
        PropertyFault { property, says: fault.says }
    }
}

#[derive(Debug, Clone)]
pub struct Judgement {
    pub promise: Promise,
    /// `None`: the simulator cannot send the packet.
    pub outcomes: Option<Outcomes>,
    pub faults: Vec<PropertyFault>,
}

#[derive(Debug, Clone)]
pub struct Networks {
    pub machines: SimulatedMachines,
    pub bare: SimulatedMachines,
}

/// Returns the sending machine, and the node where a packet from outside enters.
fn caller(world: &World, from: &PacketSource) -> Option<(String, Option<String>)> {
    Some(match from {
        PacketSource::Pod(name) => (machines::machine_of_pod(world, name)?, None),
        PacketSource::Node(node) | PacketSource::Loopback(node) => (node.clone(), None),
        PacketSource::Outside { client, enters } => (machines::client_machine(client), Some(enters.clone())),
        PacketSource::LoadBalancer { enters } => (LOAD_BALANCER.to_owned(), Some(enters.clone())),
    })
}

pub fn flow<'m>(machines: &'m SimulatedMachines, world: &World, question: &Question) -> Option<(&'m Network, Flow)> {
    let (machine, entrance) = caller(world, &question.from)?;
    let network = machines.network(entrance.as_deref())?;
    let from = network.find(&machine)?;
    let protocol = machines::number(question.protocol);
    Some((network, Flow { from, source: question.source, source_port: 40_000, to: question.to, protocol }))
}

/// `None` if the source has no address of the family.
pub fn outcomes(machines: &SimulatedMachines, world: &World, question: &Question) -> Option<Outcomes> {
    let (network, flow) = flow(machines, world, question)?;
    machines.outcomes(network, &flow).ok()
}

pub fn judge(
    networks: &Networks,
    (cluster, oracle): (&ClusterModel, &Oracle<'_>),
    question: &Question,
    promise: Promise,
) -> Judgement {
    let world = &cluster.world;
    let nothing = |promise| Judgement { promise, outcomes: None, faults: Vec::new() };
    if promise.verdict == PromisedVerdict::Undefined {
        return nothing(promise);
    }
    let Some((network, flow)) = flow(&networks.machines, world, question) else { return nothing(promise) };
    let found = match networks.machines.outcomes(network, &flow) {
        Ok(found) => found,
        Err(error) => {
            let mut judgement = nothing(promise);
            // Even without a promise, a rule that the simulator does not model is a fault.
            if judgement.promise.verdict != PromisedVerdict::Untouched
                || matches!(error, NetworkError::NotModelled(_) | NetworkError::Undecided(_))
            {
                judgement.faults.push(fault(Property::Verdict, error.to_string()));
            }
            return judgement;
        }
    };
    let machine_of = |pod: &PodName| machines::machine_of_pod(world, pod);
    let judge = Judge { world, network, machine_of: Some(&machine_of), strays: true };
    let faults = match &promise.verdict {
        PromisedVerdict::Untouched => untouched(network, &found, outcomes(&networks.bare, world, question).as_ref()),
        PromisedVerdict::Deliver(delivery) => {
            let mut faults = judge.faults(&flow, &found, &promise);
            let others = OtherPort::all(oracle, question, &flow, &promise);
            faults.extend(judge.affinity(&flow, delivery, &others));
            faults.into_iter().map(PropertyFault::from).collect()
        }
        _ => judge.faults(&flow, &found, &promise).into_iter().map(PropertyFault::from).collect(),
    };
    Judgement { promise, outcomes: Some(found), faults }
}

fn fault(property: Property, says: String) -> PropertyFault {
    PropertyFault { property, says }
}

/// Returns faults if a packet to no service has other outcomes than without rules.
fn untouched(network: &Network, found: &Outcomes, bare: Option<&Outcomes>) -> Vec<PropertyFault> {
    let portless = |verdict: &Found| match verdict.clone() {
        Found::Answered { by, at, saw } => Found::Answered { by, at, saw: SocketAddr::new(saw.ip(), 0) },
        Found::Unanswered { by, at, saw, why } => Found::Unanswered { by, at, saw: SocketAddr::new(saw.ip(), 0), why },
        other => other,
    };
    let words = |outcomes: &Outcomes| -> Vec<(Found, Fraction)> {
        outcomes.outcomes.iter().map(|one| (portless(&one.verdict), one.probability.clone())).collect()
    };
    match bare {
        Some(bare) if words(bare) == words(found) => Vec::new(),
        Some(bare) => {
            let all = bare.outcomes.iter().map(|one| render::verdict(network, &one.verdict));
            let all: Vec<String> = all.collect();
            vec![fault(Property::Untouched, format!("without rules: {}", all.join(", ")))]
        }
        None => vec![fault(Property::Untouched, "without rules there is no such packet".to_owned())],
    }
}
