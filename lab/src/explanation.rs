//! Explains why a request ends where it does.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader};
use std::net::IpAddr;
use std::path::Path;

use svclab_audit::NodeError;
use svclab_audit::cluster::KnownAddresses;
use svclab_audit::decider::{decider, journey_of, masquerader};
use svclab_audit::explain::{ExplainCall, Explained, NameError, Named, NodeFacts, explain};
use svclab_audit::owner::ProxyTables;
use svclab_sim::assume::Assumptions;
use svclab_sim::network::{Network, Outcomes, PacketOutcome, PacketVerdict};
use svclab_sim::protocol::Protocol;
use svclab_sim::render::printable;
use svclab_snapshot::Snapshot;
use svclab_snapshot::archive::ArchiveError;

use crate::bundle::FailedCall;
use crate::outcome_text;

/// The most outcomes in the short form.
const OUTCOMES: usize = 2;

pub(crate) struct Explanation {
    pub(crate) text: String,
    pub(crate) lines: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExplanationError {
    #[error("cannot read the archive: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// What a request was to reach.
pub(crate) enum WantedEnd {
    Answer { servers: Vec<IpAddr>, source: Option<WantedSource> },
    NoAnswer,
}

/// The source addresses that a server may see; `not`: all others.
pub(crate) struct WantedSource {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) not: bool,
}

/// What an outcome breaks of what was wanted.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    End,
    Source,
}

impl WantedEnd {
    fn broken_by(&self, verdict: &PacketVerdict) -> Option<Broken> {
        match (self, verdict) {
            (WantedEnd::Answer { servers, source }, PacketVerdict::Answered { at, saw, .. }) => {
                let fits = |source: &WantedSource| source.addresses.contains(&saw.ip()) != source.not;
                let is_wrong_source = source.as_ref().is_some_and(|source| !fits(source));
                let wrong_end = (!servers.contains(&at.ip())).then_some(Broken::End);
                wrong_end.or(is_wrong_source.then_some(Broken::Source))
            }
            (WantedEnd::Answer { .. }, _) | (WantedEnd::NoAnswer, PacketVerdict::Answered { .. }) => Some(Broken::End),
            (WantedEnd::NoAnswer, _) => None,
        }
    }
}

pub(crate) fn of_archive(path: &Path, call: &FailedCall, wanted: &WantedEnd) -> Result<Explanation, ExplanationError> {
    let snapshot = Snapshot::read(BufReader::new(File::open(path)?))?;
    let state = svclab_audit::machines::state(&snapshot)?;
    let known = KnownAddresses::of(&snapshot);
    let names = Named { snapshot: &snapshot, known: &known };
    let (to, _) = names.called(&call.to)?;
    let protocol = match call.protocol.as_str() {
        "udp" => Protocol::UDP,
        "sctp" => Protocol::SCTP,
        _ => Protocol::TCP,
    };
    let from = names.caller(&call.from, to.ip())?;
    let asked = ExplainCall { from, to, protocol, input: None, assumptions: Assumptions::default() };
    let explained = explain(NodeFacts::Snapshot(&snapshot, &known), &state, &asked)?;
    let text =
        text(&explained.machines.network, &explained.outcomes, &[], (&explained.programs, &explained.assumed), false);
    Ok(Explanation { text, lines: lines(&call.node, &explained, wanted) })
}

pub(crate) fn text(
    network: &Network,
    outcomes: &Outcomes,
    calls: &[(String, Outcomes)],
    (programs, assumed): (&[String], &BTreeSet<String>),
    all: bool,
) -> String {
    let mut text = format!("{}\n", outcome_text::ways(outcomes, all).trim_end());
    for (title, call) in calls {
        let _ = writeln!(text, "\n{title}:\n{}", outcome_text::ways(call, all).trim_end());
    }
    text.push('\n');
    if !programs.is_empty() {
        text.push_str("not judged: what these programs do with the packets is not known\n");
        programs.iter().for_each(|program| text.push_str(&format!("  {program}\n")));
        text.push_str("if they let the packets pass unchanged:\n");
    }
    for line in outcome_text::outcomes(network, outcomes) {
        let _ = writeln!(text, "{line}");
    }
    if !assumed.is_empty() {
        text.push_str("\nassumed:\n");
    }
    for line in assumed {
        let _ = writeln!(text, "  {line}");
    }
    printable(&text)
}

/// Tells the outcomes, those that break the promise first, and the rule that decided the first of them.
fn lines(node: &str, explained: &Explained, wanted: &WantedEnd) -> Vec<String> {
    let all = outcome_text::outcomes(&explained.machines.network, &explained.outcomes);
    let mut told: Vec<_> = all.iter().zip(&explained.outcomes.outcomes).collect();
    told.sort_by_key(|(_, one)| wanted.broken_by(&one.verdict).is_none());
    let first = told.first().map(|(_, one)| &one.verdict);
    // An archive does not show which programs listen.
    let unread = explained.programs.first().map(|program| format!(", if it passes unchanged where {program}"));
    let line = |(line, one): &(&String, &PacketOutcome)| match (&unread, &one.verdict) {
        (Some(unread), _) => format!("on {node}: {line}{unread}"),
        (None, PacketVerdict::Answered { .. }) => format!("on {node}: {line}, if a program waits there"),
        _ => format!("on {node}: {line}"),
    };
    let mut lines: Vec<String> = told.iter().take(OUTCOMES).map(line).collect();
    if let Some(last) = lines.last_mut().filter(|_| all.len() > OUTCOMES) {
        let _ = write!(last, "; and {} more outcomes", all.len() - OUTCOMES);
    }
    let journey = journey_of(&explained.outcomes, first);
    // The sentences name no owner.
    let tables = ProxyTables::default();
    lines.push(if first.and_then(|verdict| wanted.broken_by(verdict)) == Some(Broken::Source) {
        match journey.and_then(|journey| masquerader(journey, &tables)) {
            Some(rule) => format!("masqueraded by {}", rule.text),
            None => "no rule masqueraded it on its way".to_owned(),
        }
    } else {
        match journey.and_then(|journey| decider(journey, &tables)) {
            Some(rule) => format!("decided by {}", rule.text),
            None => "no rule decided it: no rule translates, rejects or drops it on its way".to_owned(),
        }
    });
    lines.iter_mut().for_each(|line| *line = printable(line));
    lines
}
