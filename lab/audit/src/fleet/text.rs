use std::fmt::Write as _;

use svclab_sim::render::printable;

use super::{ClusterFinding, ClusterReport, UnjudgedNode, count, names, subject};

/// Returns the report for a terminal: counts, findings of every node, findings of some, and nodes that differ.
#[must_use]
pub fn text(report: &ClusterReport) -> String {
    let modes = report.modes.iter().map(|(mode, nodes)| format!("{} in {mode} mode", count(*nodes, "node")));
    let mut text = format!("{}\n", modes.collect::<Vec<_>>().join(", "));
    for kind in &report.kinds {
        let nodes = count(kind.nodes, "node");
        let _ = writeln!(text, "  {:>5}  {:<18} {} (on {nodes})", kind.findings, kind.kind, kind.title);
    }
    if !report.everywhere.is_empty() {
        text.push_str("\non every node:\n");
        report.everywhere.iter().for_each(|finding| one(&mut text, finding, None));
    }
    if !report.somewhere.is_empty() {
        text.push_str("\non some nodes:\n");
        report.somewhere.iter().for_each(|finding| one(&mut text, finding, Some(&report.nodes_of(finding))));
    }
    if !report.different.is_empty() {
        text.push_str("\nnodes that differ from most:\n");
    }
    for group in &report.different {
        let _ = writeln!(text, "  {}", names(&group.nodes));
        for (what, findings) in [("has", &group.more), ("has not", &group.fewer)] {
            if !findings.is_empty() {
                let _ = writeln!(text, "    {what:<9} {}", names(findings));
            }
        }
    }
    nodes(&mut text, "not judged", &report.not_judged);
    nodes(&mut text, "judged in part", &report.incomplete);
    let _ = writeln!(text, "\n{}", report.verdict());
    printable(&text)
}

fn one(text: &mut String, finding: &ClusterFinding, nodes: Option<&str>) {
    let example = &finding.example;
    let _ = writeln!(text, "  {}: {}", example.kind, subject(example));
    if let Some(nodes) = nodes {
        let _ = writeln!(text, "    nodes     {nodes}");
    }
    for (name, value) in [("call", example.calls.first()), ("promised", Some(&example.promised))] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            let _ = writeln!(text, "    {name:<9} {value}");
        }
    }
    let _ = writeln!(text, "    found     {}\n    cause     {}", example.found, example.cause);
}

fn nodes(text: &mut String, title: &str, all: &[UnjudgedNode]) {
    if !all.is_empty() {
        let _ = writeln!(text, "\n{title}:");
    }
    for node in all {
        let _ = writeln!(text, "  {}: {}", node.node, node.why);
    }
}
