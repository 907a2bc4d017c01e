//! Requests to the unchanging service. One of its pods must answer each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use svclab_cluster::ClusterError;
use svclab_cluster::prober::Prober;
use svclab_cluster::traffic::probe::{Probe, ProbeAnswer};
use tokio::task::JoinSet;

const WORKERS: usize = 2;
const PAUSE: Duration = Duration::from_millis(10);
const KEPT: usize = 5;

#[derive(Debug, Clone, Default)]
pub(super) struct TrafficReport {
    pub(super) made: u64,
    pub(super) failed: u64,
    pub(super) examples: Vec<String>,
}

pub(super) struct SteadyTraffic {
    report: Arc<Mutex<TrafficReport>>,
    workers: JoinSet<Result<(), ClusterError>>,
}

impl SteadyTraffic {
    /// Sends `probes` in turn; one of `servers` must answer.
    pub(super) fn begin(prober: &Prober, probes: &[Probe], servers: &'static [&'static str]) -> Self {
        let report = Arc::new(Mutex::new(TrafficReport::default()));
        let (begun, mut workers) = (Instant::now(), JoinSet::new());
        for _ in 0..WORKERS {
            let (prober, probes, report) = (prober.clone(), probes.to_vec(), Arc::clone(&report));
            workers.spawn(async move {
                for probe in probes.iter().cycle() {
                    let answer = prober.send(probe).await?.answer;
                    let moment =
                        || format!("{:?} from {} after {:.1} s", answer, probe.to, begun.elapsed().as_secs_f64());
                    let right =
                        matches!(&answer, ProbeAnswer::Replied { server, .. } if servers.contains(&server.as_str()));
                    report.lock().unwrap_or_else(PoisonError::into_inner).count(right, moment);
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(())
            });
        }
        SteadyTraffic { report, workers }
    }

    pub(super) fn report(&self) -> TrafficReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the requests and returns their report. An error means that the lab could not send.
    pub(super) async fn end(mut self) -> Result<TrafficReport, ClusterError> {
        while let Some(ended) = self.workers.try_join_next() {
            if let Ok(error) = ended {
                error?;
            }
        }
        self.workers.shutdown().await;
        Ok(self.report())
    }
}

impl TrafficReport {
    fn count(&mut self, right: bool, words: impl FnOnce() -> String) {
        self.made += 1;
        if !right {
            self.failed += 1;
            if self.examples.len() < KEPT {
                self.examples.push(words());
            }
        }
    }
}
