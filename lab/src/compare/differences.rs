use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Pair;
use crate::expect::{StepAnswers, stats};
use crate::report::{ScenarioReport, StepReport, StepVerdict};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    Verdict,
    /// The answering servers, or their numbers of answers.
    Distribution,
    /// The source address that a server sees.
    Source,
}

impl DifferenceKind {
    pub fn word(self) -> &'static str {
        match self {
            DifferenceKind::Verdict => "verdict",
            DifferenceKind::Distribution => "distribution",
            DifferenceKind::Source => "source address",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub what: DifferenceKind,
    /// The step's name; empty for the start of the scenario.
    pub step: String,
    pub line: usize,
    pub a: String,
    pub b: String,
}

/// Returns the differences in the order of the steps.
pub fn differences(pair: &Pair) -> Vec<Difference> {
    let (a, b) = (&pair.a, &pair.b);
    if a.not_started.is_some() || b.not_started.is_some() {
        let (a, b) = (start(a), start(b));
        let started = Difference { what: DifferenceKind::Verdict, step: String::new(), line: 0, a, b };
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
        found.push(difference(DifferenceKind::Verdict, verdict(a), verdict(b)));
    }
    if let (Some(answers_a), Some(answers_b)) = (&a.answers, &b.answers) {
        // A difference of the verdicts already covers the answers.
        if found.is_empty() && distributed_differently(answers_a, answers_b) {
            found.push(difference(DifferenceKind::Distribution, a.summary.clone(), b.summary.clone()));
        }
        if let Some((server, seen_a, seen_b)) = seen_differently(answers_a, answers_b) {
            let words = |seen: &Counts<IpAddr>| {
                let seen: Vec<String> = seen.iter().map(|(address, count)| format!("{address} ×{count}")).collect();
                format!("{server} saw {}", seen.join(", "))
            };
            found.push(difference(DifferenceKind::Source, words(seen_a), words(seen_b)));
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

type Counts<T> = BTreeMap<T, usize>;

/// The least number of outcomes that share the bound on a false alarm ([`stats::FALSE_ALARM`]). A fixed minimum keeps
/// the test independent of what is judged.
const OUTCOMES: usize = 64;

fn outcomes(a: &StepAnswers, b: &StepAnswers) -> usize {
    let of = |answers: &StepAnswers| {
        let tally = &answers.tally;
        let addresses: usize = tally.seen_by.values().map(BTreeMap::len).sum();
        tally.servers.len() + tally.failures.len() + addresses
    };
    OUTCOMES.max(of(a) + of(b))
}

/// Whether one proxy had an outcome more often than chance allows. `outcomes`: the number of outcomes of the step.
fn unlike<T: Ord>(a: &Counts<T>, b: &Counts<T>, outcomes: usize) -> bool {
    let (sent_a, sent_b) = (a.values().sum(), b.values().sum());
    let all: BTreeSet<&T> = a.keys().chain(b.keys()).collect();
    let of = |counts: &Counts<T>, what: &T| counts.get(what).copied().unwrap_or_default();
    all.iter().any(|what| stats::differ((of(a, what), sent_a), (of(b, what), sent_b), outcomes))
}

/// Whether shares of servers or failures differ by more than chance.
fn distributed_differently(a: &StepAnswers, b: &StepAnswers) -> bool {
    let counts = |answers: &StepAnswers| -> Counts<String> {
        let tally = &answers.tally;
        tally.servers.iter().chain(&tally.failures).map(|(what, count)| (what.clone(), *count)).collect()
    };
    a.drawn && b.drawn && unlike(&counts(a), &counts(b), outcomes(a, b))
}

/// Returns a server that saw different addresses with the two proxies. Compares counts: chance may decide which node
/// forwards.
fn seen_differently<'a>(
    a: &'a StepAnswers,
    b: &'a StepAnswers,
) -> Option<(&'a str, &'a Counts<IpAddr>, &'a Counts<IpAddr>)> {
    a.tally.seen_by.iter().find_map(|(server, seen_a)| {
        let seen_b = b.tally.seen_by.get(server)?;
        unlike(seen_a, seen_b, outcomes(a, b)).then_some((server.as_str(), seen_a, seen_b))
    })
}
