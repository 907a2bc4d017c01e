use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::Relays;
use crate::fraction::Fraction;
use crate::network::{Flow, HostId, Network, Outcomes, PacketOutcome, PacketVerdict};
use crate::protocol::Family;

const OWN_PORT: u16 = 50_000;

/// Replaces outcomes at relays by the outcomes of the relays' connections to backends.
#[must_use]
pub fn through<'r>(
    network: &Network,
    flow: &Flow,
    outcomes: Outcomes,
    of: impl Fn(HostId) -> Option<&'r Relays>,
) -> Outcomes {
    let endpoints = |verdict: &PacketVerdict| -> Option<(HostId, &'r [SocketAddr])> {
        let (PacketVerdict::Answered { by, at, .. } | PacketVerdict::Unanswered { by, at, .. }) = verdict else {
            return None;
        };
        let relay = of(*by)?.get(&(Family::of(at.ip()), flow.protocol, at.port()))?;
        Some((*by, relay.to.as_slice()))
    };
    if outcomes.outcomes.iter().all(|one| endpoints(&one.verdict).is_none()) {
        return outcomes;
    }
    let mut sums: BTreeMap<PacketVerdict, Fraction> = BTreeMap::new();
    let mut add = |verdict: PacketVerdict, probability: Fraction| {
        let sum = sums.entry(verdict).or_insert_with(Fraction::zero);
        *sum = sum.plus(&probability);
    };
    for PacketOutcome { verdict, probability } in &outcomes.outcomes {
        let Some((node, endpoints)) = endpoints(verdict) else {
            add(verdict.clone(), probability.clone());
            continue;
        };
        for endpoint in endpoints {
            let call = Flow { from: node, source: None, source_port: OWN_PORT, to: *endpoint, protocol: flow.protocol };
            // Skips unreachable backends, so probabilities sum to less than one.
            let Ok(found) = network.outcomes(&call) else { continue };
            if let Some(second) = found.certain() {
                add(both(verdict, second.clone()), probability.times(1, endpoints.len() as u64));
            }
        }
    }
    let outcomes_of = |(verdict, probability)| PacketOutcome { verdict, probability };
    Outcomes {
        outcomes: sums.into_iter().map(outcomes_of).collect(),
        ways: outcomes.ways,
        undecided: outcomes.undecided,
    }
}

fn both(first: &PacketVerdict, second: PacketVerdict) -> PacketVerdict {
    match (first, second) {
        (PacketVerdict::Unanswered { why, .. }, PacketVerdict::Answered { by, at, saw }) => {
            PacketVerdict::Unanswered { by, at, saw, why: why.clone() }
        }
        (_, second) => second,
    }
}
