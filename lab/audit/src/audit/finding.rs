//! Findings of an audit: one per service port, kind and cause, with its calls.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use svclab_oracle::{FrontendKind, Promise, Rule, ServiceFrontend};
use svclab_sim::network::{Outcomes, PacketVerdict};
use svclab_sim::render;
use svclab_snapshot::Objects;

use super::cause::{ServiceEndpoints, cause, known_difference, known_refusal};
use super::rules::{RuleTallies, broken_by};
use super::{Audit, AuditCall};
use crate::cluster::KnownAddresses;
use crate::decider::{decider, journey_of};
use crate::judge::{Fault, FaultKind};
use crate::machines::Machines;
use crate::settings::AuditedProxy;

const WAYS: usize = 50;
const CALLS: usize = 12;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// A broken promise.
    Broken(FaultKind),
    /// Rules serve an address and port that no service has.
    StaleFrontend,
}

impl FindingKind {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = FindingKind> {
        FaultKind::ALL.into_iter().map(FindingKind::Broken).chain([FindingKind::StaleFrontend])
    }

    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            FindingKind::Broken(kind) => kind.id(),
            FindingKind::StaleFrontend => "stale-frontend",
        }
    }

    /// The meaning in a sentence.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            FindingKind::Broken(FaultKind::NotTranslated) => "The service's address is not served here",
            FindingKind::Broken(FaultKind::Dropped) => "Packets are dropped that should be delivered",
            FindingKind::Broken(FaultKind::Rejected) => "Packets are rejected that should be delivered",
            FindingKind::Broken(FaultKind::WrongEndpoint) => "Packets reach an address that is not a usable endpoint",
            FindingKind::Broken(FaultKind::MissingEndpoint) => "An endpoint never gets packets",
            FindingKind::Broken(FaultKind::Share) => "Endpoints have shares that are not even",
            FindingKind::Broken(FaultKind::Source) => "Endpoints see a source address that they should not see",
            FindingKind::Broken(FaultKind::Answer) => "Answers do not come back as they should",
            FindingKind::Broken(FaultKind::Delivered) => "Packets are delivered that should be refused",
            FindingKind::Broken(FaultKind::Refusal) => "Packets are refused in the wrong way",
            FindingKind::Broken(FaultKind::Affinity) => "Session affinity does not hold",
            FindingKind::StaleFrontend => "An address and port are served that no service has",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// A fault of the node's rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// [`FindingKind::id`].
    pub kind: &'static str,
    /// [`FindingKind::title`].
    pub title: &'static str,
    /// The service port, or a stale frontend.
    pub service: String,
    /// The service port's protocol.
    pub protocol: &'static str,
    /// The kind of frontend: `cluster IP`, `node port`, …
    pub frontend: &'static str,
    /// The first calls: caller and destination.
    pub calls: Vec<String>,
    /// The number of calls.
    pub count: usize,
    /// The promise of Kubernetes.
    pub promised: String,
    /// The promise's rules with their documents.
    pub because: Vec<String>,
    /// The broken rules ([`Rule::id`]).
    pub rules: Vec<&'static str>,
    /// The outcome under the node's rules.
    pub found: String,
    /// The likely cause.
    pub cause: String,
    /// Why the finding does not count: a known difference of kube-proxy, or an excuse of the judged proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Cow<'static, str>>,
    /// The packet's path; empty if enough other findings of the kind have one.
    pub way: String,
}

/// Calls that could not be judged for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotJudged {
    /// Why the calls could not be judged.
    pub why: String,
    /// The number of calls.
    pub count: usize,
    /// The first call.
    pub first: String,
}

/// The result of an audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The node.
    pub node: String,
    /// The time of the snapshot.
    pub taken: String,
    /// The proxy's mode.
    pub mode: &'static str,
    /// The number of service ports.
    pub service_ports: usize,
    /// The number of frontends.
    pub frontends: usize,
    /// The number of judged calls.
    pub calls: usize,
    /// The number of calls of which Kubernetes promises nothing.
    pub no_promise: usize,
    /// The number of frontends that changed too recently to be judged.
    pub unsettled: usize,
    /// Counts per rule of Kubernetes.
    pub rules: RuleTallies,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Calls that could not be judged.
    pub not_judged: Vec<NotJudged>,
    /// Assumptions, in sentences.
    pub assumed: Vec<String>,
    /// Parts that the snapshot could not read.
    pub unread: Vec<String>,
}

impl Report {
    /// Whether all findings are known differences.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.wrong().next().is_none()
    }

    /// The findings that are not known differences.
    pub fn wrong(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.known.is_none())
    }

    /// Marks findings that break these rules (short name and reason) as known.
    pub fn excuse(&mut self, reasons: &BTreeMap<String, String>) {
        for finding in self.findings.iter_mut().filter(|finding| finding.known.is_none()) {
            let Some(why) = finding.rules.iter().find_map(|rule| reasons.get(*rule)) else { continue };
            finding.known = Some(Cow::Owned(why.clone()));
            for rule in &finding.rules {
                let tally = self.rules.entry(rule).or_default();
                let moved = finding.count.min(tally.broken);
                (tally.broken, tally.known) = (tally.broken - moved, tally.known + moved);
            }
        }
    }

    /// Whether any call was judged.
    #[must_use]
    pub fn judged(&self) -> bool {
        self.calls > 0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FindingKey {
    kind: FindingKind,
    service: String,
    protocol: &'static str,
    frontend: FrontendKind,
    cause: String,
    known: Option<&'static str>,
}

pub(super) struct Gathered<'a> {
    machines: &'a Machines,
    known: &'a KnownAddresses,
    proxy: &'a AuditedProxy,
    findings: BTreeMap<FindingKey, Finding>,
    not_judged: BTreeMap<String, NotJudged>,
    rules: RuleTallies,
    pub(super) asked: usize,
    pub(super) no_promise: usize,
    pub(super) unsettled: usize,
    /// Calls whose source was not judged, because the proxy's configuration is unknown.
    pub(super) unknown_source: usize,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(machines: &'a Machines, known: &'a KnownAddresses, proxy: &'a AuditedProxy) -> Gathered<'a> {
        Gathered {
            machines,
            known,
            proxy,
            findings: BTreeMap::new(),
            not_judged: BTreeMap::new(),
            rules: RuleTallies::new(),
            asked: 0,
            no_promise: 0,
            unsettled: 0,
            unknown_source: 0,
        }
    }

    pub(super) fn merge(&mut self, other: Gathered<'_>) {
        for (key, finding) in other.findings {
            match self.findings.get_mut(&key) {
                Some(known) => {
                    known.count += finding.count;
                    known.calls.extend(finding.calls);
                }
                None => {
                    self.findings.insert(key, finding);
                }
            }
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
        self.no_promise += other.no_promise;
        self.unsettled += other.unsettled;
        self.unknown_source += other.unknown_source;
    }

    pub(super) fn not_judged(&mut self, asked: &AuditCall<'_>, why: String) {
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
        let decided = journey.and_then(decider);
        let endpoints = ServiceEndpoints { own: &asked.frontend.endpoints, is_any: self.is_endpoint(&fault) };
        let cause = cause(&fault, decided.as_ref(), self.proxy, &endpoints);
        let kind = FindingKind::Broken(fault.kind);
        let known = known_difference(kind, asked, self.proxy, fault.found.as_ref());
        let rules = broken_by(kind, promise);
        for rule in &rules {
            let tally = self.rules.entry(rule.id()).or_default();
            *(if known.is_some() { &mut tally.known } else { &mut tally.broken }) += 1;
        }
        let because = promise.because.iter().map(ToString::to_string).collect();
        let found = fault.says;
        let way = journey.map(render::journey).unwrap_or_default();
        self.add(asked, (kind, known), cause, promise.verdict.to_string(), (because, rules), found, way);
    }

    fn is_endpoint(&self, fault: &Fault) -> bool {
        match fault.found {
            Some(PacketVerdict::Answered { at, .. } | PacketVerdict::Unanswered { at, .. }) => {
                self.known.endpoints.contains_key(&at.ip())
            }
            _ => false,
        }
    }

    pub(super) fn stale(&mut self, asked: &AuditCall<'_>, found: &Outcomes) {
        self.untouched(asked, found, "left from a service that is gone, or the service is new to the archive", None);
    }

    /// Adds a finding if rules of a service port also match packets of no service.
    pub(super) fn too_wide(&mut self, asked: &AuditCall<'_>, found: &Outcomes) {
        let decided = journey_of(found, None).and_then(decider);
        let known = known_refusal(asked, self.proxy, found, decided.as_ref());
        self.untouched(asked, found, "rules for this service's port meet it as well", known);
    }

    fn untouched(&mut self, asked: &AuditCall<'_>, found: &Outcomes, cause: &str, known: Option<&'static str>) {
        let journey = journey_of(found, None);
        let decided = journey.and_then(decider).map(|decider| decider.text).unwrap_or_default();
        let sentences = found.outcomes.iter().map(|one| render::verdict(&self.machines.network, &one.verdict));
        let says = sentences.collect::<BTreeSet<_>>().into_iter().take(3).collect::<Vec<_>>().join("; ");
        let because = vec!["no-service: what goes to no service's address and port is not touched [page reference/networking/virtual-ips]".to_owned()];
        let way = journey.map(render::journey).unwrap_or_default();
        let rules = vec![Rule::NoService];
        let tally = self.rules.entry(Rule::NoService.id()).or_default();
        *(if known.is_some() { &mut tally.known } else { &mut tally.broken }) += 1;
        let (kind, promised) = (FindingKind::StaleFrontend, "not a service".to_owned());
        self.add(asked, (kind, known), format!("{cause}: {decided}"), promised, (because, rules), says, way);
    }

    #[allow(clippy::too_many_arguments, reason = "the columns of a finding, used in two places")]
    fn add(
        &mut self,
        asked: &AuditCall<'_>,
        (kind, known): (FindingKind, Option<&'static str>),
        cause: String,
        promised: String,
        (because, rules): (Vec<String>, Vec<Rule>),
        found: String,
        way: String,
    ) {
        let key = FindingKey {
            kind,
            service: asked.frontend.service.to_string(),
            protocol: asked.frontend.protocol.name(),
            frontend: asked.frontend.kind,
            cause: cause.clone(),
            known,
        };
        let finding = self.findings.entry(key).or_insert_with(|| Finding {
            kind: kind.id(),
            title: kind.title(),
            service: asked.frontend.service.to_string(),
            protocol: asked.frontend.protocol.name(),
            frontend: name(asked.frontend.kind),
            calls: Vec::new(),
            count: 0,
            promised,
            because,
            rules: rules.iter().map(|rule| rule.id()).collect(),
            found,
            cause,
            known: known.map(Cow::Borrowed),
            way,
        });
        let call = call(asked);
        if finding.calls.last() != Some(&call) {
            finding.count += 1;
            finding.calls.push(call);
        }
    }

    pub(super) fn report(self, audit: &Audit<'_>, frontends: &[ServiceFrontend]) -> Report {
        let ports: BTreeSet<_> = frontends.iter().map(|frontend| &frontend.service).collect();
        let mut assumed: Vec<String> = self.machines.assumed.iter().cloned().collect();
        if !audit.proxy.configured {
            let sources = "how the proxy tells pods from others is not known: source addresses are not judged";
            assumed.push(format!("{sources} ({} calls)", self.unknown_source));
        }
        let unread = audit.snapshot.unread.iter().map(|one| format!("{}: {}", one.what, one.why));
        Report {
            node: audit.known.node.clone(),
            taken: audit.snapshot.taken.clone(),
            mode: audit.proxy.settings.mode.name(),
            service_ports: ports.len(),
            frontends: frontends.len(),
            calls: self.asked,
            no_promise: self.no_promise,
            unsettled: self.unsettled,
            rules: self.rules,
            findings: bounded(self.findings),
            not_judged: self.not_judged.into_values().collect(),
            assumed,
            unread: unread.collect(),
        }
    }
}

/// Bounds the number of paths; the result does not depend on the threads' order.
fn bounded(findings: BTreeMap<FindingKey, Finding>) -> Vec<Finding> {
    let mut ways: BTreeMap<FindingKind, usize> = BTreeMap::new();
    let mut all = Vec::with_capacity(findings.len());
    for (key, mut finding) in findings {
        finding.calls.sort();
        finding.calls.truncate(CALLS);
        let count = ways.entry(key.kind).or_default();
        *count += 1;
        if *count > WAYS {
            finding.way = String::new();
        }
        all.push(finding);
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

const CHANGED: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Returns the services that, or whose slices, changed less than `seconds` before the snapshot.
pub(super) fn unsettled(objects: &Objects, taken: &str, seconds: i64) -> BTreeSet<(String, String)> {
    let Ok(taken) = taken.parse::<Timestamp>() else { return BTreeSet::new() };
    let late = |time: Timestamp| taken.as_second() - time.as_second() < seconds;
    let created = |metadata: &ObjectMeta| {
        let times = [&metadata.creation_timestamp, &metadata.deletion_timestamp];
        times.into_iter().flatten().any(|Time(time)| late(*time))
    };
    let changed = |metadata: &ObjectMeta| {
        let text = metadata.annotations.as_ref().and_then(|annotations| annotations.get(CHANGED));
        text.and_then(|text| text.parse::<Timestamp>().ok()).is_some_and(late)
    };
    let name = |text: &Option<String>| text.clone().unwrap_or_default();
    let services = objects.services.iter().filter(|service| created(&service.metadata));
    let services = services.map(|service| (name(&service.metadata.namespace), name(&service.metadata.name)));
    let slices = objects.slices.iter().filter(|slice| created(&slice.metadata) || changed(&slice.metadata));
    let slices = slices.filter_map(|slice| {
        let service = slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name")?;
        Some((name(&slice.metadata.namespace), service.clone()))
    });
    services.chain(slices).collect()
}
