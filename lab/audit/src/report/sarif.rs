use serde_json::{Value, json};

use super::{gaps, subject};
use crate::audit::{Finding, FindingKind, Report};

/// Returns the SARIF log.
#[must_use]
pub fn sarif(report: &Report, version: &str) -> Value {
    let rules: Vec<Value> = FindingKind::all()
        .map(|kind| json!({ "id": kind.id(), "shortDescription": { "text": kind.title() }, "defaultConfiguration": { "level": "error" } }))
        .collect();
    let gaps = gaps(report).into_iter().map(|gap| format!("not judged: {gap}"));
    let calls = report.not_judged.iter().map(|one| format!("not judged: {} ({} calls)", one.why, one.count));
    let not_asked = report.not_asked.iter().map(|what| format!("not asked: {what}"));
    let notification = |text| json!({ "level": "warning", "message": { "text": text } });
    let notifications: Vec<Value> = gaps.chain(calls).chain(not_asked).map(notification).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "svclab audit", "version": version, "rules": rules } },
            "invocations": [{ "executionSuccessful": report.is_complete(), "toolExecutionNotifications": notifications }],
            "properties": { "node": report.node, "mode": report.mode, "taken": report.taken, "calls": report.calls, "judged": report.judged },
            "results": report.findings.iter().map(|finding| result(report, finding)).collect::<Vec<_>>(),
        }],
    })
}

fn result(report: &Report, finding: &Finding) -> Value {
    let text = format!(
        "{}: {}. Promised: {}. Likely cause: {}.",
        subject(finding),
        finding.found,
        finding.promised,
        finding.cause
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
        "properties": { "services": finding.services, "calls": finding.calls, "because": finding.because, "way": finding.way },
    })
}
