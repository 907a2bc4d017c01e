use std::collections::BTreeMap;

use serde_saphyr::Spanned;
use svclab_audit::audit::{Finding, Report};

use super::execute::StepOutcome;
use super::file::{FindingFile, ServiceRef};
use crate::expect::Mismatch;
use crate::report::{Audited, BrokenRule};

const SHOWN: usize = 5;

/// Judges an audit: each expected finding must exist on at least one node; no other finding may exist. `reports` is by
/// node name.
pub(super) fn judge(wanted: &[Spanned<FindingFile>], reports: &BTreeMap<String, Report>) -> StepOutcome {
    let mut outcome = StepOutcome::default();
    let mut texts = Vec::new();
    for (node, report) in reports {
        texts.push(format!("{node}: {}", summary(report)));
        let others = report.wrong().filter(|finding| !wanted.iter().any(|one| fits(&one.value, finding)));
        outcome.broken.extend(unexpected(node, others.collect()));
    }
    let all = || reports.values().flat_map(Report::wrong);
    for missing in wanted.iter().map(|one| &one.value).filter(|one| !all().any(|finding| fits(one, finding))) {
        let on: Vec<&str> = reports.keys().map(String::as_str).collect();
        outcome
            .broken
            .push(Mismatch::new(format!("a finding {} on {}", words(missing), on.join(" or ")), "there is none"));
    }
    outcome.summary = texts.join("; ");
    outcome.audited = Some(rules(reports));
    if outcome.broken.is_empty() {
        outcome.not_judged = nothing_judged(reports);
    }
    outcome
}

/// Returns the rules of the audited calls, and one finding per broken rule, if possible one without an excuse.
fn rules(reports: &BTreeMap<String, Report>) -> Audited {
    let mut audited = Audited::default();
    for (rule, tally) in reports.values().flat_map(|report| &report.rules) {
        let entry = audited.rules.entry((*rule).to_owned()).or_default();
        *entry = entry.and(*tally);
    }
    let mut broken: BTreeMap<&'static str, BrokenRule> = BTreeMap::new();
    for (node, finding) in reports.iter().flat_map(|(node, report)| report.findings.iter().map(move |one| (node, one)))
    {
        for rule in finding.rules.iter().copied() {
            let is_better = |had: &BrokenRule| had.known.is_some() && finding.known.is_none();
            if broken.get(rule).is_none_or(is_better) {
                broken.insert(rule, broken_rule(rule, node, finding));
            }
        }
    }
    audited.broken = broken.into_values().collect();
    audited
}

fn broken_rule(rule: &'static str, node: &str, finding: &Finding) -> BrokenRule {
    BrokenRule {
        rule: rule.to_owned(),
        node: node.to_owned(),
        call: finding.calls.first().cloned().unwrap_or_default(),
        promised: finding.promised.clone(),
        found: finding.found.clone(),
        cause: finding.cause.clone(),
        known: finding.known.clone(),
        way: finding.way.clone(),
    }
}

fn nothing_judged(reports: &BTreeMap<String, Report>) -> Option<String> {
    let (node, report) = reports.iter().find(|(_, report)| report.judged == 0)?;
    let why = report.not_judged.first().map_or("there is no service", |one| one.why.as_str());
    Some(format!("no call could be judged on {node}: {why}"))
}

fn summary(report: &Report) -> String {
    let mut text = match kinds(report) {
        kinds if kinds.is_empty() => format!("no finding in {} calls", report.judged),
        kinds => kinds.join(", "),
    };
    let open: usize = report.not_judged.iter().map(|one| one.count).sum();
    if let Some(first) = report.not_judged.first().filter(|_| open > 0) {
        text.push_str(&format!(", {open} calls not judged ({})", first.why));
    }
    text
}

fn kinds(report: &Report) -> Vec<String> {
    let mut by_kind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for finding in report.wrong() {
        let known = by_kind.entry(finding.kind).or_default();
        for service in &finding.services {
            if !known.contains(&service.as_str()) {
                known.push(service);
            }
        }
    }
    by_kind.into_iter().map(|(kind, services)| format!("{kind} of {}", services.join(" and "))).collect()
}

fn unexpected(node: &str, findings: Vec<&Finding>) -> Vec<Mismatch> {
    let expected = || format!("no such finding on {node}");
    let mut broken: Vec<Mismatch> =
        findings.iter().take(SHOWN).map(|finding| Mismatch::new(expected(), one_line(finding))).collect();
    if let Some(more) = findings.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        broken.push(Mismatch::new(expected(), format!("{more} more")));
    }
    broken
}

fn one_line(finding: &Finding) -> String {
    let call = finding.calls.first().map(String::as_str).unwrap_or_default();
    format!(
        "{}: {} {} ({}), {call}: {}; {}",
        finding.kind, finding.service, finding.protocol, finding.frontend, finding.found, finding.cause
    )
}

fn fits(wanted: &FindingFile, finding: &Finding) -> bool {
    let is_of = |service: &ServiceRef| match &service.port {
        Some(_) => finding.services.contains(&service.to_string()),
        None => {
            let key = service.key.to_string();
            finding.services.iter().any(|one| one.split(':').next() == Some(key.as_str()))
        }
    };
    let causes = wanted.cause.iter().flat_map(|cause| &cause.0);
    wanted.kind.id() == finding.kind
        && wanted.service.as_ref().is_none_or(is_of)
        && causes.map(|part| part.value.0.as_str()).all(|part| finding.cause.contains(part))
}

fn words(wanted: &FindingFile) -> String {
    let service = wanted.service.iter().map(|service| format!(" of {service}"));
    let causes = wanted.cause.iter().flat_map(|cause| &cause.0);
    let causes = causes.map(|part| format!(" with the cause {:?}", part.value.0));
    let details: String = service.chain(causes).collect();
    format!("{}{details}", wanted.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::file::ExpectFile;

    fn finding(kind: &'static str, service: &str, cause: &str) -> Finding {
        Finding {
            kind,
            service: service.to_owned(),
            services: vec![service.to_owned()],
            service_count: 1,
            protocol: "TCP",
            frontend: "cluster IP",
            calls: vec!["the node → 10.96.0.1:80/TCP".to_owned()],
            count: 1,
            found: "lost".to_owned(),
            cause: cause.to_owned(),
            ..Finding::default()
        }
    }

    fn report(findings: Vec<Finding>) -> Report {
        Report { node: "node-a".to_owned(), calls: 12, judged: 12, findings, ..Report::default() }
    }

    fn judged(findings: Vec<Finding>, wanted: &str) -> (String, Vec<String>) {
        let expect: ExpectFile = serde_saphyr::from_str(&format!("findings: {wanted}")).unwrap();
        let reports = BTreeMap::from([("node-a".to_owned(), report(findings))]);
        let outcome = judge(&expect.findings.unwrap(), &reports);
        (outcome.summary, outcome.broken.iter().map(|one| format!("{}; {}", one.expected, one.seen)).collect())
    }

    #[test]
    fn a_missing_or_an_unexpected_finding_breaks_the_promise() {
        let two = || {
            vec![
                finding("dropped", "default/web:http", "a rule of Calico catches it"),
                finding("source", "shop/db", "x"),
            ]
        };
        assert_eq!(judged(Vec::new(), "[]"), ("node-a: no finding in 12 calls".to_owned(), Vec::new()));
        let right = "[{kind: dropped, service: web, cause: [Calico, catches]}, source]";
        assert_eq!(
            judged(two(), right),
            ("node-a: dropped of default/web:http, source of shop/db".to_owned(), Vec::new())
        );
        assert!(judged(two(), "[{kind: dropped, service: 'web:http'}, {kind: source, service: shop/db}]").1.is_empty());
        let other = judged(two(), "[{kind: dropped, service: 'web:https'}, source]").1;
        let unexpected = "no such finding on node-a; dropped: default/web:http TCP (cluster IP), the node → 10.96.0.1:80/TCP: lost; a rule of Calico catches it";
        assert_eq!(other, [unexpected, "a finding dropped of default/web:https on node-a; there is none"]);
        assert_eq!(
            judged(Vec::new(), "[{kind: share, cause: x}]").1,
            ["a finding share with the cause \"x\" on node-a; there is none"]
        );
        assert_eq!(judged((0..9).map(|_| finding("share", "default/a", "")).collect(), "[]").1.len(), SHOWN + 1);
    }

    #[test]
    fn a_known_finding_is_ignored() {
        let known = Finding { known: Some("it does so everywhere".into()), ..finding("refusal", "default/web", "") };
        assert_eq!(judged(vec![known.clone()], "[]").1, [""; 0]);
        assert_eq!(judged(vec![known], "[refusal]").1.len(), 1);
    }

    #[test]
    fn an_unknown_kind_of_finding_is_an_error() {
        let wrong = |text: &str| serde_saphyr::from_str::<ExpectFile>(text).unwrap_err().to_string();
        assert!(wrong("findings: [lost]").contains("unknown kind of finding `lost`, expected one of not-translated"));
        assert!(wrong("findings: [{kind: dropped, service: 'web:'}]").contains("expected a service"));
        assert!(wrong("findings: [{kind: dropped, servise: web}]").contains("servise"));
    }

    #[test]
    fn an_audit_without_calls_is_not_judged() {
        let reports = BTreeMap::from([("node-a".to_owned(), Report { calls: 0, judged: 0, ..report(Vec::new()) })]);
        let why = judge(&[], &reports).not_judged;
        assert_eq!(why.as_deref(), Some("no call could be judged on node-a: there is no service"));
    }
}
