//! One question, two judges: what the oracle promises, against what the simulator finds in the rules.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use svclab_oracle::{Backend, Cluster, Delivery, Place, Promise, Question, Reply, Rule, Verdict, World};
use svclab_sim::fraction::Fraction;
use svclab_sim::network::{Broken, Flow, HostId, Network, NetworkError, Outcomes, Verdict as Found};
use svclab_sim::trace::Lost;

use crate::affinity;
use crate::disagreement;
use crate::machines::{self, LOAD_BALANCER, Machines};

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// Somebody gets it who should not, or somebody who should never does.
    Who,
    /// The shares.
    Distribution,
    /// The source that an endpoint sees, or what the client sees of the answer.
    Snat,
    /// Delivered, dropped or rejected, and it should not be.
    Verdict,
    /// What is no service's business was touched.
    Untouched,
    /// A client does not stay with its endpoint, or stays too long.
    Affinity,
}

impl Property {
    /// Every property.
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

/// A disagreement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// About what.
    pub property: Property,
    /// In a sentence.
    pub says: String,
}

/// Both judges' words on one question.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The oracle's.
    pub promise: Promise,
    /// The simulator's; none where the question cannot be put to it.
    pub outcomes: Option<Outcomes>,
    /// Where they disagree.
    pub faults: Vec<Fault>,
}

/// What is judged: machines that run rules, and the same machines without any.
#[derive(Debug, Clone)]
pub struct Networks {
    /// With what the proxies have written.
    pub machines: Machines,
    /// Without.
    pub bare: Machines,
}

/// The machine that asks, and the node by which it comes in, if it is a host outside.
fn caller(world: &World, from: &Place) -> Option<(String, Option<String>)> {
    Some(match from {
        Place::Pod(name) => (machines::machine_of_pod(world, name)?, None),
        Place::Node(node) | Place::Loopback(node) => (node.clone(), None),
        Place::Outside { client, enters } => (machines::client_machine(client), Some(enters.clone())),
        Place::LoadBalancer { enters } => (LOAD_BALANCER.to_owned(), Some(enters.clone())),
    })
}

/// The question as a flow in its network.
#[must_use]
pub fn flow<'m>(machines: &'m Machines, world: &World, question: &Question) -> Option<(&'m Network, Flow)> {
    let (machine, entrance) = caller(world, &question.from)?;
    let network = machines.network(entrance.as_deref())?;
    let from = network.find(&machine)?;
    let protocol = machines::number(question.protocol);
    Some((network, Flow { from, source: question.source, source_port: 40_000, to: question.to, protocol }))
}

/// Puts the question to the simulator. `None`: the caller has no address of that family.
#[must_use]
pub fn outcomes(machines: &Machines, world: &World, question: &Question) -> Option<Outcomes> {
    let (network, flow) = flow(machines, world, question)?;
    machines.outcomes(network, &flow).ok()
}

/// Compares the two.
#[must_use]
pub fn judge(networks: &Networks, cluster: &Cluster, question: &Question, promise: Promise) -> Judgement {
    let world = &cluster.world;
    let nothing = |promise| Judgement { promise, outcomes: None, faults: Vec::new() };
    if promise.verdict == Verdict::Undefined {
        return nothing(promise);
    }
    let Some((network, flow)) = flow(&networks.machines, world, question) else { return nothing(promise) };
    let found = match networks.machines.outcomes(network, &flow) {
        Ok(found) => found,
        Err(error) => {
            let mut judgement = nothing(promise);
            // A rule that is not modelled is a fault whatever was promised.
            if judgement.promise.verdict != Verdict::Untouched
                || matches!(error, NetworkError::NotModelled(_) | NetworkError::Undecided(_))
            {
                judgement.faults.push(fault(Property::Verdict, error.to_string()));
            }
            return judgement;
        }
    };
    let faults = match &promise.verdict {
        Verdict::Untouched => untouched(network, &found, outcomes(&networks.bare, world, question).as_ref()),
        Verdict::Deliver(delivery) => {
            let mut faults = delivered(world, network, &found, delivery);
            let affinity = affinity::faults(world, network, &flow, delivery);
            faults.extend(affinity.into_iter().map(|says| fault(Property::Affinity, says)));
            faults
        }
        _ => refused(network, &found, &promise),
    };
    Judgement { promise, outcomes: Some(found), faults }
}

fn fault(property: Property, says: String) -> Fault {
    Fault { property, says }
}

/// What is not a service's goes as if there were no rules, lost or not.
fn untouched(network: &Network, found: &Outcomes, bare: Option<&Outcomes>) -> Vec<Fault> {
    // No promise is about the port that a connection is seen from.
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
            let all = bare.outcomes.iter().map(|one| disagreement::said(network, &one.verdict));
            let all: Vec<String> = all.collect();
            vec![fault(Property::Untouched, format!("without rules: {}", all.join(", ")))]
        }
        None => vec![fault(Property::Untouched, "without rules there is no such packet".to_owned())],
    }
}

/// Drop, reject, or either.
fn refused(network: &Network, found: &Outcomes, promise: &Promise) -> Vec<Fault> {
    let (drops, rejects) = match promise.verdict {
        Verdict::Drop => (true, false),
        Verdict::Reject => (false, true),
        _ => (true, true),
    };
    // What comes from nowhere is dropped by the kernel itself; everything else that is promised to be dropped, by a rule.
    let martian = promise.rests_on(Rule::Martian);
    let fits = |verdict: &Found| match verdict {
        Found::Dropped { why: Lost::Rule(_) | Lost::NftRule(_), .. } => drops,
        Found::Dropped { .. } => drops && martian,
        Found::Rejected { delivered, .. } | Found::Refused { delivered, .. } => rejects && *delivered,
        Found::Answered { .. } | Found::Unanswered { .. } => false,
    };
    let wrong = found.outcomes.iter().map(|one| &one.verdict).filter(|verdict| !fits(verdict));
    let wrong = wrong.map(|verdict| disagreement::said(network, verdict));
    wrong.map(|says| fault(Property::Verdict, format!("promised: {}; found: {says}", promise.verdict))).collect()
}

/// The machine and address of the socket that got it, with the source that it saw and what came of the answer.
fn reached(verdict: &Found) -> Option<(HostId, SocketAddr, SocketAddr, Option<&Broken>)> {
    match verdict {
        Found::Answered { by, at, saw } => Some((*by, *at, *saw, None)),
        Found::Unanswered { by, at, saw, why } => Some((*by, *at, *saw, Some(why))),
        _ => None,
    }
}

fn delivered(world: &World, network: &Network, found: &Outcomes, delivery: &Delivery) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut shares: BTreeMap<SocketAddr, Fraction> = BTreeMap::new();
    for one in &found.outcomes {
        let Some((by, at, saw, broken)) = reached(&one.verdict) else {
            faults.push(fault(
                Property::Verdict,
                format!("to be delivered, and: {}", disagreement::said(network, &one.verdict)),
            ));
            continue;
        };
        let machine = network.host(by).name();
        let is = |backend: &&Backend| {
            let pod = backend.pod.as_ref().and_then(|pod| machines::machine_of_pod(world, pod));
            backend.address == at && pod.as_deref().is_none_or(|pod| pod == machine)
        };
        let Some(backend) = delivery.backends.iter().find(is) else {
            faults.push(fault(Property::Who, format!("{machine} gets it at {at}, and is not one of them")));
            continue;
        };
        let sum = shares.entry(at).or_insert_with(Fraction::zero);
        *sum = sum.plus(&one.probability);
        if !backend.sees.contains(&saw.ip()) {
            faults.push(fault(Property::Snat, format!("{machine} at {at} sees {}", saw.ip())));
        }
        faults.extend(answered(network, backend, broken).map(|says| fault(Property::Snat, says)));
    }
    faults.extend(who(delivery, &shares));
    faults
}

/// What the client sees of the answer.
fn answered(network: &Network, backend: &Backend, broken: Option<&Broken>) -> Option<String> {
    // The client has never heard of whoever answers; often its node drops such an answer before it does.
    let astray = |why: &Broken| match why {
        Broken::WrongSource { from } => matches!(backend.reply, Reply::AsymmetricReply(own) if own == *from),
        Broken::Lost { why: Lost::Rule(rule), .. } => rule.chain() == "KUBE-FORWARD",
        _ => false,
    };
    match (backend.reply, broken) {
        (Reply::From(_), None) => None,
        (Reply::AsymmetricReply(_), Some(why)) if astray(why) => None,
        (Reply::From(_), Some(why)) => {
            Some(format!("{} answers, but {}", backend.address, disagreement::broken(network, why)))
        }
        (Reply::AsymmetricReply(_), None) => {
            Some(format!("the answer of {} should go astray, and arrives", backend.address))
        }
        (Reply::AsymmetricReply(_), Some(why)) => {
            let why = disagreement::broken(network, why);
            Some(format!("the answer of {} should come from its own address, and {why}", backend.address))
        }
    }
}

/// Whether each is met, and as often as promised.
fn who(delivery: &Delivery, shares: &BTreeMap<SocketAddr, Fraction>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for backend in &delivery.backends {
        match (shares.get(&backend.address), backend.share) {
            (Some(found), Some(share)) if !found.within(&Fraction::new(1, share.of.into()), 1, 1_000_000_000) => {
                let says = format!("{} has a share of {found}, not {share}", backend.address);
                faults.push(fault(Property::Distribution, says));
            }
            (None, Some(_)) => faults.push(fault(Property::Who, format!("{} never gets it", backend.address))),
            _ => {}
        }
    }
    if shares.is_empty() {
        faults.push(fault(Property::Who, "no endpoint gets it".to_owned()));
    }
    faults
}
