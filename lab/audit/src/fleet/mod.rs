//! One report of many nodes: what every node breaks alike, what some break, and which nodes differ from their peers.
//! Takes one node's report at a time, and keeps one example of each finding.

mod markdown;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::audit::{Finding, Report};

pub use markdown::markdown;
pub use text::text;

/// The most calls of an example.
const CALLS: usize = 3;

/// Collects the reports of a cluster's nodes.
#[derive(Debug, Default)]
pub struct ClusterAudit {
    judged: Vec<JudgedNode>,
    unjudged: Vec<UnjudgedNode>,
    findings: BTreeMap<FindingKey, FoundOnNodes>,
}

#[derive(Debug)]
struct JudgedNode {
    name: String,
    mode: &'static str,
    gaps: Vec<String>,
}

/// What findings of two nodes have in common if they are alike. A cause of the whole node counts without its numbers,
/// which are those of rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum FindingKey {
    Node { kind: &'static str, cause: String },
    Service { kind: &'static str, service: String, protocol: &'static str, frontend: &'static str },
}

#[derive(Debug)]
struct FoundOnNodes {
    example: Finding,
    /// Indices of judged nodes, ascending.
    nodes: Vec<usize>,
    calls: usize,
}

/// A node whose archive could not be judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnjudgedNode {
    /// The node, or its archive.
    pub node: String,
    /// The reason.
    pub why: String,
}

/// The report of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// The judged nodes.
    pub judged: Vec<String>,
    /// The number of judged nodes in each mode.
    pub modes: BTreeMap<&'static str, usize>,
    /// Kinds of findings, the most frequent first.
    pub kinds: Vec<KindCount>,
    /// Findings of every judged node.
    pub everywhere: Vec<ClusterFinding>,
    /// Findings of some nodes, by service.
    pub somewhere: Vec<ClusterFinding>,
    /// Nodes whose findings differ from those of most nodes.
    pub different: Vec<DifferentNodes>,
    /// Nodes that could not be judged.
    pub not_judged: Vec<UnjudgedNode>,
    /// Judged nodes with calls that could not be judged, or parts that were not looked at.
    pub incomplete: Vec<UnjudgedNode>,
}

/// The findings of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KindCount {
    /// The kind.
    pub kind: &'static str,
    /// The kind's meaning.
    pub title: &'static str,
    /// The number of findings, each counted once for the cluster.
    pub findings: usize,
    /// The number of nodes with such a finding.
    pub nodes: usize,
}

/// A finding, with the nodes that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFinding {
    /// The finding on the first node, without the packet's path.
    #[serde(flatten)]
    pub example: Finding,
    /// The nodes.
    pub nodes: Vec<String>,
    /// The number of calls on all nodes.
    pub all_calls: usize,
}

/// Nodes with the same difference from most nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DifferentNodes {
    /// The nodes.
    pub nodes: Vec<String>,
    /// Findings that most nodes do not have.
    pub more: Vec<String>,
    /// Findings that most nodes have, and these do not.
    pub fewer: Vec<String>,
}

impl ClusterAudit {
    /// Adds the report of a node, or why it has none. `archive` names a node whose report does not, or that is there twice.
    pub fn add(&mut self, archive: &str, report: Result<Report, String>) {
        let report = match report {
            Ok(report) if report.judged > 0 => report,
            Ok(report) => {
                let why = if report.incomplete.is_empty() {
                    "no call could be judged".to_owned()
                } else {
                    report.incomplete.join("; ")
                };
                let node = self.name(&report.node, archive);
                return self.unjudged.push(UnjudgedNode { node, why });
            }
            Err(why) => return self.unjudged.push(UnjudgedNode { node: archive.to_owned(), why }),
        };
        let node = self.judged.len();
        let name = self.name(&report.node, archive);
        self.judged.push(JudgedNode { name, mode: report.mode, gaps: gaps(&report) });
        for finding in report.findings.into_iter().filter(|finding| finding.known.is_none()) {
            let (key, count) = (FindingKey::of(&finding), finding.count);
            let found = self.findings.entry(key).or_insert_with(|| FoundOnNodes::new(finding));
            found.calls += count;
            if found.nodes.last() != Some(&node) {
                found.nodes.push(node);
            }
        }
    }

    /// Returns the cluster's report.
    #[must_use]
    pub fn report(self) -> ClusterReport {
        let all = self.judged.len();
        let mut modes = BTreeMap::new();
        self.judged.iter().for_each(|node| *modes.entry(node.mode).or_default() += 1);
        let incomplete = self.judged.iter().filter(|node| !node.gaps.is_empty());
        let (mut everywhere, mut somewhere) = (Vec::new(), Vec::new());
        for found in self.findings.values() {
            let finding = ClusterFinding {
                example: found.example.clone(),
                nodes: found.nodes.iter().map(|node| self.judged[*node].name.clone()).collect(),
                all_calls: found.calls,
            };
            // A single node has no peers.
            if found.nodes.len() == all && all > 1 { everywhere.push(finding) } else { somewhere.push(finding) }
        }
        somewhere.sort_by(|a, b| a.example.service.cmp(&b.example.service));
        ClusterReport {
            modes,
            kinds: self.kinds(),
            everywhere,
            somewhere,
            different: self.different(),
            incomplete: incomplete
                .map(|node| UnjudgedNode { node: node.name.clone(), why: node.gaps.join("; ") })
                .collect(),
            judged: self.judged.into_iter().map(|node| node.name).collect(),
            not_judged: self.unjudged,
        }
    }

    fn name(&self, node: &str, archive: &str) -> String {
        let is_there = self.judged.iter().any(|other| other.name == node);
        if node.is_empty() || is_there { archive.to_owned() } else { node.to_owned() }
    }

    fn kinds(&self) -> Vec<KindCount> {
        let mut kinds: BTreeMap<&'static str, (&'static str, usize, BTreeSet<usize>)> = BTreeMap::new();
        for found in self.findings.values() {
            let (title, findings, nodes) = kinds.entry(found.example.kind).or_default();
            *title = found.example.title;
            *findings += 1;
            nodes.extend(&found.nodes);
        }
        let count = |(kind, (title, findings, nodes)): (_, (_, _, BTreeSet<usize>))| KindCount {
            kind,
            title,
            findings,
            nodes: nodes.len(),
        };
        let mut kinds: Vec<KindCount> = kinds.into_iter().map(count).collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.findings));
        kinds
    }

    /// Groups nodes by their findings. The largest group is what most nodes have; of two, the one with fewer findings.
    fn different(&self) -> Vec<DifferentNodes> {
        let mut of_nodes: Vec<BTreeSet<&FindingKey>> = vec![BTreeSet::new(); self.judged.len()];
        for (key, found) in &self.findings {
            found.nodes.iter().for_each(|node| {
                of_nodes[*node].insert(key);
            });
        }
        let mut groups: BTreeMap<&BTreeSet<&FindingKey>, Vec<usize>> = BTreeMap::new();
        for (node, keys) in of_nodes.iter().enumerate() {
            groups.entry(keys).or_default().push(node);
        }
        let most = groups.iter().max_by_key(|(keys, nodes)| (nodes.len(), std::cmp::Reverse(keys.len())));
        let Some((most, _)) = most.map(|(keys, nodes)| ((*keys).clone(), nodes.len())) else { return Vec::new() };
        let others = groups.into_iter().filter(|(keys, _)| **keys != most);
        let names = |nodes: Vec<usize>| nodes.into_iter().map(|node| self.judged[node].name.clone()).collect();
        let mut different: Vec<DifferentNodes> = others
            .map(|(keys, nodes)| DifferentNodes {
                nodes: names(nodes),
                more: keys.difference(&most).map(|key| self.findings[*key].label()).collect(),
                fewer: most.difference(keys).map(|key| self.findings[*key].label()).collect(),
            })
            .collect();
        different.sort_by(|a, b| a.nodes.cmp(&b.nodes));
        different
    }
}

impl FindingKey {
    fn of(finding: &Finding) -> FindingKey {
        if finding.service_count == 1 {
            FindingKey::Service {
                kind: finding.kind,
                service: finding.service.clone(),
                protocol: finding.protocol,
                frontend: finding.frontend,
            }
        } else {
            let cause = finding.cause.replace(|char: char| char.is_ascii_digit(), "");
            FindingKey::Node { kind: finding.kind, cause }
        }
    }
}

impl FoundOnNodes {
    fn new(mut example: Finding) -> FoundOnNodes {
        example.way = String::new();
        example.calls.truncate(CALLS);
        FoundOnNodes { example, nodes: Vec::new(), calls: 0 }
    }

    fn label(&self) -> String {
        format!("{}: {}", self.example.kind, subject(&self.example))
    }
}

impl ClusterReport {
    /// Whether no node has a finding.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.everywhere.is_empty() && self.somewhere.is_empty()
    }

    /// Whether every call of every node was judged.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.judged.is_empty() && self.not_judged.is_empty() && self.incomplete.is_empty()
    }

    fn verdict(&self) -> String {
        let all = self.judged.len() + self.not_judged.len();
        let judged = format!("judged {} of {}", self.judged.len(), count(all, "node"));
        if self.is_clean() {
            let open = if self.is_complete() { "nothing is wrong" } else { "nothing is wrong in what was judged" };
            return format!("{judged}: {open}");
        }
        let mut parts = Vec::new();
        if !self.everywhere.is_empty() {
            parts.push(format!("{} on every node", count(self.everywhere.len(), "finding")));
        }
        if !self.somewhere.is_empty() {
            parts.push(format!("{} on some", count(self.somewhere.len(), "finding")));
        }
        format!("{judged}: {}", parts.join(", "))
    }

    /// The nodes of a finding; those without it, if they are few.
    fn nodes_of(&self, finding: &ClusterFinding) -> String {
        let without: Vec<&String> = self.judged.iter().filter(|node| !finding.nodes.contains(node)).collect();
        if without.is_empty() {
            "every node".to_owned()
        } else if without.len() * 2 < finding.nodes.len() {
            format!("all but {}", names(without))
        } else {
            names(&finding.nodes)
        }
    }
}

fn gaps(report: &Report) -> Vec<String> {
    let mut gaps = report.incomplete.clone();
    if report.judged < report.calls {
        gaps.push(format!("judged {} of {}", report.judged, count(report.calls, "call")));
    }
    gaps
}

fn subject(finding: &Finding) -> String {
    match finding.service_count {
        0 => finding.service.clone(),
        1 => format!("{} {} ({})", finding.service, finding.protocol, finding.frontend),
        many => format!("{} ({} for example)", count(many, "service port"), finding.service),
    }
}

fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// The most names in a line.
const NAMES: usize = 10;

fn names<'a>(all: impl IntoIterator<Item = &'a String, IntoIter: ExactSizeIterator>) -> String {
    let all = all.into_iter();
    let more = all.len().saturating_sub(NAMES);
    let shown = all.take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
