//! Gathers the judgements of calls into a report.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use svclab_oracle::{FrontendKind, Promise, Rule, ServiceFrontend};
use svclab_sim::cluster::NodeState;
use svclab_sim::network::{Outcomes, PacketVerdict};
use svclab_sim::render;
use svclab_snapshot::Snapshot;

use super::cause::{Cause, ServiceEndpoints, cause, known_difference, known_refusal};
use super::coverage::Met;
use super::finding::{Finding, FindingKind, NotJudged, Report};
use super::rules::{RuleTallies, broken_by};
use super::{Audit, AuditCall};
use crate::decider::{decider, journey_of};
use crate::judge::{Fault, destination};

/// The most paths per kind of finding.
const WAYS: usize = 50;
const CALLS: usize = 12;
const SERVICES: usize = 12;

/// Findings with equal keys are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FindingKey {
    /// `None`: the cause is the whole node's.
    place: Option<(FindingKind, String, &'static str, FrontendKind)>,
    cause: String,
    known: Option<&'static str>,
}

/// A finding, of which the first call by kind and text is described.
struct Entry {
    rank: (FindingKind, String),
    last_call: String,
    finding: Finding,
    services: BTreeSet<String>,
}

impl Entry {
    fn merge(&mut self, other: Entry) {
        self.services.extend(other.services);
        // The faults of one call come one after the other.
        let is_same_call = other.finding.count == 1 && other.last_call == self.last_call;
        let more = if is_same_call { 0 } else { other.finding.count };
        let (count, mut calls) = (self.finding.count + more, std::mem::take(&mut self.finding.calls));
        self.last_call = other.last_call;
        let mut first = other.finding;
        calls.append(&mut first.calls);
        if other.rank < self.rank {
            (self.rank, self.finding) = (other.rank, first);
        }
        (self.finding.count, self.finding.calls) = (count, calls);
        if self.finding.calls.len() > 8 * CALLS {
            shorten(&mut self.finding.calls);
        }
    }
}

fn shorten(calls: &mut Vec<String>) {
    calls.sort_unstable();
    calls.dedup();
    calls.truncate(CALLS);
}

pub(super) struct Gathered<'a> {
    audit: &'a Audit<'a>,
    findings: BTreeMap<FindingKey, Entry>,
    not_judged: BTreeMap<String, NotJudged>,
    rules: RuleTallies,
    pub(super) asked: usize,
    /// Asked calls that were not judged, or not in full.
    open: usize,
    pub(super) no_promise: usize,
    pub(super) unsettled: usize,
    /// What explains outcomes that are no faults, with the number of calls.
    notes: BTreeMap<String, usize>,
    pub(super) met: Met,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(audit: &'a Audit<'a>) -> Gathered<'a> {
        Gathered {
            audit,
            findings: BTreeMap::new(),
            not_judged: BTreeMap::new(),
            rules: RuleTallies::new(),
            asked: 0,
            open: 0,
            no_promise: 0,
            unsettled: 0,
            notes: BTreeMap::new(),
            met: Met::default(),
        }
    }

    pub(super) fn merge(&mut self, other: Gathered<'_>) {
        for (key, entry) in other.findings {
            self.put(key, entry);
        }
        for (why, one) in other.not_judged {
            let entry = self.not_judged.entry(why).or_insert_with(|| NotJudged { count: 0, ..one.clone() });
            entry.count += one.count;
            entry.first = entry.first.clone().min(one.first);
        }
        for (rule, tally) in other.rules {
            let entry = self.rules.entry(rule).or_default();
            *entry = entry.and(tally);
        }
        self.asked += other.asked;
        self.open += other.open;
        self.no_promise += other.no_promise;
        self.unsettled += other.unsettled;
        self.met.merge(other.met);
        for (note, count) in other.notes {
            *self.notes.entry(note).or_default() += count;
        }
    }

    pub(super) fn note(&mut self, note: String) {
        *self.notes.entry(note).or_default() += 1;
    }

    /// Counts a call that was not judged, or not in full.
    pub(super) fn not_judged(&mut self, asked: &AuditCall<'_>, why: String) {
        self.open += 1;
        let entry = self.not_judged.entry(why.clone());
        entry.or_insert_with(|| NotJudged { why, count: 0, first: call(asked) }).count += 1;
    }

    pub(super) fn held(&mut self, promise: &Promise) {
        for reason in &promise.because {
            self.rules.entry(reason.rule.id()).or_default().held += 1;
        }
    }

    pub(super) fn fault(&mut self, asked: &AuditCall<'_>, promise: &Promise, fault: Fault, found: Option<&Outcomes>) {
        let journey = found.and_then(|found| journey_of(found, fault.found.as_ref()));
        let down = self.down_towards(&fault, found);
        let cause = match (self.audit.wrong_setting(asked, promise), down) {
            (Some(setting), _) => Cause::node_wide(format!("the kernel setting {setting}")),
            (None, Some(interface)) => Cause::node_wide(format!("interface {interface} is down")),
            (None, None) => {
                let endpoints = ServiceEndpoints { own: &asked.frontend.endpoints, is_any: self.is_endpoint(&fault) };
                cause(&fault, journey, self.audit.proxy, &endpoints, self.audit.machines.node)
            }
        };
        let kind = FindingKind::Broken(fault.kind);
        let known = known_difference(kind, asked, self.audit.proxy, fault.found.as_ref());
        let rules = broken_by(kind, promise);
        let finding = Finding {
            promised: promise.verdict.to_string(),
            because: promise.because.iter().map(ToString::to_string).collect(),
            found: fault.says,
            way: journey.map(render::journey).unwrap_or_default(),
            ..Finding::default()
        };
        self.add(asked, (kind, known), cause, &rules, finding);
    }

    /// Returns the interface to which the lost packet would go, were it up.
    fn down_towards(&self, fault: &Fault, found: Option<&Outcomes>) -> Option<&str> {
        let lost = fault.found.as_ref().filter(|found| matches!(found, PacketVerdict::Dropped { .. }))?;
        self.audit.machines.down_towards(destination(found?, lost)?)
    }

    fn is_endpoint(&self, fault: &Fault) -> bool {
        match fault.found {
            Some(PacketVerdict::Answered { at, .. } | PacketVerdict::Unanswered { at, .. }) => {
                self.audit.known.endpoints.contains_key(&at.ip())
            }
            _ => false,
        }
    }

    pub(super) fn stale(&mut self, asked: &AuditCall<'_>, found: &Outcomes) {
        self.untouched(asked, found, "left from a service that is gone, or the service is new to the archive", None);
    }

    /// Adds a finding if rules of a service port also match packets of no service.
    pub(super) fn too_wide(&mut self, asked: &AuditCall<'_>, found: &Outcomes) {
        let decided = journey_of(found, None).and_then(|journey| decider(journey, &self.audit.proxy.tables));
        let known = known_refusal(asked, self.audit.proxy, found, decided.as_ref());
        self.untouched(asked, found, "rules for this service's port meet it as well", known);
    }

    fn untouched(&mut self, asked: &AuditCall<'_>, found: &Outcomes, cause: &str, known: Option<&'static str>) {
        let journey = journey_of(found, None);
        let decided = journey.and_then(|journey| decider(journey, &self.audit.proxy.tables));
        let decided = decided.map(|decider| decider.text).unwrap_or_default();
        let sentences = found.outcomes.iter().map(|one| render::verdict(&self.audit.machines.network, &one.verdict));
        let finding = Finding {
            promised: "not a service".to_owned(),
            because: vec!["no-service: what goes to no service's address and port is not touched [page reference/networking/virtual-ips]".to_owned()],
            found: sentences.collect::<BTreeSet<_>>().into_iter().take(3).collect::<Vec<_>>().join("; "),
            way: journey.map(render::journey).unwrap_or_default(),
            ..Finding::default()
        };
        let cause = Cause { text: format!("{cause}: {decided}"), node_wide: false };
        self.add(asked, (FindingKind::StaleFrontend, known), cause, &[Rule::NoService], finding);
    }

    /// Completes a finding by the call, and adds it to those with the same key.
    fn add(
        &mut self,
        asked: &AuditCall<'_>,
        (kind, known): (FindingKind, Option<&'static str>),
        cause: Cause,
        rules: &[Rule],
        finding: Finding,
    ) {
        for rule in rules {
            let tally = self.rules.entry(rule.id()).or_default();
            *(if known.is_some() { &mut tally.known } else { &mut tally.broken }) += 1;
        }
        let (service, protocol) = (asked.frontend.service.to_string(), asked.frontend.protocol.name());
        let place = (!cause.node_wide).then(|| (kind, service.clone(), protocol, asked.frontend.kind));
        let (key, call) = (FindingKey { place, cause: cause.text.clone(), known }, call(asked));
        let finding = Finding {
            kind: kind.id(),
            title: kind.title(),
            service: service.clone(),
            protocol,
            frontend: name(asked.frontend.kind),
            calls: vec![call.clone()],
            count: 1,
            rules: rules.iter().map(|rule| rule.id()).collect(),
            cause: cause.text,
            known: known.map(Cow::Borrowed),
            ..finding
        };
        self.put(
            key,
            Entry { rank: (kind, call.clone()), last_call: call, finding, services: BTreeSet::from([service]) },
        );
    }

    fn put(&mut self, key: FindingKey, entry: Entry) {
        match self.findings.entry(key) {
            std::collections::btree_map::Entry::Vacant(place) => drop(place.insert(entry)),
            std::collections::btree_map::Entry::Occupied(mut place) => place.get_mut().merge(entry),
        }
    }

    pub(super) fn report(self, state: &NodeState, frontends: &[ServiceFrontend]) -> Report {
        let audit = self.audit;
        let ports: BTreeSet<_> = frontends.iter().map(|frontend| &frontend.service).collect();
        let mut findings = bounded(self.findings);
        findings.extend(connection_table_full(&audit.snapshot.conntrack, ports.len()));
        let unread = audit.snapshot.unread.iter().map(|one| format!("{}: {}", one.what, one.why));
        let notes = self
            .notes
            .into_iter()
            .map(|(note, count)| format!("{note} ({count} {})", if count == 1 { "call" } else { "calls" }));
        Report {
            node: audit.known.node.clone(),
            taken: audit.snapshot.taken.clone(),
            mode: audit.proxy.settings.mode.name(),
            service_ports: ports.len(),
            frontends: frontends.len(),
            calls: self.asked,
            judged: self.asked.saturating_sub(self.open),
            no_promise: self.no_promise,
            unsettled: self.unsettled,
            rules: self.rules,
            coverage: self.met.coverage(state, &self.audit.proxy.tables),
            findings,
            not_judged: self.not_judged.into_values().collect(),
            incomplete: incomplete(audit.snapshot).chain(audit.sources.incomplete.iter().cloned()).collect(),
            not_asked: audit.sources.not_asked.clone(),
            assumed: audit.machines.assumed.iter().cloned().chain(notes).collect(),
            unread: unread.collect(),
        }
    }
}

/// Returns the unread parts that may decide an outcome.
fn incomplete(snapshot: &Snapshot) -> impl Iterator<Item = String> + '_ {
    let decides = |what: &str| what.starts_with("rules") || what.starts_with("network") || what.starts_with("sysctls");
    let unread = snapshot.unread.iter().filter(move |unread| decides(&unread.what));
    unread.map(|unread| format!("{} was not read", unread.what))
}

/// A full table drops every new connection (`early_drop` fails, nf_conntrack_core.c).
fn connection_table_full(figures: &BTreeMap<String, u64>, service_count: usize) -> Option<Finding> {
    let figure = |name: &str| figures.get(name).copied().unwrap_or(0);
    let (count, max, dropped) = (figure("count"), figure("max"), figure("drop"));
    (max > 0 && count >= max && dropped > 0).then(|| Finding {
        kind: FindingKind::ConntrackFull.id(),
        title: FindingKind::ConntrackFull.title(),
        service: "every service port".to_owned(),
        service_count,
        promised: "new connections".to_owned(),
        found: format!("{count} connections of at most {max}; {dropped} packets were dropped for it since the start"),
        cause: format!("the kernel setting net.netfilter.nf_conntrack_max = {max}"),
        ..Finding::default()
    })
}

/// Bounds the number of paths; the result does not depend on the threads' order.
fn bounded(findings: BTreeMap<FindingKey, Entry>) -> Vec<Finding> {
    let mut ways: BTreeMap<&'static str, usize> = BTreeMap::new();
    let complete = |Entry { rank, mut finding, services, .. }: Entry| {
        shorten(&mut finding.calls);
        finding.service_count = services.len();
        finding.services = services.into_iter().take(SERVICES).collect();
        (rank.0, finding)
    };
    let mut all: Vec<(FindingKind, Finding)> = findings.into_values().map(complete).collect();
    all.sort_by(|(kind, one), (other_kind, other)| {
        (kind, &one.service, one.protocol).cmp(&(other_kind, &other.service, other.protocol))
    });
    let mut all: Vec<Finding> = all.into_iter().map(|(_, finding)| finding).collect();
    for finding in &mut all {
        let count = ways.entry(finding.kind).or_default();
        *count += 1;
        if *count > WAYS {
            finding.way = String::new();
        }
    }
    all
}

fn call(asked: &AuditCall<'_>) -> String {
    format!("{} → {}/{}", asked.source.label, asked.to, asked.frontend.protocol)
}

fn name(kind: FrontendKind) -> &'static str {
    match kind {
        FrontendKind::ClusterIp => "cluster IP",
        FrontendKind::NodePort => "node port",
        FrontendKind::ExternalIp => "external IP",
        FrontendKind::LoadBalancerIp => "load-balancer IP",
    }
}
