//! Sends the proxy every malformed answer of an API: known objects stay, a log line reports the failure, few bytes are
//! read, and changes arrive once the server answers correctly.

use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use svclab_apiserver::objects::{Object, ObjectKind, Store, StoreOptions};
use svclab_apiserver::{
    ApiServer, HOSTILE_ANSWERS, HostileAnswer, HostileTarget, ServeOptions, ServerFault, SharedStore,
};
use svclab_spec::{ClusterSpec, Cni};
use svcproxy::metrics::{Metrics, Requests};
use svcproxy::model::Change;
use svcproxy::source::{Access, Connector, KubernetesSource, ObjectSource, ReflectorTiming, SourceReports};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(120);
/// The most bytes of one answer that a client reads: 64 MiB of a list, and its buffers.
const LARGEST: usize = 72 << 20;

fn timing(answer: &HostileAnswer) -> ReflectorTiming {
    ReflectorTiming {
        first_retry: Duration::from_millis(5),
        longest_retry: Duration::from_millis(20),
        list: Duration::from_secs(if answer.waits() { 1 } else { 60 }),
        relist: Duration::from_millis(20),
        settled: Duration::from_millis(100),
        page: Some(4),
        ..ReflectorTiming::default()
    }
}

fn store() -> Store {
    let spec = ClusterSpec {
        cni: Cni::Bridge,
        node_network: vec!["172.18.0.0/24".parse().unwrap()],
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        ..ClusterSpec::default()
    };
    let options = StoreOptions { seed: 0, max_endpoints_per_slice: 100, vip_ranges: vec![] };
    let mut store = Store::new(spec, options);
    put(&mut store, "web", 80);
    put(&mut store, "names", 53);
    store
}

fn put(store: &mut Store, name: &str, port: i32) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"ports": [{"port": port}]}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [{"addresses": ["10.244.1.1"]}], "ports": [{"port": port}]});
    for (kind, object) in [(ObjectKind::Service, service), (ObjectKind::EndpointSlice, slice)] {
        apply(store, kind, &object);
    }
}

fn apply(store: &mut Store, kind: ObjectKind, object: &Value) {
    store.apply(Object::from_value(kind, object).unwrap().0).unwrap();
}

/// Collects the thread's warnings while the guard lives.
#[derive(Clone, Default)]
struct LogCapture(Arc<Mutex<Vec<u8>>>);

impl LogCapture {
    fn start() -> (LogCapture, tracing::subscriber::DefaultGuard) {
        let log = LogCapture::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .with_writer(move || writer.clone());
        (log, tracing::subscriber::set_default(subscriber.finish()))
    }

    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl Write for LogCapture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Pair {
    api: ApiServer,
    source: KubernetesSource,
    metrics: Metrics,
}

impl Pair {
    fn start(answer: &HostileAnswer, hostile: bool) -> Pair {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = ApiServer::start(SharedStore::new(store()), [listener], ServeOptions::default()).unwrap();
        if hostile {
            let answer = HOSTILE_ANSWERS.iter().find(|one| one.name == answer.name).unwrap();
            api.misbehave(ServerFault::Answer(answer));
        }
        let access = Access::new(None, Some(api.url(api.addresses()[0])));
        let metrics = Metrics::new(&[]).unwrap();
        let reports = SourceReports { failures: metrics.api_failures(), ..SourceReports::default() };
        let connector = Connector::new(access, &Requests::default());
        let source = KubernetesSource::start(connector, "node-a", &timing(answer), &reports);
        Pair { api, source, metrics }
    }

    async fn until(&mut self, what: &str, condition: impl Fn(&ApiServer, &Metrics, &[String]) -> bool) -> Vec<String> {
        let mut told = Vec::new();
        let whole = async {
            while !condition(&self.api, &self.metrics, &told) {
                if let Ok(batch) = timeout(Duration::from_millis(5), self.source.next()).await {
                    let batch = batch.unwrap().unwrap();
                    told.extend(batch.changes.iter().map(describe));
                    if !batch.partial {
                        told.push("whole".to_owned());
                    }
                }
            }
        };
        let ended = timeout(PATIENCE, whole).await;
        assert!(ended.is_ok(), "in vain: {what}; {told:?}; {:?}", self.api.hostile_answers());
        told
    }

    async fn whole(&mut self, what: &str) -> Vec<String> {
        let told = self.until(what, |_, _, told| told.iter().any(|line| line == "whole")).await;
        let mut told: Vec<String> = told.into_iter().filter(|line| line != "whole").collect();
        told.sort();
        told
    }
}

fn describe(change: &Change) -> String {
    match change {
        Change::Service(key, service) => format!("Service {key}{}", if service.is_some() { "" } else { " gone" }),
        Change::EndpointSlice(key, slice) => format!("slice {key}{}", if slice.is_some() { "" } else { " gone" }),
        Change::Node(name, node) => format!("Node {name}{}", if node.is_some() { "" } else { " gone" }),
        Change::ServiceCidr(name, cidr) => format!("ServiceCIDR {name}{}", if cidr.is_some() { "" } else { " gone" }),
    }
}

fn failures(metrics: &Metrics) -> u64 {
    let text = metrics.text().unwrap();
    let counts = text.lines().filter(|line| line.starts_with("svcproxy_api_failures_total{"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

const EVERYTHING: [&str; 4] =
    ["Service default/names", "Service default/web", "slice default/names", "slice default/web"];

/// Gives the malformed answer to a source that has synced.
async fn stays(answer: &HostileAnswer) {
    let (log, _guard) = LogCapture::start();
    let mut pair = Pair::start(answer, false);
    assert_eq!(pair.whole("the first lists").await, EVERYTHING, "{}", answer.name);
    let hostile = HOSTILE_ANSWERS.iter().find(|one| one.name == answer.name).unwrap();
    let begun = Instant::now();
    pair.api.misbehave(ServerFault::Answer(hostile));
    // Enough requests of each kind to notice a repeated failure.
    let told = pair
        .until(&format!("{}: failures", answer.name), |api, metrics, _| {
            api.hostile_answers().0 >= 6 && failures(metrics) >= 6
        })
        .await;
    let lost: Vec<&String> = told.iter().filter(|line| *line != "whole").collect();
    assert!(lost.is_empty(), "{}: {lost:?}", answer.name);
    // Three watches, six answers: each watch asked twice and obeyed `Retry-After`.
    assert!(begun.elapsed() >= answer.asks_for(), "{}: {:?}", answer.name, begun.elapsed());
    let (answers, bytes) = pair.api.hostile_answers();
    assert!(bytes / answers < LARGEST, "{}: {bytes} bytes in {answers} answers", answer.name);
    let lines = log.lines();
    // Each kind of failure is logged in one line, or in one line per kind of object.
    assert!((1..=6).contains(&lines.len()), "{}: {lines:#?}", answer.name);
    assert!(lines.iter().all(|line| line.len() < 1000), "{}: {lines:#?}", answer.name);
    pair.api.store().write(|store| {
        put(store, "late", 8080);
    });
    pair.api.misbehave(ServerFault::Accept);
    let all = |told: &[String]| {
        ["Service default/late", "slice default/late"].iter().all(|new| told.iter().any(|line| line == new))
    };
    let told = pair.until(&format!("{}: the change", answer.name), |_, _, told| all(told)).await;
    assert!(told.iter().all(|line| !line.ends_with("gone")), "{}: {told:?}", answer.name);
}

/// Gives the malformed answer to a source that starts.
async fn starts_late(answer: &HostileAnswer) {
    let (log, _guard) = LogCapture::start();
    let mut pair = Pair::start(answer, true);
    let told = pair.until(answer.name, |api, metrics, _| api.hostile_answers().0 >= 6 && failures(metrics) >= 6).await;
    assert_eq!(told, [""; 0], "{}: nothing may be programmed", answer.name);
    assert!((1..=6).contains(&log.lines().len()), "{}: {:#?}", answer.name, log.lines());
    pair.api.misbehave(ServerFault::Accept);
    assert_eq!(pair.whole(answer.name).await, EVERYTHING, "{}", answer.name);
}

async fn all(to: HostileTarget, test: impl AsyncFn(&HostileAnswer)) {
    let mut judged = 0;
    for answer in HOSTILE_ANSWERS.iter().filter(|answer| answer.to == to) {
        test(answer).await;
        judged += 1;
    }
    assert!(judged > 4, "{judged}");
}

#[tokio::test]
async fn lists_take_nothing_away() {
    all(HostileTarget::Lists, stays).await;
}

#[tokio::test]
async fn lists_begin_nothing() {
    all(HostileTarget::Lists, starts_late).await;
}

#[tokio::test]
async fn watches_take_nothing_away() {
    all(HostileTarget::Watches, stays).await;
}

#[tokio::test]
async fn events_take_nothing_away() {
    all(HostileTarget::Events, stays).await;
}
