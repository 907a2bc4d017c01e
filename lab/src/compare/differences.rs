//! One scenario, two reports: what is not the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Pair;
use crate::expect::{StepAnswers, stats};
use crate::report::{ScenarioReport, StepReport, StepVerdict};

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Whether a promise was kept.
    Verdict,
    /// Who answers, or how often.
    Distribution,
    /// The source address that a server sees.
    Source,
}

impl What {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            What::Verdict => "verdict",
            What::Distribution => "distribution",
            What::Source => "source address",
        }
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What differs.
    pub what: What,
    /// The step's name; empty for the start of the scenario.
    pub step: String,
    /// The step's line.
    pub line: usize,
    /// What was seen with the first proxy.
    pub a: String,
    /// What was seen with the second.
    pub b: String,
}

/// Every difference of a scenario, in the order of its steps.
pub fn differences(pair: &Pair) -> Vec<Difference> {
    let (a, b) = (&pair.a, &pair.b);
    if a.not_started.is_some() || b.not_started.is_some() {
        let (a, b) = (start(a), start(b));
        let started = Difference { what: What::Verdict, step: String::new(), line: 0, a, b };
        return if pair.a.not_started.is_some() == pair.b.not_started.is_some() { vec![] } else { vec![started] };
    }
    a.steps.iter().zip(&b.steps).flat_map(|(a, b)| step(a, b)).collect()
}

fn start(report: &ScenarioReport) -> String {
    report.not_started.as_ref().map_or_else(|| "it started".to_owned(), |why| format!("not started: {why}"))
}

fn step(a: &StepReport, b: &StepReport) -> Vec<Difference> {
    let difference =
        |what, seen_a, seen_b| Difference { what, step: a.name.clone(), line: a.line, a: seen_a, b: seen_b };
    let mut found = Vec::new();
    if a.verdict.word() != b.verdict.word() {
        found.push(difference(What::Verdict, verdict(a), verdict(b)));
    }
    if let (Some(answers_a), Some(answers_b)) = (&a.answers, &b.answers) {
        // A verdict that differs has told already who answered.
        if found.is_empty() && distributed_differently(answers_a, answers_b) {
            found.push(difference(What::Distribution, a.summary.clone(), b.summary.clone()));
        }
        if let Some((server, seen_a, seen_b)) = seen_differently(answers_a, answers_b) {
            let words = |seen: &Counts<IpAddr>| {
                let seen: Vec<String> = seen.iter().map(|(address, count)| format!("{address} ×{count}")).collect();
                format!("{server} saw {}", seen.join(", "))
            };
            found.push(difference(What::Source, words(seen_a), words(seen_b)));
        }
    }
    found
}

fn verdict(step: &StepReport) -> String {
    let first = match &step.verdict {
        StepVerdict::Failed(mismatches) => {
            mismatches.first().map(|first| format!("{}; seen: {}", first.expected, first.seen))
        }
        StepVerdict::Error(why) | StepVerdict::NotSimulated(why) | StepVerdict::NotJudged(why) => Some(why.clone()),
        StepVerdict::Passed | StepVerdict::Skipped => Some(step.summary.clone()).filter(|summary| !summary.is_empty()),
    };
    let word = step.verdict.word();
    match (&step.verdict, first) {
        (StepVerdict::Failed(_), Some(first)) => format!("{word}, expected: {first}"),
        (_, Some(first)) => format!("{word}: {first}"),
        (_, None) => word.to_owned(),
    }
}

/// How often each outcome was seen.
type Counts<T> = BTreeMap<T, usize>;

/// Outcomes of a step that share the bound on a false alarm ([`stats::FALSE_ALARM`]): servers and failures, and for each server
/// the addresses that it saw. The number is fixed, so that it does not follow from what is judged; a step with more of them has
/// as many as it has.
const OUTCOMES: usize = 64;

fn outcomes(a: &StepAnswers, b: &StepAnswers) -> usize {
    let of = |answers: &StepAnswers| {
        let tally = &answers.tally;
        let addresses: usize = tally.seen_by.values().map(BTreeMap::len).sum();
        tally.servers.len() + tally.failures.len() + addresses
    };
    OUTCOMES.max(of(a) + of(b))
}

/// Whether some outcome was met more often with one proxy than with the other, beyond what chance allows; it is one of so many
/// `outcomes` of the step.
fn unlike<T: Ord>(a: &Counts<T>, b: &Counts<T>, outcomes: usize) -> bool {
    let (sent_a, sent_b) = (a.values().sum(), b.values().sum());
    let all: BTreeSet<&T> = a.keys().chain(b.keys()).collect();
    let of = |counts: &Counts<T>, what: &T| counts.get(what).copied().unwrap_or_default();
    all.iter().any(|what| stats::differ((of(a, what), sent_a), (of(b, what), sent_b), outcomes))
}

/// Whether some server, or silence, was met more often with one than with the other.
fn distributed_differently(a: &StepAnswers, b: &StepAnswers) -> bool {
    let counts = |answers: &StepAnswers| -> Counts<String> {
        let tally = &answers.tally;
        tally.servers.iter().chain(&tally.failures).map(|(what, count)| (what.clone(), *count)).collect()
    };
    a.drawn && b.drawn && unlike(&counts(a), &counts(b), outcomes(a, b))
}

/// A server that answered with both and saw other addresses with the one than with the other. Which node a packet comes
/// by may be a matter of chance, so this is one of counts, too.
fn seen_differently<'a>(
    a: &'a StepAnswers,
    b: &'a StepAnswers,
) -> Option<(&'a str, &'a Counts<IpAddr>, &'a Counts<IpAddr>)> {
    a.tally.seen_by.iter().find_map(|(server, seen_a)| {
        let seen_b = b.tally.seen_by.get(server)?;
        unlike(seen_a, seen_b, outcomes(a, b)).then_some((server.as_str(), seen_a, seen_b))
    })
}
