//! What the auditor knows, as its HTTP server and its metrics read it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use svclab_audit::audit::Report;

use super::confirmation;

/// The most findings of a served report. Metrics count all.
const FINDINGS: usize = 1000;
/// The most series per Service.
const SERVICE_SERIES: usize = 100;

#[derive(Debug, Clone, Default)]
pub(super) struct SharedStatus(Arc<Mutex<AuditStatus>>);

impl SharedStatus {
    pub(super) fn lock(&self) -> MutexGuard<'_, AuditStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct AuditStatus {
    /// The last report, with at most [`FINDINGS`] findings.
    pub(super) report: Option<Arc<Report>>,
    counts: FindingCounts,
    /// When the node was last read and known to be as the report describes it.
    pub(super) checked: Option<Instant>,
    /// Why the last reading was not judged.
    pub(super) failure: Option<String>,
    duration: Duration,
    audits: u64,
    failures: u64,
    pub(super) pending: usize,
    pub(super) events: EventCounts,
}

/// Numbers of Events.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EventCounts {
    pub(super) sent: u64,
    pub(super) failed: u64,
    pub(super) omitted: u64,
}

#[derive(Debug, Clone, Default)]
struct FindingCounts {
    /// By kind and mode; a kind that was found once keeps its series, at 0.
    by_kind: BTreeMap<(&'static str, &'static str), usize>,
    by_service: BTreeMap<(String, &'static str), usize>,
    /// Services that findings count without their names.
    unlisted: usize,
}

impl AuditStatus {
    pub(super) fn publish(&mut self, mut report: Report, duration: Duration, now: Instant) {
        self.counts.take(&report);
        let omitted = report.findings.len().saturating_sub(FINDINGS);
        report.findings.truncate(FINDINGS);
        if omitted > 0 {
            report.unread.push(format!("{omitted} more findings are not listed here"));
        }
        self.report = Some(Arc::new(report));
        (self.duration, self.audits, self.failure) = (duration, self.audits + 1, None);
        self.checked = Some(now);
    }

    /// The node is as it was at the last audit.
    pub(super) fn unchanged(&mut self, now: Instant) {
        if self.failure.is_none() {
            self.checked = Some(now);
        }
    }

    pub(super) fn fail(&mut self, why: String) {
        (self.failure, self.failures) = (Some(why), self.failures + 1);
    }

    /// Returns why the node's state is not known to be audited: nothing was judged for longer than `limit`.
    pub(super) fn unhealthy(&self, now: Instant, limit: Duration) -> Option<String> {
        let age = self.checked.map(|checked| now.duration_since(checked));
        if age.is_some_and(|age| age <= limit) {
            return None;
        }
        let since = match age {
            Some(age) => format!("the last audit is {} s old", age.as_secs()),
            None => "no audit yet".to_owned(),
        };
        Some(self.failure.as_ref().map_or(since.clone(), |why| format!("{since}: {why}")))
    }

    /// Returns the metrics in Prometheus' text format.
    pub(super) fn metrics(&self, now: Instant) -> String {
        let mut text = MetricText::default();
        text.family("svclab_audit_findings", "gauge", "Findings of the last audit, by kind and mode of the proxy.");
        for ((kind, mode), number) in &self.counts.by_kind {
            text.sample(&[("kind", kind), ("mode", mode)], number);
        }
        text.family("svclab_audit_service_findings", "gauge", "Findings of a Service, for the first services by name.");
        for ((service, kind), number) in self.counts.by_service.iter().take(SERVICE_SERIES) {
            text.sample(&[("service", service), ("kind", kind)], number);
        }
        text.family(
            "svclab_audit_service_findings_omitted",
            "gauge",
            "Findings of Services that svclab_audit_service_findings leaves out.",
        );
        text.sample(&[], self.counts.by_service.len().saturating_sub(SERVICE_SERIES) + self.counts.unlisted);
        if let Some(report) = &self.report {
            text.report(report);
        }
        if let Some(checked) = self.checked {
            let name = "svclab_audit_age_seconds";
            text.family(name, "gauge", "Seconds since the node was last read and found audited as it is.");
            text.sample(&[], format!("{:.3}", now.duration_since(checked).as_secs_f64()));
        }
        text.family("svclab_audit_duration_seconds", "gauge", "Duration of the last audit, collecting included.");
        text.sample(&[], format!("{:.3}", self.duration.as_secs_f64()));
        text.family("svclab_audit_pending_findings", "gauge", "Findings that a second reading has not confirmed.");
        text.sample(&[], self.pending);
        text.family("svclab_audit_node_judged", "gauge", "1 if calls of the last reading were judged.");
        let last = self.report.as_ref().filter(|_| self.failure.is_none());
        text.sample(&[], u8::from(last.is_some_and(|report| report.judged > 0)));
        let name = "svclab_audit_complete";
        text.family(name, "gauge", "1 if every call was judged, with everything that it may depend on.");
        text.sample(&[], u8::from(last.is_some_and(|report| report.is_complete())));
        text.family("svclab_audits_total", "counter", "Audits, by result.");
        text.sample(&[("result", "done")], self.audits);
        text.sample(&[("result", "failed")], self.failures);
        text.family("svclab_audit_events_total", "counter", "Events about Services, by result.");
        let events = [("sent", self.events.sent), ("failed", self.events.failed), ("omitted", self.events.omitted)];
        events.iter().for_each(|(result, number)| text.sample(&[("result", result)], number));
        text.process();
        text.out
    }
}

impl FindingCounts {
    fn take(&mut self, report: &Report) {
        self.by_kind.values_mut().for_each(|number| *number = 0);
        self.by_service.clear();
        self.unlisted = 0;
        for finding in report.wrong() {
            *self.by_kind.entry((finding.kind, report.mode)).or_default() += 1;
            for (kind, service) in confirmation::ids_of(finding) {
                *self.by_service.entry((service, kind)).or_default() += 1;
            }
            self.unlisted += finding.service_count.saturating_sub(finding.services.len());
        }
    }
}

#[derive(Default)]
struct MetricText {
    out: String,
    name: String,
}

impl MetricText {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        name.clone_into(&mut self.name);
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.out.push_str(&self.name);
        if !labels.is_empty() {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let _ = write!(self.out, "{{{}}}", labels.join(","));
        }
        let _ = writeln!(self.out, " {value}");
    }

    fn report(&mut self, report: &Report) {
        self.family("svclab_audit_calls", "gauge", "Calls of the last audit, by whether they could be judged.");
        self.sample(&[("result", "judged")], report.judged);
        self.sample(&[("result", "not_judged")], report.calls.saturating_sub(report.judged));
        self.sample(&[("result", "no_promise")], report.no_promise);
        let name = "svclab_audit_unsettled_addresses";
        self.family(name, "gauge", "Addresses whose Service changed too recently: the proxy may not have applied it.");
        self.sample(&[], report.unsettled);
        self.family("svclab_audit_service_ports", "gauge", "Service ports of the last audit.");
        self.sample(&[], report.service_ports);
    }

    /// The process's own figures, under the names of Prometheus' client libraries.
    fn process(&mut self) {
        let Ok(stat) = procfs::process::Process::myself().and_then(|process| process.stat()) else { return };
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        self.family("process_resident_memory_bytes", "gauge", "Resident memory.");
        self.sample(&[], stat.rss * procfs::page_size());
        self.family("process_cpu_seconds_total", "counter", "Processor time, with that of the tools that it ran.");
        let children = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
        self.sample(&[], format!("{:.2}", seconds(stat.utime + stat.stime + children)));
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
pub(super) mod tests {
    use svclab_audit::audit::Finding;

    use super::*;

    pub(in super::super) fn report(services: &[&str]) -> Report {
        let finding = |service: &&str| Finding {
            kind: "dropped",
            title: "Packets are dropped that should be delivered",
            service: (*service).to_owned(),
            services: vec![(*service).to_owned()],
            service_count: 1,
            protocol: "TCP",
            frontend: "cluster IP",
            calls: vec!["pod default/a → 10.96.0.1:80/TCP".to_owned()],
            count: 3,
            cause: "-A FORWARD -j DROP".to_owned(),
            ..Finding::default()
        };
        Report {
            node: "node-a".to_owned(),
            mode: "iptables",
            calls: 12,
            judged: 10,
            unsettled: 4,
            findings: services.iter().map(finding).collect(),
            ..Report::default()
        }
    }

    fn value(text: &str, sample: &str) -> Option<String> {
        text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')).map(str::to_owned)
    }

    #[test]
    fn metrics_follow_the_findings_and_a_kind_that_is_gone_is_zero() {
        let (mut status, start) = (AuditStatus::default(), Instant::now());
        status.publish(report(&["shop/web:http", "shop/we\"ird\\\n"]), Duration::from_millis(1500), start);
        let later = start + Duration::from_secs(7);
        let text = status.metrics(later);
        let is =
            |sample: &str, wanted: &str| assert_eq!(value(&text, sample).as_deref(), Some(wanted), "{sample}: {text}");
        is(r#"svclab_audit_findings{kind="dropped",mode="iptables"}"#, "2");
        is(r#"svclab_audit_service_findings{service="shop/web:http",kind="dropped"}"#, "1");
        is(r#"svclab_audit_service_findings{service="shop/we\"ird\\\n",kind="dropped"}"#, "1");
        is(r#"svclab_audit_calls{result="judged"}"#, "10");
        is(r#"svclab_audit_calls{result="not_judged"}"#, "2");
        is("svclab_audit_unsettled_addresses", "4");
        is("svclab_audit_age_seconds", "7.000");
        is("svclab_audit_duration_seconds", "1.500");
        is("svclab_audit_node_judged", "1");
        assert!(value(&text, "process_resident_memory_bytes").is_some());
        status.publish(report(&[]), Duration::ZERO, later);
        let text = status.metrics(later);
        assert_eq!(value(&text, r#"svclab_audit_findings{kind="dropped",mode="iptables"}"#).as_deref(), Some("0"));
        assert!(!text.contains("service="));
    }

    #[test]
    fn findings_and_series_are_bounded() {
        let names: Vec<String> = (0..3000).map(|number| format!("shop/s{number}")).collect();
        let mut status = AuditStatus::default();
        status.publish(report(&names.iter().map(String::as_str).collect::<Vec<_>>()), Duration::ZERO, Instant::now());
        let served = status.report.as_ref().unwrap();
        assert_eq!((served.findings.len(), served.unread.len()), (FINDINGS, 1));
        let text = status.metrics(Instant::now());
        assert_eq!(text.matches("svclab_audit_service_findings{").count(), SERVICE_SERIES);
        assert_eq!(value(&text, "svclab_audit_service_findings_omitted").as_deref(), Some("2900"));
        assert_eq!(value(&text, r#"svclab_audit_findings{kind="dropped",mode="iptables"}"#).as_deref(), Some("3000"));
    }

    #[test]
    fn an_auditor_is_healthy_while_it_audits_and_says_why_it_does_not() {
        let (mut status, start, limit) = (AuditStatus::default(), Instant::now(), Duration::from_secs(60));
        assert_eq!(status.unhealthy(start, limit).as_deref(), Some("no audit yet"));
        status.fail("objects: the API refuses (403)".to_owned());
        assert_eq!(status.unhealthy(start, limit).as_deref(), Some("no audit yet: objects: the API refuses (403)"));
        status.publish(report(&["shop/web"]), Duration::ZERO, start);
        assert_eq!(status.unhealthy(start + limit, limit), None, "findings are no reason");
        status.fail("nft: not found".to_owned());
        status.unchanged(start + limit);
        let late = status.unhealthy(start + limit * 2, limit);
        assert_eq!(late.as_deref(), Some("the last audit is 120 s old: nft: not found"));
        assert_eq!(value(&status.metrics(start), "svclab_audit_node_judged").as_deref(), Some("0"));
    }
}
