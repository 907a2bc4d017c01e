//! Names and labels are kube-proxy's, so that its dashboards work, or begin with `svcproxy_`. There is no global
//! registry.

mod at_scrape;
mod build;
mod by_mode;
pub mod localhost;
mod pending;
mod reading;
pub mod relays;
mod requests;
pub mod rules;
mod scrapes;
mod server;
mod slis;
pub mod traffic;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::core::Collector;
use prometheus::{
    Encoder, Error, GaugeVec, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
};

use crate::config::Mode;
use crate::model::{Batch, Change, Family};
use crate::plan::summary::PlanSummary;
use crate::ruleset::SyncReport;
use build::RegistryBuilder;
use by_mode::ByMode;

pub(crate) use at_scrape::as_value;
pub use at_scrape::{AtScrape, Samples};
pub use pending::Pending;
pub use requests::{ApiFailures, MeasureRequests, MeasuredBody, Requests, RequestsTo};
pub use server::{MetricsServer, StaticPages};
pub use slis::{Slis, process_start};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    sync_duration: HistogramVec,
    full_sync_duration: HistogramVec,
    partial_sync_duration: HistogramVec,
    last_timestamp: GaugeVec,
    last_queued_timestamp: GaugeVec,
    endpoint_changes_pending: IntGauge,
    endpoint_changes: IntCounter,
    service_changes_pending: IntGauge,
    service_changes: IntCounter,
    by_mode: ByMode,
    no_local_endpoints: IntGaugeVec,
    network_programming: HistogramVec,
    conntrack_deleted: IntCounterVec,
    conntrack_duration: HistogramVec,
    healthz: IntCounterVec,
    livez: IntCounterVec,
    requests: Requests,
    api_failures: ApiFailures,
    hints_ignored: IntGaugeVec,
    disputed: IntGaugeVec,
    refused: IntGaugeVec,
}

impl Metrics {
    pub fn new(families: &[Family]) -> Result<Metrics, Error> {
        Metrics::of_mode(Mode::Iptables, families)
    }

    /// The mode's metrics start at zero for these families.
    #[rustfmt::skip]
    pub fn of_mode(mode: Mode, families: &[Family]) -> Result<Metrics, Error> {
        let build = RegistryBuilder::default();
        let family = &["ip_family"][..];
        let metrics = Metrics {
            sync_duration: build.histograms("kubeproxy_sync_proxy_rules_duration_seconds", "Duration of syncs, full and partial", sync_buckets()?, family)?,
            full_sync_duration: build.histograms("kubeproxy_sync_full_proxy_rules_duration_seconds", "Duration of full syncs", sync_buckets()?, family)?,
            partial_sync_duration: build.histograms("kubeproxy_sync_partial_proxy_rules_duration_seconds", "Duration of partial syncs", sync_buckets()?, family)?,
            last_timestamp: build.times("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "When the rules were last synced", family)?,
            last_queued_timestamp: build.times("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "When a sync was last queued", family)?,
            endpoint_changes_pending: build.gauge("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "Changes of EndpointSlices that wait for a sync")?,
            endpoint_changes: build.counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Changes of EndpointSlices")?,
            service_changes_pending: build.gauge("kubeproxy_sync_proxy_rules_service_changes_pending", "Changes of Services that wait for a sync")?,
            service_changes: build.counter("kubeproxy_sync_proxy_rules_service_changes_total", "Changes of Services")?,
            by_mode: ByMode::new(&build, mode)?,
            no_local_endpoints: build.gauges("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "Service ports with policy Local that have endpoints, but none on this node", &["ip_family", "traffic_policy"])?,
            network_programming: build.histograms("kubeproxy_network_programming_duration_seconds", "Time from a change of a Service's pods to the rules for it", programming_buckets(), family)?,
            conntrack_deleted: build.counters("kubeproxy_conntrack_reconciler_deleted_entries_total", "Conntrack entries of stale flows that were deleted", family)?,
            conntrack_duration: build.histograms("kubeproxy_conntrack_reconciler_sync_duration_seconds", "Time taken to look for stale flows", sync_buckets()?, family)?,
            healthz: build.counters("kubeproxy_proxy_healthz_total", "Answers of /healthz", &["code"])?,
            livez: build.counters("kubeproxy_proxy_livez_total", "Answers of /livez", &["code"])?,
            requests: build.requests()?,
            api_failures: ApiFailures::new(build.counters("svcproxy_api_failures_total", "Attempts to list or watch the API server that failed", &["resource", "reason"])?),
            hints_ignored: build.gauges("svcproxy_topology_hints_ignored", "Service ports whose endpoints have topology hints that are not followed on this node", &["ip_family", "reason"])?,
            refused: build.gauges("svcproxy_refused_service_ports", "Service ports of which the kernel refuses rules", family)?,
            disputed: build.gauges("svcproxy_disputed_frontends", "Addresses with a port, node ports and health check node ports that a Service asks for and another has", family)?,
            registry: build.finish()?,
        };
        families.iter().for_each(|family| metrics.begin_at_zero(*family));
        Ok(metrics)
    }

    /// Starts counters at zero: an absent counter makes rates over its first increase wrong.
    pub fn begin_at_zero(&self, family: Family) {
        let name = family.as_str();
        self.conntrack_deleted.with_label_values(&[name]).reset();
        self.by_mode.begin_at_zero(family);
        self.service_ports(family, &PlanSummary::default());
        self.disputed(family, 0);
        self.refused(family, 0);
    }

    pub fn register(&self, collector: impl Collector + 'static) -> Result<(), Error> {
        self.registry.register(Box::new(collector))
    }

    /// Returns all metrics as text; slow if values are in the kernel.
    pub fn text(&self) -> Result<String, Error> {
        text_of(&self.registry)
    }

    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    pub fn api_failures(&self) -> ApiFailures {
        self.api_failures.clone()
    }

    /// Counts a batch's changes as pending until the returned value is dropped.
    pub fn count_changes(&self, batch: &Batch) -> Pending {
        let (mut services, mut endpoints) = (0, 0);
        for change in &batch.changes {
            match change {
                Change::Service(..) => services += 1,
                Change::EndpointSlice(..) => endpoints += 1,
                Change::Node(..) | Change::ServiceCidr(..) => {}
            }
        }
        self.service_changes.inc_by(services);
        self.endpoint_changes.inc_by(endpoints);
        Pending::new([(&self.service_changes_pending, services), (&self.endpoint_changes_pending, endpoints)])
    }

    pub fn queued(&self, family: Family) {
        self.last_queued_timestamp.with_label_values(&[family.as_str()]).set(now());
    }

    pub fn sync_took(&self, family: Family, full: bool, took: Duration) {
        let one = if full { &self.full_sync_duration } else { &self.partial_sync_duration };
        for durations in [&self.sync_duration, one] {
            durations.with_label_values(&[family.as_str()]).observe(took.as_secs_f64());
        }
    }

    pub fn failed(&self, family: Family, full: bool) {
        self.by_mode.failed(family, full);
    }

    pub fn cleanup_failed(&self, family: Family) {
        self.by_mode.cleanup_failed(family);
    }

    pub fn synced(&self, family: Family, report: &SyncReport) {
        self.last_timestamp.with_label_values(&[family.as_str()]).set(now());
        self.by_mode.synced(family, report);
    }

    pub fn service_ports(&self, family: Family, tally: &PlanSummary) {
        let name = family.as_str();
        let (internal, external) = tally.without_local_endpoints();
        self.no_local_endpoints.with_label_values(&[name, "internal"]).set(as_gauge(internal));
        self.no_local_endpoints.with_label_values(&[name, "external"]).set(as_gauge(external));
        for (reason, count) in tally.hints_ignored() {
            self.hints_ignored.with_label_values(&[name, reason.as_str()]).set(as_gauge(count));
        }
    }

    pub fn disputed(&self, family: Family, count: usize) {
        self.disputed.with_label_values(&[family.as_str()]).set(as_gauge(count));
    }

    pub fn refused(&self, family: Family, count: usize) {
        self.refused.with_label_values(&[family.as_str()]).set(as_gauge(count));
    }

    pub fn programmed(&self, family: Family, changed: SystemTime) {
        let late = SystemTime::now().duration_since(changed).unwrap_or_default();
        self.network_programming.with_label_values(&[family.as_str()]).observe(late.as_secs_f64());
    }

    pub fn conntrack(&self, family: Family, deleted: usize, took: Duration) {
        let name = family.as_str();
        self.conntrack_deleted.with_label_values(&[name]).inc_by(u64::try_from(deleted).unwrap_or(u64::MAX));
        self.conntrack_duration.with_label_values(&[name]).observe(took.as_secs_f64());
    }

    pub fn healthz(&self, code: u16) {
        self.healthz.with_label_values(&[&code.to_string()]).inc();
    }

    pub fn livez(&self, code: u16) {
        self.livez.with_label_values(&[&code.to_string()]).inc();
    }
}

fn text_of(registry: &Registry) -> Result<String, Error> {
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns kube-proxy's buckets: from 1 ms, doubled 14 times.
fn sync_buckets() -> Result<Vec<f64>, Error> {
    prometheus::exponential_buckets(0.001, 2.0, 15)
}

fn programming_buckets() -> Vec<f64> {
    let steps = |from: u32, to: u32, by: usize| (from..=to).step_by(by).map(f64::from);
    [0.25, 0.5].into_iter().chain(steps(1, 59, 1)).chain(steps(60, 115, 5)).chain(steps(120, 300, 30)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::RuleCounts;
    use hyper::Method;

    /// Kubernetes' metrics (<https://kubernetes.io/docs/reference/instrumentation/metrics/>), and this proxy's own. The
    /// caller registers the reference's two packet counters.
    const METRICS: &[(&str, &str, &str)] = &[
        ("kubeproxy_conntrack_reconciler_deleted_entries_total", "counter", "ip_family"),
        ("kubeproxy_conntrack_reconciler_sync_duration_seconds", "histogram", "ip_family"),
        ("kubeproxy_network_programming_duration_seconds", "histogram", "ip_family"),
        ("kubeproxy_proxy_healthz_total", "counter", "code"),
        ("kubeproxy_proxy_livez_total", "counter", "code"),
        ("kubeproxy_sync_full_proxy_rules_duration_seconds", "histogram", "ip_family"),
        ("kubeproxy_sync_partial_proxy_rules_duration_seconds", "histogram", "ip_family"),
        ("kubeproxy_sync_proxy_rules_duration_seconds", "histogram", "ip_family"),
        ("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "gauge", ""),
        ("kubeproxy_sync_proxy_rules_endpoint_changes_total", "counter", ""),
        ("kubeproxy_sync_proxy_rules_iptables_last", "gauge", "ip_family,table"),
        ("kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total", "counter", "ip_family"),
        ("kubeproxy_sync_proxy_rules_iptables_restore_failures_total", "counter", "ip_family"),
        ("kubeproxy_sync_proxy_rules_iptables_total", "gauge", "ip_family,table"),
        ("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "gauge", "ip_family"),
        ("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "gauge", "ip_family"),
        ("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "gauge", "ip_family,traffic_policy"),
        ("kubeproxy_sync_proxy_rules_service_changes_pending", "gauge", ""),
        ("kubeproxy_sync_proxy_rules_service_changes_total", "counter", ""),
        ("kubernetes_build_info", "gauge", "compiler,git_version,major,minor,platform"),
        ("rest_client_rate_limiter_duration_seconds", "histogram", "host,verb"),
        ("rest_client_request_duration_seconds", "histogram", "host,verb"),
        ("rest_client_request_size_bytes", "histogram", "host,verb"),
        ("rest_client_requests_total", "counter", "code,host,method"),
        ("rest_client_response_size_bytes", "histogram", "host,verb"),
        ("svcproxy_disputed_frontends", "gauge", "ip_family"),
        ("svcproxy_refused_service_ports", "gauge", "ip_family"),
        ("svcproxy_topology_hints_ignored", "gauge", "ip_family,reason"),
    ];

    fn used(mode: Mode) -> (Metrics, Pending) {
        let metrics = Metrics::of_mode(mode, &[Family::V4]).unwrap();
        let key = crate::testing::key("web");
        let changes = vec![Change::Service(key.clone(), None), Change::EndpointSlice(key, None)];
        let pending = metrics.count_changes(&Batch { changes, ..Batch::default() });
        metrics.queued(Family::V4);
        metrics.sync_took(Family::V4, true, Duration::from_millis(3));
        metrics.sync_took(Family::V4, false, Duration::from_millis(2));
        metrics.failed(Family::V4, false);
        metrics.cleanup_failed(Family::V4);
        let (sent, total) = (RuleCounts { filter: 1, nat: 2 }, RuleCounts { filter: 5, nat: 70 });
        metrics.synced(Family::V4, &SyncReport { sent, total, ..SyncReport::default() });
        metrics.programmed(Family::V4, SystemTime::now() - Duration::from_millis(1500));
        metrics.conntrack(Family::V4, 3, Duration::from_millis(1));
        metrics.healthz(200);
        metrics.livez(503);
        let requests = metrics.requests.to("10.0.0.1:6443");
        requests.count("200", &Method::GET);
        requests.throttled(&Method::GET, Duration::ZERO);
        requests.exchanged(&Method::GET, Duration::from_millis(1), 0, 1000);
        (metrics, pending)
    }

    fn registered(mode: Mode) -> Vec<(String, String, String)> {
        let families = used(mode).0.registry.gather();
        assert!(families.iter().any(|family| family.name() == "process_cpu_seconds_total"));
        let mut found: Vec<(String, String, String)> = families
            .iter()
            .filter(|family| !family.name().starts_with("process_"))
            .map(|family| {
                let kind = format!("{:?}", family.get_field_type()).to_lowercase();
                let labels = family.get_metric()[0].get_label();
                let mut labels: Vec<&str> = labels.iter().map(prometheus::proto::LabelPair::name).collect();
                labels.sort_unstable();
                (family.name().to_owned(), kind, labels.join(","))
            })
            .collect();
        found.sort();
        found
    }

    fn expected<'a>(
        metrics: impl IntoIterator<Item = &'a (&'a str, &'a str, &'a str)>,
    ) -> Vec<(String, String, String)> {
        let mut expected: Vec<_> =
            metrics.into_iter().map(|(n, k, l)| ((*n).to_owned(), (*k).to_owned(), (*l).to_owned())).collect();
        expected.sort();
        expected
    }

    #[test]
    fn names_kinds_and_labels_are_those_of_kube_proxy() {
        for mode in [Mode::Iptables, Mode::Ipvs, Mode::Userspace] {
            assert_eq!(registered(mode), expected(METRICS), "{mode}");
        }
    }

    #[test]
    fn nftables_mode_has_kube_proxys_own_metrics() {
        let own = [
            ("kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total", "counter", "ip_family"),
            ("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "counter", "ip_family"),
        ];
        let common = METRICS.iter().filter(|(name, ..)| !name.contains("_iptables_"));
        assert_eq!(registered(Mode::Nftables), expected(common.chain(&own)));
    }

    #[test]
    fn nftables_failures_have_their_own_counters() {
        let metrics = Metrics::of_mode(Mode::Nftables, &Family::ALL).unwrap();
        let counts = || {
            let text = metrics.text().unwrap();
            let lines = text.lines().filter(|line| line.starts_with("kubeproxy_sync_proxy_rules_nftables_"));
            lines
                .filter_map(|line| line.rsplit_once(' '))
                .map(|(_, count)| count.to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        // Cleanup and sync failures, each for IPv4 and IPv6.
        assert_eq!(counts(), "0 0 0 0", "a counter that nothing has happened to is 0");
        metrics.failed(Family::V4, true);
        metrics.failed(Family::V4, false);
        metrics.failed(Family::V6, false);
        metrics.cleanup_failed(Family::V6);
        assert_eq!(counts(), "0 1 2 1");
    }

    #[test]
    fn events_change_their_metrics() {
        let (metrics, pending) = used(Mode::Iptables);
        let text = metrics.text().unwrap();
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
        has(r#"kubeproxy_sync_proxy_rules_iptables_last{ip_family="IPv4",table="nat"} 2"#);
        has(r#"kubeproxy_sync_proxy_rules_iptables_total{ip_family="IPv4",table="filter"} 5"#);
        has(r#"kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 2"#);
        has(r#"kubeproxy_sync_full_proxy_rules_duration_seconds_bucket{ip_family="IPv4",le="0.002"} 0"#);
        has(r#"kubeproxy_sync_full_proxy_rules_duration_seconds_bucket{ip_family="IPv4",le="0.004"} 1"#);
        has(r#"kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"} 1"#);
        has(r#"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total{ip_family="IPv4"} 1"#);
        has(r#"kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="1"} 0"#);
        has(r#"kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 3"#);
        has("kubeproxy_sync_proxy_rules_endpoint_changes_pending 1");
        drop(pending);
        let text = metrics.text().unwrap();
        assert!(text.contains("\nkubeproxy_sync_proxy_rules_endpoint_changes_pending 0\n"), "{text}");
        assert!(text.contains("\nkubeproxy_sync_proxy_rules_endpoint_changes_total 1\n"), "{text}");
    }

    #[test]
    fn buckets_are_those_of_kube_proxy() {
        let sync = sync_buckets().unwrap();
        assert_eq!((sync.len(), sync[0], sync[14]), (15, 0.001, 16.384));
        let programming = programming_buckets();
        assert_eq!(programming.len(), 2 + 59 + 12 + 7);
        assert!(programming.is_sorted_by(|a, b| a < b));
        assert_eq!((programming[2], programming[60], programming[61], programming[79]), (1.0, 59.0, 60.0, 300.0));
    }
}
