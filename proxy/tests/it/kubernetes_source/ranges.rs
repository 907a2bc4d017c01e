//! ServiceCIDRs, which are optional in nftables mode.

use std::time::Duration;

use serde_json::{Value, json};
use svcproxy::metrics::Metrics;
use svcproxy::source::{KubernetesSource, ObjectSource, ReflectorTiming, SourceReports, WatchScope, record_events};

use crate::kubernetes_source::api::{NODES, RANGES, SERVICES, ScriptedApi};
use crate::kubernetes_source::support::{CapturedLog, access, next, next_reported, reported, service, timing, until};

fn subjects() -> WatchScope {
    WatchScope { service_cidrs: true, ..WatchScope::from("n1") }
}

fn start(api: &ScriptedApi, timing: &ReflectorTiming) -> KubernetesSource {
    KubernetesSource::start(access(api), subjects(), timing, &SourceReports::default())
}

fn range(cidrs: &[&str]) -> Value {
    json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}})
}

#[tokio::test]
async fn service_cidrs_are_watched_in_nftables_mode_only() {
    let api = ScriptedApi::start(None).await;
    api.put(RANGES, range(&["10.96.0.0/16"]));
    let mut source = start(&api, &timing());
    let first = next(&mut source).await;
    assert_eq!(reported(&first), ["range kubernetes 10.96.0.0/16"]);
    assert_eq!(first.resource_versions.service_cidrs.as_deref(), Some("11"));
    api.put(RANGES, range(&["10.96.0.0/12"]));
    assert_eq!(next_reported(&mut source).await, ["range kubernetes 10.96.0.0/12"]);
    // Fields that a proxy does not read: conditions, finalizers.
    let mut ready = range(&["10.96.0.0/12"]);
    ready["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "message": "", "reason": ""}]});
    api.put(RANGES, ready);
    api.delete(RANGES, "kubernetes");
    assert_eq!(next_reported(&mut source).await, ["range kubernetes gone"]);

    let asked = api.asked("list", RANGES).0;
    let mut other = KubernetesSource::start(access(&api), "n1", &timing(), &SourceReports::default());
    let first = next(&mut other).await;
    assert_eq!((reported(&first), first.resource_versions.service_cidrs), (Vec::new(), None));
    assert_eq!(api.asked("list", RANGES).0, asked);
}

#[tokio::test]
async fn a_server_without_service_cidrs_is_one_log_line_and_delays_nothing() {
    for (code, sentence) in [
        (404, "does not serve ServiceCIDRs (404), as Kubernetes does from 1.33 on"),
        (403, "does not let the proxy list and watch ServiceCIDRs (403): on request"),
    ] {
        let (log, guard) = CapturedLog::start();
        let mut api = ScriptedApi::start(None).await;
        api.put(SERVICES, service("a", 80));
        api.put(RANGES, range(&["10.96.0.0/16"]));
        api.world.lock().unwrap().refuse = Some((RANGES, code));
        let mut source = start(&api, &timing());
        let first = next(&mut source).await;
        assert_eq!(reported(&first), ["default/a 80"]);
        assert_eq!(first.resource_versions.service_cidrs, None);
        until("further tries", || api.asked("list", RANGES).0 > 3).await;
        api.put(SERVICES, service("a", 81));
        assert_eq!(next_reported(&mut source).await, ["default/a 81"]);
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        let without = "services work, but unused addresses of their ranges are not dropped";
        assert!(lines[0].starts_with("WARN") && lines[0].contains(&format!("{sentence}; {without}")), "{lines:#?}");
        // An outage and its end are logged as usual.
        until("watches that stood", || api.asked("watch", SERVICES).0 > 0).await;
        api.down();
        until("the outage", || log.lines().iter().any(|line| line.contains("nothing listens there"))).await;
        api.up().await;
        until("its end", || log.lines().iter().any(|line| line.contains("answers again"))).await;
        assert_eq!(log.lines().iter().filter(|line| line.contains(sentence)).count(), 1, "{:#?}", log.lines());
        api.world.lock().unwrap().refuse = None;
        assert_eq!(next_reported(&mut source).await, ["range kubernetes 10.96.0.0/16"]);
        until("the word that they are there", || {
            log.lines().iter().any(|line| line.contains("ServiceCIDRs are watched now"))
        })
        .await;
        drop(guard);
    }
}

/// A cluster may lack ServiceCIDRs for years.
#[tokio::test]
async fn a_server_without_service_cidrs_is_asked_less_and_less() {
    let api = ScriptedApi::start(None).await;
    api.world.lock().unwrap().refuse = Some((RANGES, 404));
    let first = Duration::from_millis(2);
    let timing = ReflectorTiming {
        first_retry: first,
        longest_retry: 2 * first,
        longest_absence: Duration::from_secs(3600),
        ..timing()
    };
    let begun = std::time::Instant::now();
    let mut source = start(&api, &timing);
    next(&mut source).await;
    until("tries", || api.asked("list", RANGES).0 > 7).await;
    assert!(
        begun.elapsed() >= first * ((1 << 7) - 1),
        "each wait is twice as long as the one before: {:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn other_failures_of_service_cidrs_delay_nothing() {
    let api = ScriptedApi::start(None).await;
    api.world.lock().unwrap().refuse = Some((RANGES, 500));
    let metrics = Metrics::new(&[]).unwrap();
    let reports = SourceReports { failures: metrics.api_failures(), ..SourceReports::default() };
    let mut source = KubernetesSource::start(access(&api), subjects(), &timing(), &reports);
    assert_eq!(reported(&next(&mut source).await), [""; 0]);
    let counted = r#"svcproxy_api_failures_total{reason="server",resource="ServiceCIDRs"} "#;
    until("the count", || metrics.text().unwrap().lines().any(|line| line.starts_with(counted))).await;
    // The source waits for Nodes and other required kinds only.
    let api = ScriptedApi::start(None).await;
    api.world.lock().unwrap().refuse = Some((NODES, 500));
    let mut source = start(&api, &timing());
    until("tries for the Node", || api.asked("list", NODES).0 > 3).await;
    let whole = async { while source.next().await.unwrap().unwrap().partial {} };
    assert!(tokio::time::timeout(Duration::from_millis(50), whole).await.is_err());
}

#[tokio::test]
async fn an_invalid_range_is_skipped_and_named() {
    let (log, _guard) = CapturedLog::start();
    let api = ScriptedApi::start(None).await;
    api.put(RANGES, range(&["10.96.0.0/16", "10.97.0.0/16"]));
    let mut empty = range(&[]);
    empty["metadata"]["name"] = "empty".into();
    api.put(RANGES, empty);
    let reports = SourceReports { events: record_events(access(&api), "n1"), ..SourceReports::default() };
    let mut source = KubernetesSource::start(access(&api), subjects(), &timing(), &reports);
    assert_eq!(reported(&next(&mut source).await), ["range kubernetes 10.96.0.0/16"]);
    let lines = log.lines().join("\n");
    assert!(
        lines.contains("ServiceCIDR kubernetes: spec.cidrs[1]: 10.97.0.0/16 is a second network of IPv4"),
        "{lines}"
    );
    assert!(lines.contains("ServiceCIDR empty skipped: spec.cidrs: has no network"), "{lines}");
    until("an Event", || !api.world.lock().unwrap().posted.is_empty()).await;
    let (path, event) = api.world.lock().unwrap().posted[0].clone();
    assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/default/events");
    assert_eq!((&event["regarding"]["kind"], &event["regarding"]["name"]), (&"ServiceCIDR".into(), &"empty".into()));
}
