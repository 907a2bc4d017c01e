use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use svclab_cluster::traffic::probe::{ProbeAnswer, ProbeOutcome};

use super::stats;

#[derive(Debug, Clone, PartialEq)]
pub enum ProbePromise {
    Answered {
        /// The permitted servers (`namespace/pod`), with promised shares.
        by: Vec<(String, Option<f64>)>,
        source: Option<SourcePromise>,
        sticky: bool,
        /// All servers answer in turn, in a fixed order; the value is the number of requests at a time.
        turns: Option<usize>,
        /// Every server answers at least once.
        all: bool,
        /// The DSCP that the servers see.
        dscp: Option<u8>,
    },
    /// TCP reset, or ICMP port unreachable.
    Refused,
    /// No answer.
    Dropped,
    /// Anything but an answer.
    Unanswered,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePromise {
    pub words: String,
    pub client: bool,
    pub addresses: Vec<IpAddr>,
    pub not: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    pub expected: String,
    pub seen: String,
}

impl Mismatch {
    pub fn new(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Mismatch { expected: expected.into(), seen: seen.into() }
    }
}

/// The most pods and addresses in a summary.
const NAMED: usize = 5;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutcomeTally {
    pub servers: BTreeMap<String, usize>,
    pub sources: BTreeMap<IpAddr, usize>,
    pub seen_by: BTreeMap<String, BTreeMap<IpAddr, usize>>,
    pub failures: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepAnswers {
    pub tally: OutcomeTally,
    /// Whether requests are independent draws: no affinity, changing source ports.
    pub drawn: bool,
    pub bounds: BTreeMap<String, Bounds>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    pub share: f64,
    pub low: usize,
    pub high: usize,
}

pub fn bounds(wanted: &ProbePromise, sent: usize) -> BTreeMap<String, Bounds> {
    let ProbePromise::Answered { by, .. } = wanted else { return BTreeMap::new() };
    let one = |(name, share): &(String, Option<f64>)| {
        let share = (*share)?;
        let (low, high) = stats::accepted(sent, share, by.len());
        Some((name.clone(), Bounds { share, low, high }))
    };
    by.iter().filter_map(one).collect()
}

impl OutcomeTally {
    pub fn of(outcomes: &[ProbeOutcome]) -> Self {
        let mut tally = OutcomeTally::default();
        for outcome in outcomes {
            match &outcome.answer {
                ProbeAnswer::Replied { server, peer, .. } => {
                    *tally.servers.entry(server.clone()).or_default() += 1;
                    *tally.sources.entry(peer.ip()).or_default() += 1;
                    *tally.seen_by.entry(server.clone()).or_default().entry(peer.ip()).or_default() += 1;
                }
                other => *tally.failures.entry(words(other)).or_default() += 1,
            }
        }
        tally
    }

    pub fn summary(&self) -> String {
        self.words(usize::MAX)
    }

    /// Like [`OutcomeTally::summary`], but counts pods and addresses if there are many.
    pub fn brief(&self) -> String {
        self.words(NAMED)
    }

    fn words(&self, named: usize) -> String {
        let join = |parts: Vec<String>| parts.join(", ");
        let counts = || self.servers.values().copied();
        let mut parts = match self.servers.len() {
            all if all <= named => {
                vec![join(self.servers.iter().map(|(name, count)| format!("{name} ×{count}")).collect())]
            }
            all => {
                let (least, most) = (counts().min().unwrap_or_default(), counts().max().unwrap_or_default());
                let each = if least == most { format!("{least} each") } else { format!("{least} to {most} each") };
                vec![format!("{all} pods ×{}, {each}", counts().sum::<usize>())]
            }
        };
        match self.sources.len() {
            0 => {}
            all if all <= named => {
                parts.push(format!("saw {}", join(self.sources.keys().map(ToString::to_string).collect())));
            }
            all => parts.push(format!("saw {all} addresses")),
        }
        parts.push(join(self.failures.iter().map(|(what, count)| format!("{what} ×{count}")).collect()));
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() { "nothing was sent".to_owned() } else { parts.join("; ") }
    }
}

fn words(answer: &ProbeAnswer) -> String {
    match answer {
        ProbeAnswer::Replied { server, .. } => format!("answer from {server}"),
        ProbeAnswer::Refused => "refused".to_owned(),
        ProbeAnswer::Unreachable(why) => format!("unreachable ({why})"),
        ProbeAnswer::TimedOut => "no answer".to_owned(),
        ProbeAnswer::Broken(why) => format!("broken ({why})"),
    }
}

pub fn judge(wanted: &ProbePromise, outcomes: &[ProbeOutcome]) -> Vec<Mismatch> {
    let tally = OutcomeTally::of(outcomes);
    let only = |expected: &str, right: &dyn Fn(&ProbeAnswer) -> bool| {
        let all = !outcomes.is_empty() && outcomes.iter().all(|outcome| right(&outcome.answer));
        if all { vec![] } else { vec![Mismatch::new(expected, tally.summary())] }
    };
    match wanted {
        ProbePromise::Refused => only("every probe refused", &|answer| *answer == ProbeAnswer::Refused),
        ProbePromise::Unanswered => only("no probe answered", &|answer| !matches!(answer, ProbeAnswer::Replied { .. })),
        ProbePromise::Dropped => only("every probe dropped (no answer)", &|answer| *answer == ProbeAnswer::TimedOut),
        ProbePromise::Answered { by, source, sticky, turns, all, dscp } => {
            let mut found = answered(by, &tally, outcomes.len());
            if let Some(at_a_time) = turns.filter(|_| found.is_empty()) {
                found.extend(if at_a_time == 1 {
                    out_of_turn(by.len(), outcomes)
                } else {
                    uneven(by.len(), at_a_time, &tally)
                });
            }
            if *all && found.is_empty() {
                found.extend(without_answer(by, outcomes.len(), &tally));
            }
            if *sticky && tally.servers.len() > 1 {
                found.push(Mismatch::new("all answers from one server", tally.summary()));
            }
            found.extend(source.iter().filter_map(|source| wrong_source(source, outcomes, &tally)));
            found.extend(dscp.and_then(|dscp| wrong_dscp(dscp, outcomes)));
            found
        }
    }
}

fn answered(by: &[(String, Option<f64>)], tally: &OutcomeTally, sent: usize) -> Vec<Mismatch> {
    let names = || by.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" or ");
    let known = |name: &String| by.iter().any(|(wanted, _)| wanted == name);
    if sent == 0 || !tally.failures.is_empty() || !tally.servers.keys().all(known) {
        return vec![Mismatch::new(format!("every probe answered by {}", names()), tally.summary())];
    }
    let backends = by.len();
    let unlikely = by.iter().filter_map(|(name, share)| {
        let share = (*share)?;
        let count = tally.servers.get(name).copied().unwrap_or_default();
        let (low, high) = stats::accepted(sent, share, backends);
        let expected = format!(
            "{name} answers {:.1}% of {sent} probes: {low} to {high} of them (false-alarm bound {:e})",
            share * 100.0,
            stats::FALSE_ALARM
        );
        (count < low || count > high).then(|| Mismatch::new(expected, format!("{count} ({})", tally.summary())))
    });
    unlikely.collect()
}

/// Names the servers that never answered.
fn without_answer(by: &[(String, Option<f64>)], sent: usize, tally: &OutcomeTally) -> Option<Mismatch> {
    let silent = by.iter().map(|(name, _)| name.as_str()).filter(|name| !tally.servers.contains_key(*name));
    let silent: Vec<&str> = silent.collect();
    let expected = format!("each of {} pods answers some of {sent} probes", by.len());
    (!silent.is_empty()).then(|| Mismatch::new(expected, format!("none from {}", in_order(&silent))))
}

/// Finds an answer out of turn. The round may begin with any server.
fn out_of_turn(servers: usize, outcomes: &[ProbeOutcome]) -> Option<Mismatch> {
    let answered = outcomes.iter().filter_map(|outcome| match &outcome.answer {
        ProbeAnswer::Replied { server, .. } => Some(server.as_str()),
        _ => None,
    });
    let order: Vec<&str> = answered.collect();
    let round = &order[..servers.min(order.len())];
    let twice = round.iter().collect::<BTreeSet<_>>().len() < servers;
    let wrong = order.iter().enumerate().find(|(index, server)| round.get(index % servers) != Some(*server));
    let expected = || Mismatch::new(format!("{servers} servers answer in turn"), in_order(&order));
    (twice || wrong.is_some()).then(expected)
}

/// Finds a server whose number of answers differs from its turns by more than `at_a_time`: the order of parallel
/// requests is unknown.
fn uneven(servers: usize, at_a_time: usize, tally: &OutcomeTally) -> Option<Mismatch> {
    let sent: usize = tally.servers.values().sum();
    let turns = sent as f64 / servers as f64;
    let far = |count: usize| (count as f64 - turns).abs() > at_a_time as f64;
    let wrong = tally.servers.len() < servers || tally.servers.values().any(|count| far(*count));
    let expected = || format!("{servers} servers answer in turn: {turns:.0} times each, give or take {at_a_time}");
    wrong.then(|| Mismatch::new(expected(), tally.summary()))
}

pub fn smallest_skew(wanted: &ProbePromise, sent: usize) -> Option<String> {
    let ProbePromise::Answered { by, .. } = wanted else { return None };
    let shares: Vec<f64> = by.iter().filter_map(|(_, share)| *share).collect();
    shares.iter().any(|share| (f64::MIN_POSITIVE..1.0).contains(share)).then(|| {
        match stats::smallest_skew(sent, &shares) {
            Some(hundredths) => format!("smallest detectable skew of a share: {hundredths} %"),
            None => "too few probes to detect a skewed share".to_owned(),
        }
    })
}

fn in_order(names: &[&str]) -> String {
    const SHOWN: usize = 12;
    let more = if names.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

fn wrong_dscp(wanted: u8, outcomes: &[ProbeOutcome]) -> Option<Mismatch> {
    let mut seen: BTreeMap<Option<u8>, usize> = BTreeMap::new();
    for outcome in outcomes {
        if let ProbeAnswer::Replied { dscp, .. } = &outcome.answer {
            *seen.entry(*dscp).or_default() += 1;
        }
    }
    let words = |(dscp, count): (&Option<u8>, &usize)| {
        let dscp = dscp.map_or_else(|| "no DSCP".to_owned(), |dscp| format!("DSCP {dscp}"));
        format!("{dscp} ×{count}")
    };
    let wrong = seen.keys().any(|dscp| *dscp != Some(wanted));
    let seen = || seen.iter().map(words).collect::<Vec<_>>().join(", ");
    wrong.then(|| Mismatch::new(format!("servers see DSCP {wanted}"), seen()))
}

fn wrong_source(wanted: &SourcePromise, outcomes: &[ProbeOutcome], tally: &OutcomeTally) -> Option<Mismatch> {
    let wrong = outcomes.iter().any(|outcome| {
        let ProbeAnswer::Replied { peer, .. } = &outcome.answer else { return false };
        let own = wanted.client && outcome.client.is_some_and(|client| client.ip() == peer.ip());
        let inside = own || wanted.addresses.contains(&peer.ip());
        inside == wanted.not
    });
    wrong.then(|| {
        let client = outcomes.iter().find_map(|outcome| outcome.client);
        let client = client.map(|client| format!(" (the client is {})", client.ip())).unwrap_or_default();
        Mismatch::new(format!("servers see {}", wanted.words), format!("{}{client}", tally.summary()))
    })
}
