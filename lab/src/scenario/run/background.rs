//! Traffic that goes on while the cluster changes, and the judgement over it.
//!
//! A request is *failed* if it got no answer although, from its first moment to its last, somebody was serving. It is
//! *misdelivered* if who answered was no endpoint of the service at any moment of the request. An endpoint counts from the
//! moment that the change which brings it is published, until every proxy, dead and cut-off ones included, has applied the
//! change that takes it away: in between, either is right.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use svclab_apiserver::objects::{ObjectKey, ObjectKind, Store};
use svclab_cluster::ClusterError;
use svclab_cluster::prober::Prober;
use svclab_cluster::traffic::probe::{Probe, ProbeAnswer};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::expect::counters::PacketCount;

/// For how long traffic that is to end goes on until it has made as many requests as asked for.
const ENOUGH_WITHIN: Duration = Duration::from_secs(10);

/// Who serves each service, `namespace/pod`.
type Serving = BTreeMap<ObjectKey, BTreeSet<String>>;

/// A state of the objects, and for how long a packet may have met it.
struct Epoch {
    since: Instant,
    until: Option<Instant>,
    serving: Serving,
}

/// The states that the objects have been in.
#[derive(Default)]
pub(super) struct Epochs(Vec<Epoch>);

impl Epochs {
    /// The objects are about to be as in `store`.
    pub(super) fn begin(&mut self, store: &Store) {
        self.0.push(Epoch { since: Instant::now(), until: None, serving: serving(store) });
    }

    /// Every proxy has applied the newest state: older ones are over.
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

    fn verdict(&self, service: &ObjectKey, sample: &Sample) -> Verdict {
        let mut serving = self.during(sample).map(|epoch| epoch.serving.get(service)).peekable();
        match &sample.answer {
            ProbeAnswer::Replied { server, .. } => {
                if serving.flatten().any(|pods| pods.contains(server)) {
                    Verdict::Right
                } else {
                    Verdict::Misdelivered
                }
            }
            _ if serving.peek().is_none() || serving.any(|pods| pods.is_none_or(BTreeSet::is_empty)) => Verdict::Right,
            _ => Verdict::Failed,
        }
    }
}

/// Who serves each service now.
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

/// Whether an endpoint gets traffic: it is ready, or the fallback of those that terminate and still serve. A condition that is
/// left out means ready, serving and not terminating (API reference, `EndpointConditions`).
fn may_serve(conditions: &serde_json::Value) -> bool {
    let condition = |name: &str, left_out: bool| conditions[name].as_bool().unwrap_or(left_out);
    condition("ready", true) || (condition("serving", true) && condition("terminating", false))
}

/// One request.
#[derive(Debug)]
struct Sample {
    begun: Instant,
    ended: Instant,
    answer: ProbeAnswer,
}

enum Verdict {
    Right,
    Failed,
    Misdelivered,
}

/// What came of it all.
#[derive(Debug, Default)]
pub(super) struct TrafficReport {
    /// Requests sent.
    pub(super) made: usize,
    /// Without an answer that was promised: the first few, with their moment.
    pub(super) failed: Vec<String>,
    /// Answered by somebody who should not have got it: the first few, with their moment.
    pub(super) misdelivered: Vec<String>,
    /// Answers by pod.
    pub(super) servers: BTreeMap<String, usize>,
}

/// Requests that are being sent.
pub(super) struct Background {
    service: ObjectKey,
    begun: Instant,
    stop: watch::Sender<bool>,
    /// Requests that have ended so far.
    made: watch::Sender<usize>,
    workers: JoinSet<Result<Vec<Sample>, ClusterError>>,
}

impl Background {
    /// Sends `probe` again and again, from `workers` tasks that pause in between.
    pub(super) fn start(prober: &Prober, probe: &Probe, service: ObjectKey, workers: usize, pause: Duration) -> Self {
        let (stop, made) = (watch::Sender::new(false), watch::Sender::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(send(prober.clone(), probe.clone(), pause, made.clone(), stop.subscribe()));
        }
        Background { service, begun: Instant::now(), stop, made, workers: tasks }
    }

    /// Ends it and judges every request. It goes on until `wanted` accepts the number of requests, for [`ENOUGH_WITHIN`] at
    /// most: how many a machine sends while something else happens depends on the machine.
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
    fn count(&mut self, sample: &Sample, verdict: Verdict, origin: Instant) {
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
            Verdict::Right => {}
            Verdict::Failed => self.failed.push(format!("{words} after {moment} ms")),
            Verdict::Misdelivered => self.misdelivered.push(format!("{words} after {moment} ms")),
        }
    }

    /// In a line.
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
        // Rushes on when it is to stop.
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
    fn what_is_left_out_of_conditions() {
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
        let replied = |server: &str| ProbeAnswer::Replied { server: server.to_owned(), peer: anybody, at: anybody };
        let verdict = |begun: u64, ended: u64, answer: ProbeAnswer| {
            let sample = Sample { begun: at(begun), ended: at(ended), answer };
            match epochs.verdict(&ObjectKey::new(None, "web"), &sample) {
                Verdict::Right => "right",
                Verdict::Failed => "failed",
                Verdict::Misdelivered => "misdelivered",
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
