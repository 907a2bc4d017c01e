//! The Kubernetes source with a scripted API server on loopback.
pub mod api;
mod credentials;
mod encodings;
mod ranges;
mod state_file;
mod support;

use std::time::Duration;

use api::{NODES, SERVICES, SLICES, ScriptedApi};
use serde_json::{Value, json};
use support::{
    CapturedLog, access, next, next_reported, reported, service, slice, started, started_with, timing, until,
};
use svcproxy::metrics::Metrics;
use svcproxy::source::{
    Access, Connector, KubernetesSource, ObjectSource, ReflectorTiming, SourceReports, record_events,
};

#[tokio::test]
async fn batches_are_partial_until_all_three_kinds_are_listed() {
    let api = ScriptedApi::start(None).await;
    api.put(SERVICES, service("a", 80));
    api.world.lock().unwrap().refuse = Some((NODES, 503));
    let mut source = KubernetesSource::start(access(&api), "n1", &timing(), &SourceReports::default());
    until("tries for the Node", || api.asked("list", NODES).0 > 3).await;
    let services = tokio::time::timeout(Duration::from_secs(30), source.next()).await.unwrap().unwrap().unwrap();
    assert_eq!((reported(&services), services.partial), (vec!["default/a 80".to_owned()], true));
    let version = async {
        loop {
            let batch = source.next().await.unwrap().unwrap();
            assert!(batch.partial, "{batch:?}");
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(50), version).await.is_err());
    api.world.lock().unwrap().refuse = None;
    let mut first = next(&mut source).await;
    first.changes.extend(services.changes);
    assert_eq!(reported(&first), ["default/a 80"]);
    assert!(first.resource_versions.nodes.is_some(), "an empty list is a list");
}

#[tokio::test]
async fn requests_have_upstreams_selectors() {
    let (api, _source) = started().await;
    until("all watches", || [SERVICES, SLICES, NODES].iter().all(|path| api.asked("watch", path).0 > 0)).await;
    let services = "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name";
    let slices = "labelSelector=%21service.kubernetes.io%2Fheadless%2C%21service.kubernetes.io%2Fservice-proxy-name";
    for verb in ["list", "watch"] {
        for (path, selector) in [(SERVICES, services), (SERVICES, "spec.clusterIP%21%3DNone"), (SLICES, slices)] {
            assert!(api.asked(verb, path).1.contains(selector), "{verb} {path}: {:?}", api.asked(verb, path));
        }
        let (_, query) = api.asked(verb, NODES);
        assert!(query.contains("fieldSelector=metadata.name%3Dn1") && !query.contains("labelSelector"), "{query}");
    }
    assert_eq!(api.asked("list", SERVICES).0, 2, "three Services in pages of two");
    let (_, query) = api.asked("watch", SERVICES);
    assert!(query.contains("allowWatchBookmarks=true") && query.contains("resourceVersion=15"), "{query}");
}

#[tokio::test]
async fn simultaneous_changes_are_one_batch() {
    // Long enough for all three lists on a busy machine.
    let (api, mut source) = started_with(&ReflectorTiming { gather: Duration::from_secs(1), ..timing() }).await;
    until("all watches", || [SERVICES, SLICES].iter().all(|path| api.asked("watch", path).0 > 0)).await;
    api.put(SERVICES, service("a", 8080));
    api.delete(SERVICES, "b");
    let version = api.put(SLICES, slice("web-1", "10.0.0.2"));
    let batch = next(&mut source).await;
    assert_eq!(reported(&batch), ["default/a 8080", "default/b gone", "default/web-1 10.0.0.2"]);
    assert_eq!(batch.resource_versions.endpoint_slices, Some(version.to_string()));
}

#[tokio::test]
async fn a_bookmark_changes_only_the_version() {
    let (api, mut source) = started().await;
    let version = api.bookmark(SERVICES);
    let batch = next(&mut source).await;
    assert_eq!(reported(&batch), [""; 0]);
    assert_eq!(batch.resource_versions.services, Some(version.to_string()));
    assert_eq!(batch.resource_versions.nodes, None, "only what is new");
    // The next watch continues from the bookmark.
    api.compact();
    api.close_watches();
    until("a second watch", || api.asked("watch", SERVICES).0 > 1).await;
    assert!(api.asked("watch", SERVICES).1.contains(&format!("resourceVersion={version}")));
    assert_eq!(api.asked("list", SERVICES).0, 2, "nothing was listed again");
}

#[tokio::test]
async fn closed_watches_lose_nothing() {
    let (api, mut source) = started().await;
    for round in 0..5 {
        api.close_watches();
        api.put(SERVICES, service("a", 1000 + round));
        assert_eq!(next_reported(&mut source).await, [format!("default/a {}", 1000 + round)]);
    }
    assert_eq!(api.asked("list", SERVICES).0, 2, "watches go on where they stood");
}

#[tokio::test]
async fn an_outage_changes_nothing_and_its_end_reports_the_difference() {
    let (log, _guard) = CapturedLog::start();
    let (mut api, mut source) = started().await;
    api.down();
    let silent = tokio::time::timeout(Duration::from_millis(300), source.next()).await;
    assert!(silent.is_err(), "{silent:?}");
    api.delete(SERVICES, "b");
    api.put(SERVICES, service("d", 83));
    // A new version of the same content.
    api.put(SLICES, slice("web-1", "10.0.0.1"));
    api.compact();
    api.up().await;
    assert_eq!(next_reported(&mut source).await, ["default/b gone", "default/d 83"]);
    until("slices are listed anew, the old version being gone", || api.asked("list", SLICES).0 > 1).await;
    until("the recovery", || log.lines().iter().any(|line| line.contains("answers again"))).await;
    let lines = log.lines();
    let failures = lines.iter().filter(|line| line.starts_with("WARN")).count();
    assert_eq!(failures, 1, "one line for an outage of all watches and many tries: {lines:#?}");
    assert!(lines.iter().any(|line| line.contains("nothing listens there (connection refused)")), "{lines:#?}");
}

#[tokio::test]
async fn a_watch_that_ends_with_410_lists_again() {
    let (api, mut source) = started().await;
    let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}});
    api.line(SERVICES, &gone.to_string());
    until("a new list", || api.asked("list", SERVICES).0 > 2).await;
    api.put(SERVICES, service("a", 90));
    assert_eq!(next_reported(&mut source).await, ["default/a 90"], "objects that are the same are not reported again");
}

#[tokio::test]
async fn invalid_objects_are_skipped_and_counted() {
    let (log, _guard) = CapturedLog::start();
    let (api, mut source) = started().await;
    api.put(SERVICES, service("a", 70_000));
    api.put(SERVICES, json!({"metadata": {"name": "bad", "namespace": "default"}, "spec": {"ports": "x"}}));
    api.put(SERVICES, service("b", 90));
    assert_eq!(next_reported(&mut source).await, ["default/b 90"]);
    api.compact();
    api.close_watches();
    api.put(SERVICES, service("c", 91));
    assert_eq!(next_reported(&mut source).await, ["default/c 91"], "a is kept as it was");
    assert_eq!(source.skipped().total(), 2);
    let skipped: Vec<String> = log.lines().into_iter().filter(|line| line.contains("skipped")).collect();
    assert_eq!(skipped.len(), 2, "{skipped:#?}");
    let port = "Service default/a skipped: spec.ports[0].port: 70000 is not a port (1-65535); kept as it was";
    assert!(skipped[0].ends_with(port), "{skipped:#?}");
    assert!(skipped[1].contains("Service default/bad skipped: spec.ports: invalid type"), "{skipped:#?}");
}

#[tokio::test]
async fn a_malformed_watch_event_is_a_log_line() {
    let (log, _guard) = CapturedLog::start();
    let (api, mut source) = started().await;
    api.line(SERVICES, "<html>");
    until("the complaint", || log.lines().iter().any(|line| line.contains("the answer is not the API's"))).await;
    api.put(SERVICES, service("a", 90));
    assert_eq!(next_reported(&mut source).await, ["default/a 90"]);
    let complaints = log.lines().iter().filter(|line| line.starts_with("WARN")).count();
    assert_eq!(complaints, 1, "{:#?}", log.lines());
}

#[tokio::test]
async fn a_valid_event_does_not_reset_the_back_off() {
    let (log, _guard) = CapturedLog::start();
    let api = ScriptedApi::start(None).await;
    let (first, rounds) = (Duration::from_millis(2), 8);
    let timing = ReflectorTiming {
        first_retry: first,
        longest_retry: Duration::from_secs(30),
        settled: Duration::from_secs(600),
        ..timing()
    };
    let mut source = KubernetesSource::start(access(&api), "n1", &timing, &SourceReports::default());
    next(&mut source).await;
    let begun = std::time::Instant::now();
    for round in 0..rounds {
        api.put(SERVICES, service("a", 1000 + round));
        assert_eq!(next_reported(&mut source).await, [format!("default/a {}", 1000 + round)]);
        let lists = api.asked("list", SERVICES).0;
        api.line(SERVICES, "<html>");
        until("a new list", || api.asked("list", SERVICES).0 > lists).await;
    }
    // Each wait is twice the previous one.
    assert!(begun.elapsed() >= first * ((1 << rounds) - 1), "{:?}", begun.elapsed());
    assert_eq!(log.lines().len(), 1, "{:#?}", log.lines());
}

#[tokio::test]
async fn unanswered_first_lists_are_repeated_soon() {
    let api = ScriptedApi::start(None).await;
    api.put(SERVICES, service("a", 80));
    api.world.lock().unwrap().silent = 3;
    let timing =
        ReflectorTiming { first_list: Duration::from_millis(100), list: Duration::from_secs(3600), ..timing() };
    let mut source = KubernetesSource::start(access(&api), "n1", &timing, &SourceReports::default());
    assert_eq!(reported(&next(&mut source).await), ["default/a 80"]);
    assert_eq!(api.world.lock().unwrap().silent, 0);
}

#[tokio::test]
async fn a_silent_watch_is_restarted() {
    let api = ScriptedApi::start(None).await;
    let timing = ReflectorTiming { silence: Duration::from_millis(50), settled: Duration::from_millis(10), ..timing() };
    let mut source = KubernetesSource::start(access(&api), "n1", &timing, &SourceReports::default());
    next(&mut source).await;
    until("further watches", || api.asked("watch", SERVICES).0 > 3).await;
    assert_eq!(api.asked("list", SERVICES).0, 1);
}

#[tokio::test]
async fn requests_are_counted_by_their_outcome() {
    let mut api = ScriptedApi::start(None).await;
    let metrics = Metrics::new(&[]).unwrap();
    let access = Access::new(None, Some(format!("http://{}", api.address)));
    let connector = Connector::new(access, &metrics.requests());
    let reports = SourceReports { failures: metrics.api_failures(), ..SourceReports::default() };
    let mut source = KubernetesSource::start(connector, "n1", &timing(), &reports);
    next(&mut source).await;
    let host = api.address;
    let counted = |code: &str| {
        let sample = format!("rest_client_requests_total{{code=\"{code}\",host=\"{host}\",method=\"GET\"}} ");
        let text = metrics.text().unwrap();
        text.lines().find_map(|line| line.strip_prefix(&sample)?.parse::<u32>().ok())
    };
    until("three lists and three watches", || counted("200") == Some(6)).await;
    assert_eq!(counted("<error>"), None);
    api.down();
    until("requests without an answer", || counted("<error>").is_some_and(|count| count >= 3)).await;
    let failed = r#"svcproxy_api_failures_total{reason="refused",resource="Services"} "#;
    until("failures", || metrics.text().unwrap().lines().any(|line| line.starts_with(failed))).await;
}

#[tokio::test]
async fn an_invalid_object_is_reported_by_an_event() {
    let api = ScriptedApi::start(None).await;
    api.put(SERVICES, service("bad", 99_999));
    let mut slice = slice("web-1", "10.0.0.1");
    slice["metadata"]["namespace"] = "shop".into();
    slice["metadata"]["labels"]["kubernetes.io/service-name"] = "a.b".into();
    api.put(SLICES, slice);
    let reports = SourceReports { events: record_events(access(&api), "n1"), ..SourceReports::default() };
    let mut source = KubernetesSource::start(access(&api), "n1", &timing(), &reports);
    next(&mut source).await;
    until("two Events", || api.world.lock().unwrap().posted.len() == 2).await;
    let posted: Vec<(String, Value)> = api.world.lock().unwrap().posted.clone();
    let about = |kind: &str| posted.iter().find(|(_, event)| event["regarding"]["kind"] == kind).unwrap();
    let (path, event) = about("Service");
    assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/default/events");
    assert_eq!((&event["reason"], &event["reportingInstance"]), (&"InvalidObject".into(), &"svcproxy-n1".into()));
    let (path, event) = about("EndpointSlice");
    assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/shop/events");
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("metadata.labels[kubernetes.io/service-name]: \"a.b\" is not a DNS label"), "{note}");
}
