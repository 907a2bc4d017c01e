use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use svcproxy::metrics::Requests;
use svcproxy::model::{Batch, Change};
use svcproxy::source::{Access, Connector, KubernetesSource, ObjectSource, ReflectorTiming, SourceReports};

use crate::kubernetes_source::api::{NODES, SERVICES, SLICES, ScriptedApi};

/// Short times, with a silence limit that no test reaches by chance.
pub fn timing() -> ReflectorTiming {
    ReflectorTiming {
        first_retry: Duration::from_millis(5),
        longest_retry: Duration::from_millis(40),
        longest_absence: Duration::from_millis(80),
        first_list: Duration::from_secs(20),
        list: Duration::from_secs(20),
        relist: Duration::from_millis(5),
        silence: Duration::from_secs(600),
        settled: Duration::from_millis(500),
        gather: Duration::from_millis(10),
        page: Some(2),
    }
}

pub fn service(name: &str, port: i64) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": port}]},
    })
}

pub fn slice(name: &str, address: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": [{"port": 80}],
    })
}

pub fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"podCIDR": "10.0.0.0/24"}})
}

pub async fn next(source: &mut KubernetesSource) -> Batch {
    let mut whole = Batch::default();
    loop {
        let batch = tokio::time::timeout(Duration::from_secs(30), source.next()).await;
        let batch = batch.unwrap_or_else(|_| panic!("no batch in time")).unwrap().unwrap();
        whole.changes.extend(batch.changes);
        whole.resource_versions.advance(&batch.resource_versions);
        if !batch.partial {
            return whole;
        }
    }
}

pub fn reported(batch: &Batch) -> Vec<String> {
    let mut reported: Vec<String> = batch
        .changes
        .iter()
        .map(|change| match change {
            Change::Service(key, Some(service)) => {
                format!("{key} {}", service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port)
            }
            Change::Service(key, None) | Change::EndpointSlice(key, None) => format!("{key} gone"),
            Change::EndpointSlice(key, Some(slice)) => {
                format!("{key} {}", slice.endpoints.as_ref().unwrap()[0].addresses[0])
            }
            Change::Node(name, node) => format!("node {name}{}", if node.is_some() { "" } else { " gone" }),
            Change::ServiceCidr(name, Some(cidr)) => {
                format!("range {name} {}", cidr.spec.as_ref().unwrap().cidrs.as_ref().unwrap().join(" "))
            }
            Change::ServiceCidr(name, None) => format!("range {name} gone"),
        })
        .collect();
    reported.sort();
    reported
}

/// Skips empty batches of bookmarks.
pub async fn next_reported(source: &mut KubernetesSource) -> Vec<String> {
    loop {
        let batch = next(source).await;
        if !batch.changes.is_empty() {
            return reported(&batch);
        }
    }
}

pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap_or_else(|_| panic!("in vain: {what}"));
}

pub fn access(api: &ScriptedApi) -> Connector {
    by(Access::new(None, Some(format!("http://{}", api.address))))
}

pub fn by(access: Access) -> Connector {
    Connector::new(access, &Requests::default())
}

pub async fn started() -> (ScriptedApi, KubernetesSource) {
    started_with(&timing()).await
}

pub async fn started_with(timing: &ReflectorTiming) -> (ScriptedApi, KubernetesSource) {
    let api = ScriptedApi::start(None).await;
    api.put(SERVICES, service("a", 80));
    api.put(SERVICES, service("b", 81));
    api.put(SERVICES, service("c", 82));
    api.put(SLICES, slice("web-1", "10.0.0.1"));
    api.put(NODES, node("n1"));
    let mut source = KubernetesSource::start(access(&api), "n1", timing, &SourceReports::default());
    let first = next(&mut source).await;
    assert_eq!(reported(&first), ["default/a 80", "default/b 81", "default/c 82", "default/web-1 10.0.0.1", "node n1"]);
    let versions = first.resource_versions;
    assert_eq!(versions.services.as_deref(), Some("15"), "the version of the list, not of an object");
    assert_eq!((versions.endpoint_slices.as_deref(), versions.nodes.as_deref()), (Some("15"), Some("15")));
    assert_eq!(first.resource_version, None);
    (api, source)
}

/// Collects the thread's log lines while the guard lives.
#[derive(Clone, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    pub fn start() -> (CapturedLog, tracing::subscriber::DefaultGuard) {
        let log = CapturedLog::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .with_writer(move || writer.clone());
        (log, tracing::subscriber::set_default(subscriber.finish()))
    }

    pub fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
