//! What Kubernetes promises against what becomes of a packet: where the two disagree, and in what.

mod affinity;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use svclab_oracle::{Backend, Delivery, PodName, Promise, PromisedReply, PromisedVerdict, Rule, World};
use svclab_sim::fraction::Fraction;
use svclab_sim::network::{Flow, HostId, Network, Outcomes, PacketVerdict as Found, ReplyFailure};
use svclab_sim::render;
use svclab_sim::trace::{DropReason, Event};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The packet goes on with its own destination, as if there were no such service.
    NotTranslated,
    /// It is dropped, and should be delivered.
    Dropped,
    /// It is rejected or refused, and should be delivered.
    Rejected,
    /// Somebody gets it who should not.
    WrongEndpoint,
    /// Somebody who should get it never does.
    MissingEndpoint,
    /// Shares that are not what they should be.
    Share,
    /// The source address that an endpoint sees.
    Source,
    /// The answer is lost, or comes from an address that the client has not called.
    Answer,
    /// It is delivered, and should be dropped or rejected.
    Delivered,
    /// It is dropped in place of rejected, or the other way round.
    Refusal,
    /// A client does not stay with its endpoint, or stays too long.
    Affinity,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 11] = [
        Kind::NotTranslated,
        Kind::Dropped,
        Kind::Rejected,
        Kind::WrongEndpoint,
        Kind::MissingEndpoint,
        Kind::Share,
        Kind::Source,
        Kind::Answer,
        Kind::Delivered,
        Kind::Refusal,
        Kind::Affinity,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Kind::NotTranslated => "not-translated",
            Kind::Dropped => "dropped",
            Kind::Rejected => "rejected",
            Kind::WrongEndpoint => "wrong-endpoint",
            Kind::MissingEndpoint => "missing-endpoint",
            Kind::Share => "share",
            Kind::Source => "source",
            Kind::Answer => "answer",
            Kind::Delivered => "delivered",
            Kind::Refusal => "refusal",
            Kind::Affinity => "affinity",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// A disagreement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// About what.
    pub kind: Kind,
    /// In a sentence.
    pub says: String,
    /// The outcome that is wrong; none where something is missing.
    pub found: Option<Found>,
}

impl Fault {
    fn new(kind: Kind, says: String, found: Option<&Found>) -> Fault {
        Fault { kind, says, found: found.cloned() }
    }
}

/// Names the machine that a pod is.
pub type MachineOf<'a> = &'a dyn Fn(&PodName) -> Option<String>;

/// The circumstances of a comparison.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// The oracle's world.
    pub world: &'a World,
    /// The simulator's machines.
    pub network: &'a Network,
    /// The machine that a pod is, where every pod is one of its own: then the machine counts as well as the address.
    pub machine_of: Option<MachineOf<'a>>,
    /// Whether answers that go past the node have to go astray in the way that the kernel has: where other machines are as they are in the
    /// laboratory.
    pub strays: bool,
}

impl Judge<'_> {
    /// Where a promise to deliver, drop or reject does not hold. What is promised nothing, or to be left alone, has no faults here.
    #[must_use]
    pub fn faults(&self, flow: &Flow, found: &Outcomes, promise: &Promise) -> Vec<Fault> {
        match &promise.verdict {
            PromisedVerdict::Deliver(delivery) => self.delivered(flow, found, delivery),
            PromisedVerdict::Drop | PromisedVerdict::Reject | PromisedVerdict::Refuse => self.refused(found, promise),
            PromisedVerdict::Untouched | PromisedVerdict::Undefined => Vec::new(),
        }
    }

    /// Whether a client stays with its endpoint, in a sentence for each fault. Costs more than everything else.
    #[must_use]
    pub fn affinity(&self, flow: &Flow, delivery: &Delivery) -> Vec<Fault> {
        let says = affinity::faults(self.world, self.network, flow, delivery);
        says.into_iter().map(|says| Fault::new(Kind::Affinity, says, None)).collect()
    }

    /// Drop, reject, or either.
    fn refused(&self, found: &Outcomes, promise: &Promise) -> Vec<Fault> {
        let (drops, rejects) = match promise.verdict {
            PromisedVerdict::Drop => (true, false),
            PromisedVerdict::Reject => (false, true),
            _ => (true, true),
        };
        // What comes from nowhere is dropped by the kernel itself; everything else that is promised to be dropped, by a rule.
        let martian = promise.rests_on(Rule::Martian);
        let fits = |verdict: &Found| match verdict {
            Found::Dropped {
                why: DropReason::Rule(_) | DropReason::NftRule(_) | DropReason::Policy(..) | DropReason::NftPolicy(_),
                ..
            } => drops,
            Found::Dropped { .. } => drops && martian,
            Found::Rejected { delivered, .. } | Found::Refused { delivered, .. } => rejects && *delivered,
            Found::Answered { .. } | Found::Unanswered { .. } => false,
        };
        let wrong = found.outcomes.iter().map(|one| &one.verdict).filter(|verdict| !fits(verdict));
        let fault = |verdict: &Found| {
            let kind = if reached(verdict).is_some() { Kind::Delivered } else { Kind::Refusal };
            let says = format!("promised: {}; found: {}", promise.verdict, render::verdict(self.network, verdict));
            Fault::new(kind, says, Some(verdict))
        };
        wrong.map(fault).collect()
    }

    fn delivered(&self, flow: &Flow, found: &Outcomes, delivery: &Delivery) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut shares: BTreeMap<SocketAddr, Fraction> = BTreeMap::new();
        for one in &found.outcomes {
            let Some((by, at, saw, broken)) = reached(&one.verdict) else {
                faults.push(self.undelivered(flow, found, &one.verdict));
                continue;
            };
            let machine = self.network.host(by).name();
            let Some(backend) = delivery.backends.iter().find(|backend| self.is(backend, at, machine)) else {
                let kind = if at == flow.to { Kind::NotTranslated } else { Kind::WrongEndpoint };
                let says = format!("{machine} gets it at {at}, and is not one of them");
                faults.push(Fault::new(kind, says, Some(&one.verdict)));
                continue;
            };
            let sum = shares.entry(at).or_insert_with(Fraction::zero);
            *sum = sum.plus(&one.probability);
            if !backend.sees.contains(&saw.ip()) {
                let says = format!("{machine} at {at} sees {}", saw.ip());
                faults.push(Fault::new(Kind::Source, says, Some(&one.verdict)));
            }
            let says = self.answered(backend, broken);
            faults.extend(says.map(|says| Fault::new(Kind::Answer, says, Some(&one.verdict))));
        }
        faults.extend(who(delivery, &shares));
        faults
    }

    /// A packet that reaches no socket, and should.
    fn undelivered(&self, flow: &Flow, found: &Outcomes, verdict: &Found) -> Fault {
        let kind = match verdict {
            Found::Refused { at, .. } if *at == flow.to => Kind::NotTranslated,
            Found::Rejected { .. } | Found::Refused { .. } => Kind::Rejected,
            Found::Dropped {
                why: DropReason::Rule(_) | DropReason::NftRule(_) | DropReason::Policy(..) | DropReason::NftPolicy(_),
                ..
            } => Kind::Dropped,
            // Sent on as it was, to where nobody has the address.
            _ if destination(found, verdict) == Some(flow.to.ip()) => Kind::NotTranslated,
            _ => Kind::Dropped,
        };
        Fault::new(kind, format!("to be delivered, and: {}", render::verdict(self.network, verdict)), Some(verdict))
    }

    fn is(&self, backend: &Backend, at: SocketAddr, machine: &str) -> bool {
        let pod = self.machine_of.and_then(|machine_of| machine_of(backend.pod.as_ref()?));
        backend.address == at && pod.is_none_or(|pod| pod == machine)
    }

    /// What the client sees of the answer.
    fn answered(&self, backend: &Backend, broken: Option<&ReplyFailure>) -> Option<String> {
        // The client has never heard of whoever answers; often its node drops such an answer before it does.
        let astray = |why: &ReplyFailure| match why {
            ReplyFailure::WrongSource { from } => {
                matches!(backend.reply, PromisedReply::AsymmetricReply(own) if own == *from)
            }
            ReplyFailure::Lost { why: DropReason::Rule(rule), .. } => rule.chain() == "KUBE-FORWARD",
            _ => false,
        };
        match (backend.reply, broken) {
            (PromisedReply::From(_), None) => None,
            (PromisedReply::AsymmetricReply(_), _) if !self.strays => None,
            (PromisedReply::AsymmetricReply(_), Some(why)) if astray(why) => None,
            (PromisedReply::From(_), Some(why)) => {
                Some(format!("{} answers, but {}", backend.address, render::reply_failure(self.network, why)))
            }
            (PromisedReply::AsymmetricReply(_), None) => {
                Some(format!("the answer of {} should go astray, and arrives", backend.address))
            }
            (PromisedReply::AsymmetricReply(_), Some(why)) => {
                let why = render::reply_failure(self.network, why);
                Some(format!("the answer of {} should come from its own address, and {why}", backend.address))
            }
        }
    }
}

/// The machine and address of the socket that got it, with the source that it saw and what came of the answer.
fn reached(verdict: &Found) -> Option<(HostId, SocketAddr, SocketAddr, Option<&ReplyFailure>)> {
    match verdict {
        Found::Answered { by, at, saw } => Some((*by, *at, *saw, None)),
        Found::Unanswered { by, at, saw, why } => Some((*by, *at, *saw, Some(why))),
        _ => None,
    }
}

/// Where the packet was going when it came to its end.
pub(crate) fn destination(found: &Outcomes, verdict: &Found) -> Option<IpAddr> {
    let (_, journey) = found.ways.iter().find(|(_, journey)| journey.verdict == *verdict)?;
    journey.request.trace.iter().rev().find_map(|event| match event {
        Event::Sent { packet, .. } | Event::Arrived { packet, .. } | Event::Translated { packet, .. } => {
            Some(packet.destination)
        }
        _ => None,
    })
}

/// Whether each is met, and as often as promised.
fn who(delivery: &Delivery, shares: &BTreeMap<SocketAddr, Fraction>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for backend in &delivery.backends {
        match (shares.get(&backend.address), backend.share) {
            (Some(found), Some(share)) if !found.within(&Fraction::new(1, share.of.into()), 1, 1_000_000_000) => {
                let says = format!("{} has a share of {found}, not {share}", backend.address);
                faults.push(Fault::new(Kind::Share, says, None));
            }
            (None, Some(_)) => {
                faults.push(Fault::new(Kind::MissingEndpoint, format!("{} never gets it", backend.address), None));
            }
            _ => {}
        }
    }
    if shares.is_empty() {
        faults.push(Fault::new(Kind::MissingEndpoint, "no endpoint gets it".to_owned(), None));
    }
    faults
}
