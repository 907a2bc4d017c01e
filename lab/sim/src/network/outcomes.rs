//! All ways of a packet, with exact probabilities.

use std::collections::BTreeMap;

use super::journey::{Journey, Verdict};
use super::{HostId, Network, NetworkError};
use crate::chance;
use crate::fraction::Fraction;
use crate::packet::Packet;
use crate::walk::State;

/// How many ways are explored at most.
const WAYS: usize = 100_000;

/// There are more ways than are explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the packet has more than {WAYS} ways: ask for one draw instead")]
pub struct TooManyWays;

/// What can become of a packet.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The probability of it: that of all its ways together.
    pub probability: Fraction,
}

/// Everything that can become of a packet.
#[derive(Debug, Clone)]
pub struct Outcomes {
    /// Each verdict once, in the order of [`Verdict`]; the probabilities sum to one.
    pub outcomes: Vec<Outcome>,
    /// Each way, in the order of the rules: the first is the one on which every rule that asks chance holds.
    pub ways: Vec<(Fraction, Journey)>,
}

impl Outcomes {
    /// The one verdict, if chance has no say in it.
    #[must_use]
    pub fn certain(&self) -> Option<&Verdict> {
        match self.outcomes.as_slice() {
            [only] => Some(&only.verdict),
            _ => None,
        }
    }

    /// The probability of all outcomes that `which` picks.
    #[must_use]
    pub fn probability(&self, mut which: impl FnMut(&Verdict) -> bool) -> Fraction {
        let picked = self.outcomes.iter().filter(|outcome| which(&outcome.verdict));
        picked.fold(Fraction::zero(), |sum, outcome| sum.plus(&outcome.probability))
    }
}

pub(super) fn explore(
    network: &Network,
    states: &[State],
    from: HostId,
    packet: &Packet,
) -> Result<Outcomes, NetworkError> {
    let mut ways = Vec::new();
    let whole = chance::explore(
        WAYS,
        |chance| super::run::journey(network, &mut states.to_vec(), chance, from, packet),
        |journey, probability| ways.push((probability, journey)),
    );
    if !whole {
        return Err(TooManyWays.into());
    }
    for (_, journey) in &ways {
        journey.known()?;
    }
    let mut merged: BTreeMap<&Verdict, Fraction> = BTreeMap::new();
    for (probability, journey) in &ways {
        let sum = merged.entry(&journey.verdict).or_insert_with(Fraction::zero);
        *sum = sum.plus(probability);
    }
    let outcomes = merged.into_iter();
    let outcomes = outcomes.map(|(verdict, sum)| Outcome { verdict: verdict.clone(), probability: sum });
    Ok(Outcomes { outcomes: outcomes.collect(), ways })
}
