//! Sends requests while the cluster changes, and judges them.
//!
//! A request has *failed* if it got no answer although an endpoint was serving from its start to its end. It was
//! *misdelivered* if the server was no endpoint of the service at any time of the request. An endpoint counts from the
//! publication of the change that adds it until every proxy, including dead and cut-off ones, has applied the change
//! that removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use svclab_apiserver::objects::{ObjectKey, ObjectKind, Store};
use svclab_cluster::ClusterError;
use svclab_cluster::prober::Prober;
use svclab_cluster::traffic::probe::{Probe, ProbeAnswer};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::expect::counters::PacketCount;

/// How long traffic continues after its end step to reach the requested number of requests. An emulated machine beside a
/// busy one makes ten a second.
const ENOUGH_WITHIN: Duration = Duration::from_secs(60);

/// Servers (`namespace/pod`) by service.
type Serving = BTreeMap<ObjectKey, BTreeSet<String>>;

/// A state of the objects, and the period in which packets may meet it.
struct Epoch {
    since: Instant,
    until: Option<Instant>,
    serving: Serving,
}

#[derive(Default)]
pub(super) struct Epochs(Vec<Epoch>);

impl Epochs {
    /// Begins an epoch. Called when the objects are about to change to `store`.
    pub(super) fn begin(&mut self, store: &Store) {
        self.0.push(Epoch { since: Instant::now(), until: None, serving: serving(store) });
    }

    /// Ends all older epochs. Called when every proxy has applied the newest state.
    pub(super) fn settle(&mut self) {
        let now = Instant::now();
        let older = self.0.len().saturating_sub(1);
        for epoch in self.0[..older].iter_mut().filter(|epoch| epoch.until.is_none()) {
            epoch.until = Some(now);
        }
    }

    fn during<'a>(&'a self, sample: &'a Sample) -> impl Iterator<Item = &'a Epoch> {
        self.0
            .iter()
            .filter(|epoch| epoch.since <= sample.ended && epoch.until.is_none_or(|until| until >= sample.begun))
    }

    fn verdict(&self, service: &ObjectKey, sample: &Sample) -> RequestVerdict {
        let mut serving = self.during(sample).map(|epoch| epoch.serving.get(service)).peekable();
        match &sample.answer {
            ProbeAnswer::Replied { server, .. } => {
                if serving.flatten().any(|pods| pods.contains(server)) {
                    RequestVerdict::Right
                } else {
                    RequestVerdict::Misdelivered
                }
            }
            _ if serving.peek().is_none() || serving.any(|pods| pods.is_none_or(BTreeSet::is_empty)) => {
                RequestVerdict::Right
            }
            _ => RequestVerdict::Failed,
        }
    }
}

fn serving(store: &Store) -> Serving {
    let pods = store.cluster_spec().pods;
    let owner = |address: &str| {
        let address: std::net::IpAddr = address.parse().ok()?;
        let pod = pods.iter().find(|pod| pod.addresses.contains(&address))?;
        Some(format!("{}/{}", pod.namespace, pod.name))
    };
    let mut serving = Serving::new();
    for (key, _) in store.services() {
        serving.entry(key.clone()).or_default();
    }
    for record in store.records(ObjectKind::EndpointSlice) {
        let Some(service) = record.labels.get("kubernetes.io/service-name") else { continue };
        let slice: serde_json::Value = serde_json::from_slice(&record.json).unwrap_or_default();
        let servers = serving.entry(ObjectKey::new(Some(&record.key.namespace), service)).or_default();
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let serves = may_serve(&endpoint["conditions"]);
            servers.extend(endpoint["addresses"][0].as_str().filter(|_| serves).and_then(owner));
        }
    }
    serving
}

/// Whether the endpoint is ready, or serving while terminating. Missing conditions mean ready, serving and not
/// terminating (API reference, `EndpointConditions`).
fn may_serve(conditions: &serde_json::Value) -> bool {
    let condition = |name: &str, left_out: bool| conditions[name].as_bool().unwrap_or(left_out);
    condition("ready", true) || (condition("serving", true) && condition("terminating", false))
}

#[derive(Debug)]
struct Sample {
    begun: Instant,
    ended: Instant,
    answer: ProbeAnswer,
}

enum RequestVerdict {
    Right,
    Failed,
    Misdelivered,
}

#[derive(Debug, Default)]
pub(super) struct TrafficReport {
    pub(super) made: usize,
    pub(super) failed: Vec<String>,
    pub(super) misdelivered: Vec<String>,
    pub(super) servers: BTreeMap<String, usize>,
}

pub(super) struct BackgroundTraffic {
    service: ObjectKey,
    begun: Instant,
    stop: watch::Sender<bool>,
    made: watch::Sender<usize>,
    workers: JoinSet<Result<Vec<Sample>, ClusterError>>,
}

impl BackgroundTraffic {
    pub(super) fn start(prober: &Prober, probe: &Probe, service: ObjectKey, workers: usize, pause: Duration) -> Self {
        let (stop, made) = (watch::Sender::new(false), watch::Sender::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(send(prober.clone(), probe.clone(), pause, made.clone(), stop.subscribe()));
        }
        BackgroundTraffic { service, begun: Instant::now(), stop, made, workers: tasks }
    }

    /// Judges every request. Continues until `wanted` accepts their number, for at most [`ENOUGH_WITHIN`]: the number
    /// depends on the machine.
    pub(super) async fn end(mut self, wanted: &PacketCount, epochs: &Epochs) -> Result<TrafficReport, ClusterError> {
        if matches!(wanted, PacketCount::AtLeast(_)) {
            let mut made = self.made.subscribe();
            let enough = made.wait_for(|made| wanted.accepts(*made as u64, |_| 0));
            let _ = tokio::time::timeout(ENOUGH_WITHIN, enough).await;
        }
        self.stop.send_replace(true);
        let mut report = TrafficReport::default();
        while let Some(samples) = self.workers.join_next().await {
            let samples = samples.map_err(|error| ClusterError::Io {
                attempted: "sending background traffic".to_owned(),
                source: std::io::Error::other(error),
            })??;
            for sample in &samples {
                report.count(sample, epochs.verdict(&self.service, sample), self.begun);
            }
        }
        Ok(report)
    }
}

impl TrafficReport {
    fn count(&mut self, sample: &Sample, verdict: RequestVerdict, origin: Instant) {
        self.made += 1;
        let moment = sample.begun.duration_since(origin).as_millis();
        let words = match &sample.answer {
            ProbeAnswer::Replied { server, .. } => {
                *self.servers.entry(server.clone()).or_default() += 1;
                format!("answered by {server}")
            }
            other => format!("{other:?}").to_lowercase(),
        };
        match verdict {
            RequestVerdict::Right => {}
            RequestVerdict::Failed => self.failed.push(format!("{words} after {moment} ms")),
            RequestVerdict::Misdelivered => self.misdelivered.push(format!("{words} after {moment} ms")),
        }
    }

    pub(super) fn summary(&self) -> String {
        let servers: Vec<String> = self.servers.iter().map(|(name, count)| format!("{name} ×{count}")).collect();
        let (failed, misdelivered) = (self.failed.len(), self.misdelivered.len());
        format!("{} made, {failed} failed, {misdelivered} misdelivered; {}", self.made, servers.join(", "))
    }
}

async fn send(
    prober: Prober,
    probe: Probe,
    pause: Duration,
    made: watch::Sender<usize>,
    mut stop: watch::Receiver<bool>,
) -> Result<Vec<Sample>, ClusterError> {
    let mut samples = Vec::new();
    while !*stop.borrow() {
        let begun = Instant::now();
        let answer = prober.send(&probe).await?.answer;
        samples.push(Sample { begun, ended: Instant::now(), answer });
        made.send_modify(|made| *made += 1);
        let _ = tokio::time::timeout(pause, stop.changed()).await;
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(since: Instant, until: Option<Instant>, pods: &[&str]) -> Epoch {
        let pods = pods.iter().map(|pod| (*pod).to_owned()).collect();
        Epoch { since, until, serving: Serving::from([(ObjectKey::new(None, "web"), pods)]) }
    }

    #[test]
    fn missing_endpoint_conditions_have_defaults() {
        use serde_json::{Value, json};
        let table = [
            (Value::Null, true),
            (json!({"serving": false}), true),
            (json!({"ready": false}), false),
            (json!({"ready": false, "serving": true}), false),
            (json!({"ready": false, "terminating": true}), true),
            (json!({"ready": false, "serving": true, "terminating": true}), true),
            (json!({"ready": false, "serving": false, "terminating": true}), false),
        ];
        for (conditions, serves) in table {
            assert_eq!(may_serve(&conditions), serves, "{conditions}");
        }
    }

    #[test]
    fn an_endpoint_counts_until_its_removal_is_applied() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let epochs = Epochs(vec![
            epoch(at(0), Some(at(200)), &["default/a", "default/b"]),
            epoch(at(100), Some(at(400)), &["default/b"]),
            epoch(at(300), None, &[]),
        ]);
        let anybody = "10.0.0.1:1".parse().unwrap();
        let replied =
            |server: &str| ProbeAnswer::Replied { server: server.to_owned(), peer: anybody, at: anybody, dscp: None };
        let verdict = |begun: u64, ended: u64, answer: ProbeAnswer| {
            let sample = Sample { begun: at(begun), ended: at(ended), answer };
            match epochs.verdict(&ObjectKey::new(None, "web"), &sample) {
                RequestVerdict::Right => "right",
                RequestVerdict::Failed => "failed",
                RequestVerdict::Misdelivered => "misdelivered",
            }
        };
        assert_eq!(verdict(10, 20, replied("default/a")), "right");
        assert_eq!(verdict(150, 160, replied("default/a")), "right", "its removal is not applied yet");
        assert_eq!(verdict(201, 210, replied("default/a")), "misdelivered");
        assert_eq!(verdict(201, 210, replied("default/b")), "right");
        assert_eq!(verdict(401, 410, replied("default/b")), "misdelivered");
        assert_eq!(verdict(201, 210, ProbeAnswer::Refused), "failed");
        assert_eq!(verdict(201, 310, ProbeAnswer::Refused), "right", "by then nobody was serving");
        assert_eq!(verdict(500, 510, ProbeAnswer::TimedOut), "right");
    }
}
