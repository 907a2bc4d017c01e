//! Compares the promise of Kubernetes with a packet's outcomes.

mod across_ports;
mod affinity;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use svclab_oracle::{
    Backend, Balancing, Delivery, Oracle, PodName, Promise, PromisedReply, PromisedVerdict, Protocol, Question, Rule,
    World,
};
use svclab_sim::fraction::Fraction;
use svclab_sim::network::{Flow, HostId, Network, Outcomes, PacketVerdict as Found, ReplyFailure};
use svclab_sim::protocol::Protocol as Number;
use svclab_sim::render;
use svclab_sim::trace::{DropReason, Event};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// No rule translates the packet.
    NotTranslated,
    /// The packet is dropped instead of delivered.
    Dropped,
    /// The packet is rejected or refused instead of delivered.
    Rejected,
    /// A wrong endpoint gets the packet.
    WrongEndpoint,
    /// An endpoint never gets a packet.
    MissingEndpoint,
    /// Endpoints get wrong shares.
    Share,
    /// An endpoint sees a wrong source address.
    Source,
    /// The answer is lost, or has another source address than was called.
    Answer,
    /// The packet is delivered instead of dropped or rejected.
    Delivered,
    /// The packet is dropped instead of rejected, or the reverse.
    Refusal,
    /// A client leaves its endpoint too early or too late.
    Affinity,
    /// A client reaches another pod by another port of the Service.
    AffinityAcrossPorts,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [FaultKind; 12] = [
        FaultKind::NotTranslated,
        FaultKind::Dropped,
        FaultKind::Rejected,
        FaultKind::WrongEndpoint,
        FaultKind::MissingEndpoint,
        FaultKind::Share,
        FaultKind::Source,
        FaultKind::Answer,
        FaultKind::Delivered,
        FaultKind::Refusal,
        FaultKind::Affinity,
        FaultKind::AffinityAcrossPorts,
    ];

    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            FaultKind::NotTranslated => "not-translated",
            FaultKind::Dropped => "dropped",
            FaultKind::Rejected => "rejected",
            FaultKind::WrongEndpoint => "wrong-endpoint",
            FaultKind::MissingEndpoint => "missing-endpoint",
            FaultKind::Share => "share",
            FaultKind::Source => "source",
            FaultKind::Answer => "answer",
            FaultKind::Delivered => "delivered",
            FaultKind::Refusal => "refusal",
            FaultKind::Affinity => "affinity",
            FaultKind::AffinityAcrossPorts => "affinity-across-ports",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The fault in a sentence.
    pub says: String,
    /// The wrong outcome; `None` if an expected outcome is missing.
    pub found: Option<Found>,
}

impl Fault {
    fn new(kind: FaultKind, says: String, found: Option<&Found>) -> Fault {
        Fault { kind, says, found: found.cloned() }
    }
}

/// A client's call by another port of the same Service, with its promise.
#[derive(Debug, Clone)]
pub struct OtherPort {
    /// The call.
    pub flow: Flow,
    /// What the oracle promises for it.
    pub delivery: Delivery,
}

impl OtherPort {
    /// Returns the calls that compare with a client's call.
    #[must_use]
    pub fn all(oracle: &Oracle<'_>, question: &Question, flow: &Flow, promise: &Promise) -> Vec<OtherPort> {
        let PromisedVerdict::Deliver(delivery) = &promise.verdict else { return Vec::new() };
        if delivery.affinity.is_none() {
            return Vec::new();
        }
        let others = oracle.other_ports(question, delivery).into_iter();
        let others = others.filter(|(_, other)| (&other.node, other.client) == (&delivery.node, delivery.client));
        let flow = |question: &Question| Flow { to: question.to, protocol: number(question.protocol), ..*flow };
        others.map(|(question, delivery)| OtherPort { flow: flow(&question), delivery }).collect()
    }
}

pub(crate) fn number(protocol: Protocol) -> Number {
    match protocol {
        Protocol::Tcp => Number::TCP,
        Protocol::Udp => Number::UDP,
        Protocol::Sctp => Number::SCTP,
    }
}

/// Returns the name of a pod's machine.
pub type MachineOf<'a> = &'a dyn Fn(&PodName) -> Option<String>;

/// The context of comparisons.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// The oracle's world.
    pub world: &'a World,
    /// The simulator's machines.
    pub network: &'a Network,
    /// If every pod is a machine, compares the receiving machine, not only its address.
    pub machine_of: Option<MachineOf<'a>>,
    /// Whether answers that bypass the node must be lost, as in the lab.
    pub strays: bool,
}

impl Judge<'_> {
    /// Returns faults for promises to deliver, drop or reject; other promises have none.
    #[must_use]
    pub fn faults(&self, flow: &Flow, found: &Outcomes, promise: &Promise) -> Vec<Fault> {
        match &promise.verdict {
            PromisedVerdict::Deliver(delivery) => self.delivered(flow, found, delivery),
            PromisedVerdict::Drop | PromisedVerdict::Reject | PromisedVerdict::Refuse => self.refused(found, promise),
            PromisedVerdict::Untouched | PromisedVerdict::Undefined => Vec::new(),
        }
    }

    /// Checks session affinity; costs more than all other checks. `others`: the same call by other ports of the Service.
    #[must_use]
    pub fn affinity(&self, flow: &Flow, delivery: &Delivery, others: &[OtherPort]) -> Vec<Fault> {
        if affinity::is_relayed(self.world, flow) {
            return Vec::new();
        }
        let says = affinity::faults(self.world, self.network, flow, delivery);
        let faults = says.into_iter().map(|says| (FaultKind::Affinity, says));
        let across = across_ports::faults(self.world, self.network, flow, delivery, others);
        faults.chain(across).map(|(kind, says)| Fault::new(kind, says, None)).collect()
    }

    fn refused(&self, found: &Outcomes, promise: &Promise) -> Vec<Fault> {
        let (drops, rejects) = match promise.verdict {
            PromisedVerdict::Drop => (true, false),
            PromisedVerdict::Reject => (false, true),
            _ => (true, true),
        };
        // The kernel itself must drop martians; a rule must drop other packets.
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
            let kind = if reached(verdict).is_some() { FaultKind::Delivered } else { FaultKind::Refusal };
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
                let kind = if at == flow.to { FaultKind::NotTranslated } else { FaultKind::WrongEndpoint };
                let says = format!("{machine} gets it at {at}, and is not one of them");
                faults.push(Fault::new(kind, says, Some(&one.verdict)));
                continue;
            };
            let sum = shares.entry(at).or_insert_with(Fraction::zero);
            *sum = sum.plus(&one.probability);
            if !backend.sees.contains(&saw.ip()) {
                let says = format!("{machine} at {at} sees {}", saw.ip());
                faults.push(Fault::new(FaultKind::Source, says, Some(&one.verdict)));
            }
            let says = self.answered(backend, broken);
            faults.extend(says.map(|says| Fault::new(FaultKind::Answer, says, Some(&one.verdict))));
        }
        faults.extend(who(delivery, &shares, || rounding(found)));
        faults
    }

    fn undelivered(&self, flow: &Flow, found: &Outcomes, verdict: &Found) -> Fault {
        let kind = match verdict {
            Found::Refused { at, .. } if *at == flow.to => FaultKind::NotTranslated,
            Found::Rejected { .. } | Found::Refused { .. } => FaultKind::Rejected,
            Found::Dropped {
                why:
                    DropReason::Rule(_)
                    | DropReason::NftRule(_)
                    | DropReason::Policy(..)
                    | DropReason::NftPolicy(_)
                    | DropReason::Link(..),
                ..
            } => FaultKind::Dropped,
            Found::Dropped { why: DropReason::HopLimit(_) | DropReason::Discovery(_), .. } => FaultKind::Dropped,
            // The packet was forwarded without translation to an address that no machine has.
            _ if destination(found, verdict) == Some(flow.to.ip()) => FaultKind::NotTranslated,
            _ => FaultKind::Dropped,
        };
        Fault::new(kind, format!("to be delivered, and: {}", render::verdict(self.network, verdict)), Some(verdict))
    }

    fn is(&self, backend: &Backend, at: SocketAddr, machine: &str) -> bool {
        let pod = self.machine_of.and_then(|machine_of| machine_of(backend.pod.as_ref()?));
        backend.address == at && pod.is_none_or(|pod| pod == machine)
    }

    /// Returns how the client's view of the answer differs from the promise.
    fn answered(&self, backend: &Backend, broken: Option<&ReplyFailure>) -> Option<String> {
        // The client does not expect this source; often its node drops the answer.
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

/// Returns the receiving socket, the source that it saw, and why the answer failed.
fn reached(verdict: &Found) -> Option<(HostId, SocketAddr, SocketAddr, Option<&ReplyFailure>)> {
    match verdict {
        Found::Answered { by, at, saw } => Some((*by, *at, *saw, None)),
        Found::Unanswered { by, at, saw, why } => Some((*by, *at, *saw, Some(why))),
        _ => None,
    }
}

pub(crate) fn destination(found: &Outcomes, verdict: &Found) -> Option<IpAddr> {
    let (_, journey) = found.ways.iter().find(|(_, journey)| journey.verdict == *verdict)?;
    journey.request.trace.iter().rev().find_map(|event| match event {
        Event::Sent { packet, .. } | Event::Arrived { packet, .. } | Event::Translated { packet, .. } => {
            Some(packet.destination)
        }
        _ => None,
    })
}

/// Parts of 10⁻⁹ by which a share may differ. iptables stores probabilities as multiples of 2⁻³¹, which changes shares by
/// less than 10⁻⁹. kube-proxy up to 1.18 wrote five digits, so each probability was wrong by up to 5·10⁻⁶: a share is the
/// product of a probability and of the complements of those before it, and is wrong by up to three times as much.
fn rounding(found: &Outcomes) -> u64 {
    const EXACT: u64 = 1;
    const FIVE_DIGITS: u64 = 15_000;
    let events = found.ways.iter().flat_map(|(_, journey)| &journey.request.trace);
    let mut shares = events.filter_map(|event| match event {
        Event::Chance { share, .. } => Some(*share),
        _ => None,
    });
    if shares.all(|(share, of)| has_five_digits(share, of)) { FIVE_DIGITS } else { EXACT }
}

/// Whether `share` / `of` is a number of five digits, as near as iptables stores it.
fn has_five_digits(share: u64, of: u64) -> bool {
    const DIGITS: u64 = 100_000;
    let digits = (share * DIGITS + of / 2) / of;
    share.abs_diff((digits * of + DIGITS / 2) / DIGITS) <= 1
}

fn who(delivery: &Delivery, shares: &BTreeMap<SocketAddr, Fraction>, rounding: impl Fn() -> u64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let is_even = |found: &Fraction, of: u64| {
        let differs_by = |parts| !found.within(&Fraction::new(1, of), parts, 1_000_000_000);
        !differs_by(1) || !differs_by(rounding())
    };
    for backend in &delivery.backends {
        match (shares.get(&backend.address), backend.share) {
            (Some(found), Some(share)) if !is_even(found, share.of.into()) => {
                let says = format!("{} has a share of {found}, not {share}", backend.address);
                faults.push(Fault::new(FaultKind::Share, says, None));
            }
            (None, Some(_)) => {
                faults.push(Fault::new(FaultKind::MissingEndpoint, format!("{} never gets it", backend.address), None));
            }
            _ => {}
        }
    }
    if matches!(delivery.balancing, Balancing::Consistent { .. }) && shares.len() > 1 {
        let says =
            format!("one connection may get any of {} endpoints, though its client's hash chooses", shares.len());
        faults.push(Fault::new(FaultKind::Share, says, None));
    }
    if shares.is_empty() {
        faults.push(Fault::new(FaultKind::MissingEndpoint, "no endpoint gets it".to_owned(), None));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_five_digits_are_recognised() {
        let of = 1 << 31;
        let written = |probability: f64| (probability * of as f64).round() as u64;
        for probability in [0.33333, 0.5, 0.25, 0.2, 0.16667, 0.66667, 0.00033, 1.0] {
            assert!(has_five_digits(written(probability), of), "{probability}");
        }
        for probability in [1.0 / 3.0, 0.3333333333, 1.0 / 7.0, 0.333335, 0.000333] {
            assert!(!has_five_digits(written(probability), of), "{probability}");
        }
    }

    /// Walks the rules of `endpoints` endpoints, each with a probability of five digits.
    #[test]
    fn five_digits_change_no_share_by_more_than_is_allowed() {
        for endpoints in [2_u32, 3, 6, 7, 11, 37, 300, 999, 5000] {
            let (mut left, mut largest) = (1.0, 0.0_f64);
            for behind in (1..=endpoints).rev() {
                let rounded = (1e5 / f64::from(behind)).round() / 1e5;
                largest = largest.max((left * rounded - 1.0 / f64::from(endpoints)).abs());
                left *= 1.0 - rounded;
            }
            assert!(largest < 1.5e-5, "{endpoints}: {largest}");
        }
    }
}
