//! The report of an audit: findings, one per service port, kind and cause, or one per cause that concerns the whole node.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::coverage::Coverage;
use super::rules::RuleTallies;
use crate::judge::FaultKind;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// A broken promise.
    Broken(FaultKind),
    /// Rules serve an address and port that no service has.
    StaleFrontend,
    /// The connection table is full.
    ConntrackFull,
}

impl FindingKind {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = FindingKind> {
        FaultKind::ALL
            .into_iter()
            .map(FindingKind::Broken)
            .chain([FindingKind::StaleFrontend, FindingKind::ConntrackFull])
    }

    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            FindingKind::Broken(kind) => kind.id(),
            FindingKind::StaleFrontend => "stale-frontend",
            FindingKind::ConntrackFull => "conntrack-full",
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
            FindingKind::Broken(FaultKind::AffinityAcrossPorts) => "Ports of a Service send a client to different pods",
            FindingKind::StaleFrontend => "An address and port are served that no service has",
            FindingKind::ConntrackFull => "The connection table is full, and new connections are dropped",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// A fault of the node's rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// [`FindingKind::id`].
    pub kind: &'static str,
    /// [`FindingKind::title`].
    pub title: &'static str,
    /// The service port, or a stale frontend; of several, the first.
    pub service: String,
    /// The first service ports that the cause breaks: one, unless the cause is the whole node's.
    pub services: Vec<String>,
    /// The number of service ports.
    pub service_count: usize,
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
    /// The broken rules ([`svclab_oracle::Rule::id`]).
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

impl Finding {
    /// Whether another audit's finding is about the same fault. The cause is left out: it has numbers of rules, which
    /// change.
    #[must_use]
    pub fn is_same(&self, other: &Finding) -> bool {
        self.kind == other.kind && self.services.iter().any(|service| other.services.contains(service))
    }
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
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
    /// The number of calls of which Kubernetes promises something.
    pub calls: usize,
    /// Of these, the calls that were judged in full.
    pub judged: usize,
    /// The number of calls of which Kubernetes promises nothing.
    pub no_promise: usize,
    /// The number of frontends that changed too recently to be judged.
    pub unsettled: usize,
    /// Counts per rule of Kubernetes.
    pub rules: RuleTallies,
    /// Which rules of the proxy the calls met.
    pub coverage: Coverage,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Calls that could not be judged.
    pub not_judged: Vec<NotJudged>,
    /// What the audit did not look at although an outcome may depend on it, in sentences.
    pub incomplete: Vec<String>,
    /// Kinds of calls for which the snapshot shows no caller or address, in sentences.
    pub not_asked: Vec<String>,
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

    /// Whether every call was judged, and everything that an outcome may depend on was looked at.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.calls > 0 && self.judged == self.calls && self.incomplete.is_empty()
    }
}
