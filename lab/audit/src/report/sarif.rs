use serde_json::{Value, json};

use crate::audit::{Finding, FindingKind, Report};
use crate::judge::FaultKind;

/// Returns the SARIF log.
#[must_use]
pub fn sarif(report: &Report, version: &str) -> Value {
    let kinds = FaultKind::ALL.into_iter().map(FindingKind::Broken).chain([FindingKind::StaleFrontend]);
    let rules: Vec<Value> = kinds
        .map(|kind| json!({ "id": kind.id(), "shortDescription": { "text": kind.title() }, "defaultConfiguration": { "level": "error" } }))
        .collect();
    let notifications: Vec<Value> = report
        .not_judged
        .iter()
        .map(|one| json!({ "level": "warning", "message": { "text": format!("not judged: {} ({} calls)", one.why, one.count) } }))
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "svclab audit", "version": version, "rules": rules } },
            "invocations": [{ "executionSuccessful": report.judged(), "toolExecutionNotifications": notifications }],
            "properties": { "node": report.node, "mode": report.mode, "taken": report.taken, "calls": report.calls },
            "results": report.findings.iter().map(|finding| result(report, finding)).collect::<Vec<_>>(),
        }],
    })
}

fn result(report: &Report, finding: &Finding) -> Value {
    let text = format!(
        "{} {} ({}): {}. Promised: {}. Likely cause: {}.",
        finding.service, finding.protocol, finding.frontend, finding.found, finding.promised, finding.cause
    );
    let name = format!("{}/{}/{}", report.node, finding.service, finding.protocol);
    json!({
        "ruleId": finding.kind,
        "level": if finding.known.is_some() { "note" } else { "error" },
        "message": { "text": text },
        "locations": [{
            "logicalLocations": [{ "name": finding.service, "fullyQualifiedName": name, "kind": "resource" }],
        }],
        // Code hosts match alerts of two audits by fingerprint.
        "partialFingerprints": { "finding/v1": format!("{}/{}/{name}", finding.kind, finding.frontend) },
        "properties": { "calls": finding.calls, "because": finding.because, "way": finding.way },
    })
}
