//! Steps that change the cluster, and the traffic that goes on meanwhile.

use std::time::{Duration, Instant};

use svclab_apiserver::ServerFault;
use svclab_apiserver::objects::Store;
use svclab_spec::PodSpec;

use super::background::Background;
use super::error::LabError;
use super::lab::Lab;
use crate::expect::Mismatch;
use crate::expect::counters::PacketCount;
use crate::scenario::execute::Seen;
use crate::scenario::file::{ExpectFile, TrafficFile};
use crate::scenario::{Action, dry_run, resolve};

/// Tasks that send background traffic, unless the step says otherwise.
const WORKERS: usize = 4;
/// What each of them waits between two requests: enough to leave the processors to the proxies.
const PAUSE: Duration = Duration::from_millis(5);
/// Failures of one sort that are told.
const TOLD: usize = 3;

/// A proxy watches Services, EndpointSlices and a Node.
const WATCHES: usize = 3;
/// How long clients may take to ask again: client-go's reflectors wait for 30 seconds at most between two tries.
const ANSWERED_WITHIN: Duration = Duration::from_secs(90);
/// Time between two looks at how many have.
const LOOK: Duration = Duration::from_millis(5);

impl Lab {
    /// Changes objects, builds or removes pods, and waits until every proxy has applied it.
    pub(super) async fn change_objects(&mut self, action: &Action) -> Result<Seen, LabError> {
        let before = self.cluster.spec().pods;
        // A pod runs before its endpoint is published, as kubelets and controllers have it.
        let mut ahead = self.store.read(Store::clone);
        dry_run::change(&mut ahead, action)?;
        let after = ahead.cluster_spec().pods;
        let named = |list: &[PodSpec], pod: &PodSpec| {
            list.iter().any(|other| (&other.namespace, &other.name) == (&pod.namespace, &pod.name))
        };
        let key = |pod: &PodSpec| (pod.namespace.clone(), pod.name.clone());
        let new: Vec<PodSpec> = after.iter().filter(|pod| !before.contains(pod)).cloned().collect();
        let replaced: Vec<_> = new.iter().filter(|pod| named(&before, pod)).map(key).collect();
        self.cluster.remove_pods(&replaced).await?;
        self.cluster.add_pods(&new).await?;
        let kills = self.arm_kills();
        self.epochs.begin(&ahead);
        let since = Instant::now();
        self.store.write(|store| dry_run::change(store, action))?;
        let refused = self.publish().await?;
        let (killed, mut broken) = self.await_kills(kills).await?;
        if refused.is_none() {
            broken.extend(self.applied(since).await?);
        }
        // A deleted pod answers until the proxies have let go of it, as a kubelet's grace period has it.
        let gone: Vec<_> = before.iter().filter(|pod| !named(&after, pod)).map(key).collect();
        self.cluster.remove_pods(&gone).await?;
        let seen = Seen::new(format!("version {}{killed}", self.store.version()), broken);
        Ok(Seen { not_judged: refused, ..seen })
    }

    /// Makes the API misbehave. What was kept from the proxies is applied when this returns, if nothing is any more.
    pub(super) async fn misbehave(&mut self, what: ServerFault) -> Result<Seen, LabError> {
        let since = Instant::now();
        self.feed.misbehave(what).await?;
        if let ServerFault::Answer(_) = what {
            return Ok(self.answered().await);
        }
        let late = self.applied(since).await?;
        Ok(Seen::new(format!("version {}", self.store.version()), late))
    }

    /// Waits until clients have met the answer that the API is to give: as often as there are watches.
    async fn answered(&self) -> Seen {
        let wanted = WATCHES * self.cluster.spec().nodes.len();
        let deadline = Instant::now() + ANSWERED_WITHIN;
        let mut answers = self.feed.hostile_answers();
        while answers < wanted && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
            answers = self.feed.hostile_answers();
        }
        let few = Mismatch::new(format!("at least {wanted} requests to answer so"), answers.to_string());
        Seen::new(format!("{answers} answers"), if answers < wanted { vec![few] } else { Vec::new() })
    }

    /// Begins background traffic.
    pub(super) async fn begin_traffic(&mut self, file: &TrafficFile) -> Result<Seen, LabError> {
        let resolved = self.store.read(|store| resolve::traffic(store, file));
        let (service, probe, route) = resolved.map_err(|problem| LabError::Step(problem.message))?;
        // The route stays: the traffic needs it for as long as it goes on.
        self.route(route.as_ref(), true).await?;
        let prober = self.cluster.prober(&probe.from)?;
        let workers = if file.source_port.is_some() { 1 } else { file.concurrency.unwrap_or(WORKERS).max(1) };
        let pause = file.pause.map_or(PAUSE, |span| span.0);
        let summary = format!("{} to {}", probe.from, probe.to);
        self.traffic.insert(file.name.value.clone(), Background::start(&prober, &probe, service, workers, pause));
        Ok(Seen::new(summary, []))
    }

    /// Ends background traffic and judges it.
    pub(super) async fn end_traffic(&mut self, name: &str, expect: &ExpectFile) -> Result<Seen, LabError> {
        let Some(background) = self.traffic.remove(name) else {
            return Ok(Seen::new("", vec![Mismatch::new(format!("traffic {name} was begun"), "it was not")]));
        };
        let made = expect.made.as_ref().unwrap_or(&PacketCount::AtLeast(1));
        let report = background.end(made, &self.epochs).await?;
        let none = PacketCount::Exactly(0);
        let mut broken = Vec::new();
        let mut check = |wanted: &PacketCount, count: usize, what: &str, examples: &[String]| {
            if !wanted.accepts(count as u64, |_| 0) {
                let examples = examples.iter().take(TOLD).cloned().collect::<Vec<_>>().join(", ");
                let seen = if examples.is_empty() { count.to_string() } else { format!("{count}: {examples}, …") };
                broken.push(Mismatch::new(format!("{wanted} requests {what}"), seen));
            }
        };
        check(made, report.made, "made", &[]);
        check(expect.failed.as_ref().unwrap_or(&none), report.failed.len(), "failed", &report.failed);
        let misdelivered = expect.misdelivered.as_ref().unwrap_or(&none);
        check(misdelivered, report.misdelivered.len(), "misdelivered", &report.misdelivered);
        Ok(Seen::new(report.summary(), broken))
    }
}
