use std::fmt::Write as _;

use svclab_sim::render::printable;

use super::{ClusterFinding, ClusterReport, count, names, subject};
use crate::report::{code, plain};

/// Returns the report as Markdown.
#[must_use]
pub fn markdown(report: &ClusterReport) -> String {
    let mut text =
        format!("# Service proxy audit of {}\n", count(report.judged.len() + report.not_judged.len(), "node"));
    let _ = writeln!(text, "\n**{}.**", report.verdict());
    if !report.kinds.is_empty() {
        text.push_str("\n| kind | findings | nodes | meaning |\n| --- | ---: | ---: | --- |\n");
    }
    for kind in &report.kinds {
        let _ = writeln!(text, "| {} | {} | {} | {} |", kind.kind, kind.findings, kind.nodes, kind.title);
    }
    for (title, findings) in [("On every node", &report.everywhere), ("On some nodes", &report.somewhere)] {
        if !findings.is_empty() {
            let _ = writeln!(text, "\n## {title}\n");
        }
        for finding in findings {
            one(&mut text, finding, &report.nodes_of(finding));
        }
    }
    if !report.different.is_empty() {
        text.push_str("\n## Nodes that differ from most\n\n| nodes | more | fewer |\n| --- | --- | --- |\n");
    }
    for group in &report.different {
        let columns = [&group.nodes, &group.more, &group.fewer].map(|all| plain(&names(all)));
        let _ = writeln!(text, "| {} |", columns.join(" | "));
    }
    for (title, nodes) in [("Not judged", &report.not_judged), ("Judged in part", &report.incomplete)] {
        if !nodes.is_empty() {
            let _ = writeln!(text, "\n## {title}\n");
        }
        for node in nodes {
            let _ = writeln!(text, "- {}: {}", plain(&node.node), plain(&node.why));
        }
    }
    printable(&text)
}

fn one(text: &mut String, finding: &ClusterFinding, nodes: &str) {
    let example = &finding.example;
    let _ = writeln!(text, "- **{}: {}** on {}", example.kind, plain(&subject(example)), plain(nodes));
    for (name, value) in [("found", &example.found), ("likely cause", &example.cause)] {
        let _ = writeln!(text, "  - {name}: {}", code(value));
    }
}
