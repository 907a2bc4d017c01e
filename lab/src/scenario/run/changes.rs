use std::time::{Duration, Instant};

use svclab_apiserver::ServerFault;
use svclab_apiserver::objects::Store;
use svclab_spec::PodSpec;

use super::background::BackgroundTraffic;
use super::error::LabError;
use super::lab::KernelLab;
use crate::expect::Mismatch;
use crate::expect::counters::PacketCount;
use crate::scenario::execute::StepOutcome;
use crate::scenario::file::{ExpectFile, TrafficFile};
use crate::scenario::{Step, dry_run, resolve};

const WORKERS: usize = 4;
/// The default pause between a task's requests; leaves processor time to the proxies.
const PAUSE: Duration = Duration::from_millis(5);
const TOLD: usize = 3;

/// The number of a proxy's watches: Services, EndpointSlices, a Node.
const WATCHES: usize = 3;
/// The limit for hostile answers: client-go's reflectors back off for up to 30 s.
const ANSWERED_WITHIN: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(5);

impl KernelLab {
    pub(super) async fn change_objects(&mut self, step: &Step) -> Result<StepOutcome, LabError> {
        let before = self.cluster.spec().pods;
        // As with kubelets and controllers, a pod runs before its endpoint is published.
        let mut ahead = self.store.read(Store::clone);
        dry_run::change(&mut ahead, step)?;
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
        self.store.write(|store| dry_run::change(store, step))?;
        let refused = self.publish().await?;
        let published = Instant::now();
        let (killed, mut broken) = self.await_kills(kills).await?;
        if refused.is_none() {
            broken.extend(self.applied(since).await?);
        }
        let (not_in_time, note) = self.in_time(&step.expect, published.elapsed());
        broken.extend(not_in_time);
        // A deleted pod answers until the proxies have applied the change, as in a kubelet's grace period.
        let gone: Vec<_> = before.iter().filter(|pod| !named(&after, pod)).map(key).collect();
        self.cluster.remove_pods(&gone).await?;
        let seen = StepOutcome::new(format!("version {}{killed}{note}", self.store.version()), broken);
        Ok(StepOutcome { not_judged: refused, ..seen })
    }

    /// Changes the API's fault, and waits for the proxies if the API withholds nothing.
    pub(super) async fn misbehave(&mut self, what: ServerFault, expect: &ExpectFile) -> Result<StepOutcome, LabError> {
        let since = Instant::now();
        self.proxies.set_backs_off();
        self.feed.misbehave(what).await?;
        if let ServerFault::Answer(_) = what {
            return Ok(self.answered().await);
        }
        let late = self.applied(since).await?;
        let (not_in_time, note) = self.in_time(expect, since.elapsed());
        let broken = late.into_iter().chain(not_in_time);
        Ok(StepOutcome::new(format!("version {}{note}", self.store.version()), broken))
    }

    /// Judges how long it `took` until every proxy had applied a change. An emulated processor on the host's clock is
    /// too slow for bounds that any other machine keeps.
    fn in_time(&self, expect: &ExpectFile, took: Duration) -> (Vec<Mismatch>, &'static str) {
        let bounds = expect.took.iter().flat_map(|bounds| &bounds.0).map(|bound| bound.value);
        if self.emulated && expect.took.is_some() {
            return (Vec::new(), "; its time is not judged on this machine");
        }
        let mismatch =
            |bound| Mismatch::new(format!("every proxy applies the change in {bound}"), format!("{took:.1?}"));
        (bounds.filter(|bound| !bound.accepts(took)).map(mismatch).collect(), "")
    }

    /// Waits for one hostile answer per watch.
    async fn answered(&self) -> StepOutcome {
        let wanted = WATCHES * self.cluster.spec().nodes.len();
        let deadline = Instant::now() + ANSWERED_WITHIN;
        let mut answers = self.feed.hostile_answers();
        while answers < wanted && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
            answers = self.feed.hostile_answers();
        }
        let few = Mismatch::new(format!("at least {wanted} requests to answer so"), answers.to_string());
        StepOutcome::new(format!("{answers} answers"), if answers < wanted { vec![few] } else { Vec::new() })
    }

    pub(super) async fn begin_traffic(&mut self, file: &TrafficFile) -> Result<StepOutcome, LabError> {
        let resolved = self.store.read(|store| resolve::traffic(store, file));
        let (service, probe, route) = resolved.map_err(|problem| LabError::Step(problem.message))?;
        // Keeps the client's route as long as the traffic.
        if route.is_none() {
            self.cluster.check_lb_health(probe.to.ip()).await;
        }
        self.route(route.as_ref(), true).await?;
        let prober = self.cluster.prober(&probe.from)?;
        let workers = if file.source_port.is_some() { 1 } else { file.concurrency.unwrap_or(WORKERS).max(1) };
        let pause = file.pause.map_or(PAUSE, |span| span.0);
        let summary = format!("{} to {}", probe.from, probe.to);
        self.traffic
            .insert(file.name.value.clone(), BackgroundTraffic::start(&prober, &probe, service, workers, pause));
        Ok(StepOutcome::new(summary, []))
    }

    pub(super) async fn end_traffic(&mut self, name: &str, expect: &ExpectFile) -> Result<StepOutcome, LabError> {
        let Some(background) = self.traffic.remove(name) else {
            return Ok(StepOutcome::new("", vec![Mismatch::new(format!("traffic {name} was begun"), "it was not")]));
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
        Ok(StepOutcome::new(report.summary(), broken))
    }
}
