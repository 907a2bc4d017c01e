use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::journey::{Journey, PacketVerdict};
use super::{HostId, HostStates, Network, NetworkError};
use crate::chance::{self, Decision};
use crate::fraction::Fraction;
use crate::packet::Packet;
use crate::trace::{Event, NotModelled};

const WAYS: usize = 100_000;
/// The most paths with unknown facts; each fact doubles the number of paths.
const UNDECIDED_WAYS: usize = 10_000;

/// The packet has more paths than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the packet has more than {WAYS} paths: use a seed for one path")]
pub struct TooManyWays;

/// Unknown facts decide the outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecided {
    /// The unknown facts, by machine and rule.
    pub parts: Vec<NotModelled>,
}

impl std::error::Error for Undecided {}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the outcome of the packet depends on unknown facts:")?;
        self.parts.iter().try_for_each(|part| write!(f, "\n  {part}"))?;
        let names: BTreeSet<&str> = self.parts.iter().map(|part| &*part.name).filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let options: Vec<String> = names.iter().map(|name| format!("--assume '{name}=no'")).collect();
        write!(f, "\nto decide them: {} (or =yes)", options.join(" "))
    }
}

/// A verdict with its probability.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct PacketOutcome {
    pub verdict: PacketVerdict,
    /// The sum over its paths.
    pub probability: Fraction,
}

/// All outcomes of a packet.
#[derive(Debug, Clone)]
pub struct Outcomes {
    /// One per [`PacketVerdict`]; probabilities sum to one.
    pub outcomes: Vec<PacketOutcome>,
    /// All paths, first the one on which all probabilistic rules match. Unknown facts are answered "no".
    pub ways: Vec<(Fraction, Journey)>,
    /// Unknown facts that do not change the outcome.
    pub undecided: Vec<NotModelled>,
}

impl Outcomes {
    /// The verdict if there is only one.
    #[must_use]
    pub fn certain(&self) -> Option<&PacketVerdict> {
        match self.outcomes.as_slice() {
            [only] => Some(&only.verdict),
            _ => None,
        }
    }

    /// The probability of the outcomes that `which` picks.
    #[must_use]
    pub fn probability(&self, mut which: impl FnMut(&PacketVerdict) -> bool) -> Fraction {
        let picked = self.outcomes.iter().filter(|outcome| which(&outcome.verdict));
        picked.fold(Fraction::zero(), |sum, outcome| sum.plus(&outcome.probability))
    }
}

struct DecidedJourney {
    journey: Journey,
    decisions: Vec<Decision>,
}

pub(super) fn explore(
    network: &Network,
    states: &HostStates,
    from: HostId,
    packet: &Packet,
) -> Result<Outcomes, NetworkError> {
    let walk = |chance: &mut chance::Chance| super::run::journey(network, &mut states.clone(), chance, from, packet);
    let (mut ways, mut unknown) = (Vec::new(), false);
    let whole = chance::explore(WAYS, walk, |journey, chance| {
        unknown |= chance.asked_unknown() || journey.stopped_at().is_some();
        ways.push((chance.probability(), journey));
        !unknown || ways.len() <= UNDECIDED_WAYS
    });
    let parts = if unknown { parts(ways.iter().map(|(_, journey)| journey)) } else { Vec::new() };
    if !whole {
        return Err(if unknown { Undecided { parts }.into() } else { TooManyWays.into() });
    }
    if ways.iter().any(|(_, journey)| journey.stopped_at().is_some()) {
        return Err(Undecided { parts }.into());
    }
    if unknown {
        // The first exploration keeps no decisions, to save memory.
        let mut all = Vec::new();
        chance::explore(WAYS, walk, |journey, chance| {
            all.push(DecidedJourney { journey, decisions: chance.into_decisions() });
            true
        });
        let Some(chosen) = with_one_answer(&all, 0) else {
            return Err(Undecided { parts }.into());
        };
        ways = chosen.into_iter().map(|way| (chance::product(&way.decisions), way.journey.clone())).collect();
    }
    let merged = merge(ways.iter().map(|(probability, journey)| (&journey.verdict, probability.clone())));
    let outcomes = merged.into_iter();
    let outcomes = outcomes.map(|(verdict, sum)| PacketOutcome { verdict: verdict.clone(), probability: sum });
    Ok(Outcomes { outcomes: outcomes.collect(), ways, undecided: parts })
}

pub(super) fn each_way(
    network: &Network,
    from: HostId,
    packet: &Packet,
    mut visit: impl FnMut(Journey, HostStates) -> bool,
) {
    let walk = |chance: &mut chance::Chance| {
        let mut states = network.states.clone();
        (super::run::journey(network, &mut states, chance, from, packet), states)
    };
    chance::explore(WAYS, walk, |(journey, states), chance| chance.asked_unknown() || visit(journey, states));
}

fn merge<'a>(ways: impl Iterator<Item = (&'a PacketVerdict, Fraction)>) -> BTreeMap<&'a PacketVerdict, Fraction> {
    let mut merged: BTreeMap<&PacketVerdict, Fraction> = BTreeMap::new();
    for (verdict, probability) in ways {
        let sum = merged.entry(verdict).or_insert_with(Fraction::zero);
        *sum = sum.plus(&probability);
    }
    merged
}

/// Returns the paths on which all unknown facts are "no"; `None` if a fact changes the outcome.
fn with_one_answer(ways: &[DecidedJourney], depth: usize) -> Option<Vec<&DecidedJourney>> {
    let decision = match ways {
        [] => return None,
        [only] => return Some(vec![only]),
        [first, ..] => first.decisions.get(depth)?,
    };
    let answer = |way: &DecidedJourney| way.decisions.get(depth).map(Decision::answer);
    let mut branches = Vec::new();
    for branch in ways.chunk_by(|one, other| answer(one) == answer(other)) {
        branches.push(with_one_answer(branch, depth + 1)?);
    }
    if !decision.is_unknown() {
        return Some(branches.into_iter().flatten().collect());
    }
    let mut branches = branches.into_iter();
    let (no, yes) = (branches.next()?, branches.next()?);
    (below(&no, depth) == below(&yes, depth)).then_some(no)
}

fn below<'a>(ways: &[&'a DecidedJourney], depth: usize) -> BTreeMap<&'a PacketVerdict, Fraction> {
    merge(ways.iter().map(|way| (&way.journey.verdict, chance::product(&way.decisions[depth + 1..]))))
}

fn parts<'a>(journeys: impl Iterator<Item = &'a Journey>) -> Vec<NotModelled> {
    let mut all = BTreeSet::new();
    for journey in journeys {
        all.extend(journey.stopped_at());
        for event in journey.legs().flat_map(|leg| &leg.trace) {
            if let Event::Undecided { asked, .. } = event {
                all.insert(&**asked);
            }
        }
    }
    all.into_iter().cloned().collect()
}
